//! What closes a tenant's namespace, on a network that enforces NetworkPolicies.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::time::Duration;

use anyhow::{Context, ensure};
use portreeve_testkit::clients::https_get_over;
use portreeve_testkit::{Bed, Host, tls};
use serde_json::json;

use crate::support::tenants::{APPS_GATEWAY, ARGUMENTS, Tenant, settings, tenant};
use crate::support::{Operator, PORT, Platform, policy_verdicts};
use crate::tenants::settled;

/// How long a connection that must not be made is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// A pod of `walled` reaches its neighbours and public names, and nothing of `beyond`, nor the other way round.
pub(crate) async fn isolated(platform: &Platform) -> anyhow::Result<()> {
    let (walled, beyond) = (Tenant::new(platform, "walled").await?, Tenant::new(platform, "beyond").await?);
    walled.publish(APPS_GATEWAY).await?;
    beyond.publish(APPS_GATEWAY).await?;
    platform.wait_tenant("walled", &[("NetworkIsolated", "True", "Isolated")]).await?;
    platform.wait_tenant("beyond", &[("NetworkIsolated", "True", "Isolated")]).await?;
    let bed = &platform.bed;
    let (pod, stranger) = (bed.host("walled-pod")?, bed.host("stranger")?);
    bed.run_as_pod(&stranger, "default", "stranger", &[("app", "stranger")]).await?;
    bed.run_as_pod(&pod, &walled.namespace(), "pod", &[("app", "pod")]).await?;
    for tenant in [&walled, &beyond] {
        bed.run_as_pod(&tenant.host, &tenant.namespace(), "web", &[("app", "web")]).await?;
        // Nothing is refused yet, so what is refused later is so by the policies.
        reach(&stranger, &tenant.host).await.context("before policies are enforced")?;
    }
    bed.enforce_network_policies().await?;

    reach(&pod, &walled.host).await.context("a neighbour")?;
    for tenant in [&walled, &beyond] {
        let answer = ask(platform, &pod, &tenant.hostname()).await.context("the gateway's data plane")?;
        ensure!(tenant.is_own(&answer), "{} answers {answer:?}", tenant.hostname());
    }
    for (from, to) in [(&pod, &beyond.host), (&beyond.host, &pod), (&stranger, &walled.host), (&pod, &stranger)] {
        ensure_silent(from, to).await?;
    }
    explained(platform, &walled, &pod).await
}

/// `trace --from` says of the way out of a tenant's pod, into the gateway, out of it, and into an app what the network does.
async fn explained(platform: &Platform, walled: &Tenant<'_>, pod: &Host) -> anyhow::Result<()> {
    let (bed, own) = (&platform.bed, format!("{}/app=pod", walled.namespace()));
    let (url, kubeconfig) = (format!("https://{}/", walled.hostname()), bed.kubeconfig().display().to_string());
    for (from, out) in [(own.as_str(), "Allowed"), ("default/app=stranger", "NotIsolated")] {
        let verdicts = policy_verdicts(&["--kubeconfig", &kubeconfig, &url], from).await?;
        ensure!(verdicts == [out, "NotIsolated", "NotIsolated", "Allowed"], "{from} to {url}: {verdicts:?}");
    }
    // The platform's own Gateway is none of the tenants'. Its Pod is on no node, so that nobody else tells where it is.
    let gateway = bed.gateway_address(443)?;
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "envoy-gateway-system", "name": "nebari-gateway",
            "labels": {"kubernetes.io/service-name": "envoy-envoy-gateway-system-nebari-gateway"}},
        "ports": [{"name": "tcp-80", "port": 10080}, {"name": "tcp-443", "port": 10443}],
        "endpoints": [{"addresses": [gateway.ip()], "conditions": {"ready": true}}]});
    bed.apply(&slice.to_string()).await?;
    let connected = tokio::time::timeout(SILENCE, pod.connect(gateway)).await;
    ensure!(connected.is_err(), "a tenant's pod reaches the platform's Gateway");
    let question = ["--gateway=envoy-gateway-system/nebari-gateway", "--port=443", "--sni=example.test"];
    let verdicts = policy_verdicts(&[&question[..], &["--kubeconfig", &kubeconfig]].concat(), &own).await?;
    ensure!(verdicts.first().is_some_and(|out| out == "Blocked"), "the platform's Gateway: {verdicts:?}");
    Ok(())
}

/// What the operator is told: everything that makes a rule of its own.
const SETTINGS: &str = "{isolation: {systemNamespaces: [monitoring], deniedNetworks: [203.0.113.0/24, 2001:db8::/32],
  extraIngress: [{from: [{podSelector: {}, namespaceSelector: {matchLabels: {team: tools}}}]}],
  extraEgress: [{to: [{ipBlock: {cidr: 10.1.2.3/32}}], ports: [{protocol: TCP, port: 5432}]}]}}";

/// Each with its definitions and the version in which it is written; the second comes in place of the first where both are.
const ADMINISTRATORS: [(&str, &str, &str); 2] = [
    ("admin-network-policy", "policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    ("cluster-network-policy", "policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
];

/// There is no gateway here, and nothing enforces them: the API server takes them as their definitions say.
#[tokio::test(flavor = "multi_thread")]
async fn administrators_policies_are_as_their_definitions_want_them() {
    let platform = Platform::bare(Bed::builder()).await.unwrap();
    let settings = settings(&platform.bed, SETTINGS).unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", &[ARGUMENTS, &[&settings]].concat()).unwrap();
    operator.wait_ready().await.unwrap();
    let written = administrators_policies(&platform, &operator).await;
    written.map_err(|error| format!("{error:?}\n{}", operator.log())).unwrap();
    operator.stop().await.unwrap();
}

async fn administrators_policies(platform: &Platform, operator: &Operator) -> anyhow::Result<()> {
    platform.bed.apply(&tenant("walled", json!({}))).await?;
    for (definitions, version, kind) in ADMINISTRATORS {
        platform.bed.define(definitions, |file| file.starts_with("policy.")).await?;
        let names = ["kubespaces-tenant-walled", "kubespaces-tenant-walled-control-plane"];
        for name in names {
            let policy = platform.bed.wait_for(version, kind, name, "is there", |_| true).await?;
            for (way, fields) in [("ingress", ["from", "pods"]), ("egress", ["to", "networks"])] {
                let rules = policy["spec"][way].as_array().context("rules")?;
                let [ends, last] = fields;
                let actions: Vec<_> = rules.iter().filter_map(|rule| rule["action"].as_str()).collect();
                ensure!(actions == ["Pass", "Deny"], "{policy}");
                let passed = rules[0][ends].as_array().and_then(|peers| peers.last()).context("a peer")?;
                ensure!(!passed[last].is_null(), "what is configured is lost: {policy}");
            }
            let denied = policy["spec"]["egress"][1].to_string();
            ensure!(["169.254.0.0/16", "2001:db8::/32"].iter().all(|network| denied.contains(network)), "{policy}");
        }
        // A field that a definition does not have would be lost, missed and written again.
        settled(operator).await?;
        platform.wait_tenant("walled", &[("NetworkIsolated", "True", "Isolated")]).await?;
    }
    let [(_, version, kind), _] = ADMINISTRATORS;
    platform.bed.wait_gone(version, kind, "kubespaces-tenant-walled").await
}

async fn reach(from: &Host, to: &Host) -> anyhow::Result<()> {
    let connected = tokio::time::timeout(SILENCE * 3, from.connect((to.address(), PORT).into())).await;
    connected.context("no connection in 3 s")?.map(drop)
}

/// Nobody listens at some of these ports: a refusal would say so, and policies say nothing.
async fn ensure_silent(from: &Host, to: &Host) -> anyhow::Result<()> {
    let connected = tokio::time::timeout(SILENCE, from.connect((to.address(), PORT).into())).await;
    ensure!(connected.is_err(), "{} reaches {}", from.namespace(), to.namespace());
    Ok(())
}

async fn ask(platform: &Platform, from: &Host, hostname: &str) -> anyhow::Result<portreeve_testkit::clients::Answer> {
    let connected = tokio::time::timeout(SILENCE * 3, from.connect(platform.tenant_gateway(APPS_GATEWAY)?)).await;
    let connection = connected.context("no connection in 3 s")??;
    https_get_over(connection, hostname, hostname, "/", tls::any_certificate()?).await
}
