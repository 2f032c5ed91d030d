//! The first document's core claim, on a network that enforces NetworkPolicies: notebooks that may reach the gateway's HTTPS
//! port and nothing else reach their scheduler once the app names them as clients.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use portreeve_testkit::{Bed, eventually, fixtures};
use serde_json::json;

use crate::support::dask::{CLUSTER_LABEL, Cluster, Dask, Routes};
use crate::support::{NEBARI, Operator, Platform, WAY, exported, policy_verdicts};

/// Where notebooks run.
const HUB: &str = "policies-hub";

const APP_NAMESPACE: &str = "policies-dask";

const PORT: u16 = 8789;

const NETWORKING: &str = "networking.k8s.io/v1";

/// The labels of a notebook.
const NOTEBOOK: [(&str, &str); 2] = [("app", "jupyterhub"), ("component", "singleuser-server")];

/// As the data-science pack makes it (nebariapp B.2): notebooks may reach the gateway's HTTPS port.
const EGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: singleuser-gateway-egress, namespace: policies-hub}
spec:
  podSelector: {matchLabels: {app: jupyterhub, component: singleuser-server}}
  policyTypes: [Egress]
  egress:
  - to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: envoy-gateway-system}}
      podSelector: {matchLabels: {gateway.envoyproxy.io/owning-gateway-name: nebari-gateway}}
    ports: [{port: 10443, protocol: TCP}]
";

/// Nobody may reach anything of the app.
const INGRESS: &str = "
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny, namespace: policies-dask},
 spec: {podSelector: {}, policyTypes: [Ingress]}}
";

/// Needs the operator for itself: it is paused on the way.
pub(crate) async fn notebooks(platform: &Platform, operator: &Operator) -> anyhow::Result<()> {
    let bed = &platform.bed;
    let dask = Dask::new(platform, APP_NAMESPACE, PORT, Routes::OfOperator).await?;
    let [cluster, _] = &dask.clusters;
    bed.apply(&fixtures::opted_in_namespace(HUB)).await?;
    bed.run_as_pod(&dask.client, HUB, "jupyter-jo", &NOTEBOOK).await?;
    let label = (CLUSTER_LABEL, cluster.name.as_str());
    bed.run_as_pod(&cluster.host, APP_NAMESPACE, &format!("dask-scheduler-{}", cluster.name), &[label]).await?;
    dask.publish(&[cluster]).await?;
    bed.enforce_network_policies().await?;
    dask.wait_reached(cluster, &cluster.server_name).await?;

    bed.apply(EGRESS).await?;
    bed.enforce_network_policies().await?;
    dask.ensure_unreachable(cluster).await?;
    reach_https(&dask).await.context("the gateway's HTTPS port is allowed")?;
    ensure_hops(bed, cluster, &["Blocked", "NotIsolated", "NotIsolated", "NotIsolated"]).await?;

    clients_are_let_out(&dask).await?;
    gateway_is_let_in(&dask, operator).await?;

    for (namespace, name) in [(HUB, "singleuser-gateway-egress"), (APP_NAMESPACE, "deny")] {
        bed.delete(NETWORKING, "NetworkPolicy", &format!("{namespace}/{name}")).await?;
        eventually(format!("no policy is left in {namespace}"), WAY, async || {
            let left = policies(bed, namespace).await?;
            ensure!(left.is_empty(), "there are {left:?}");
            Ok(())
        })
        .await?;
    }
    bed.enforce_network_policies().await?;
    dask.ensure_reached(cluster, &cluster.server_name, "nothing isolates anything any more").await
}

/// `clients` opens the way of notebooks.
async fn clients_are_let_out(dask: &Dask<'_>) -> anyhow::Result<()> {
    let [cluster, _] = &dask.clusters;
    let bed = &dask.team.platform.bed;
    let clients = json!([{
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": HUB}},
        "podSelector": {"matchLabels": {"app": "jupyterhub"}},
    }]);
    dask.apply_app(&[cluster], &clients).await?;
    wait_policies(bed, HUB, 2).await?;
    let app = format!("{APP_NAMESPACE}/dask");
    bed.wait_for(NEBARI, "NebariApp", &app, "says that clients are let through", |app| {
        let conditions = app["status"]["tcp"][0]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "ClientsReady" && one["reason"] == "ClientsAllowed")
    })
    .await?;
    bed.enforce_network_policies().await?;
    dask.ensure_reached(cluster, &cluster.server_name, "a client that is named").await?;
    reach_https(dask).await.context("what was allowed stays so")?;
    ensure_hops(bed, cluster, &["Allowed", "NotIsolated", "NotIsolated", "NotIsolated"]).await
}

/// A backend that is isolated for what it receives lets the gateway in.
async fn gateway_is_let_in(dask: &Dask<'_>, operator: &Operator) -> anyhow::Result<()> {
    let [cluster, _] = &dask.clusters;
    let bed = &dask.team.platform.bed;
    operator.pause()?;
    let isolated = async {
        bed.apply(INGRESS).await?;
        bed.enforce_network_policies().await?;
        dask.ensure_unreachable(cluster).await?;
        ensure_hops(bed, cluster, &["Allowed", "NotIsolated", "NotIsolated", "Blocked"]).await
    };
    let isolated = isolated.await;
    operator.resume()?;
    isolated?;
    wait_policies(bed, APP_NAMESPACE, 2).await?;
    bed.enforce_network_policies().await?;
    dask.ensure_reached(cluster, &cluster.server_name, "a backend that lets the gateway in").await?;
    let stranger = bed.host("policies-stranger")?;
    let direct = stranger.connect((cluster.host.address(), 8786).into());
    let direct = tokio::time::timeout(Duration::from_secs(1), direct).await;
    ensure!(!direct.is_ok_and(|connected| connected.is_ok()), "the backend lets in others than the gateway");
    ensure_hops(bed, cluster, &["Allowed", "NotIsolated", "NotIsolated", "Allowed"]).await
}

async fn reach_https(dask: &Dask<'_>) -> anyhow::Result<()> {
    let connected = dask.client.connect(dask.team.platform.bed.gateway_address(443)?);
    tokio::time::timeout(Duration::from_secs(3), connected).await.context("no connection in 3 s")??;
    Ok(())
}

async fn policies(bed: &Bed, namespace: &str) -> anyhow::Result<Vec<String>> {
    let found = Api::<NetworkPolicy>::namespaced(bed.client(), namespace).list(&ListParams::default()).await?;
    Ok(found.iter().map(ResourceExt::name_any).collect())
}

async fn wait_policies(bed: &Bed, namespace: &str, count: usize) -> anyhow::Result<()> {
    eventually(format!("{namespace} has {count} policies"), WAY, async || {
        let found = policies(bed, namespace).await?;
        ensure!(found.len() == count, "there are {found:?}");
        Ok(())
    })
    .await
}

/// What `trace --from` says about the policies on a notebook's way: out of the notebook, into the gateway, out of it, into the
/// scheduler.
async fn ensure_hops(bed: &Bed, cluster: &Cluster, expected: &[&str]) -> anyhow::Result<()> {
    let labels = NOTEBOOK.map(|(key, value)| format!("{key}={value}")).join(",");
    let (folder, port) = (exported(bed, "exported").await?, PORT.to_string());
    let question: [&OsStr; 5] =
        [folder.as_ref(), "--port".as_ref(), port.as_ref(), "--sni".as_ref(), cluster.server_name.as_ref()];
    let verdicts = policy_verdicts(&question, &format!("{HUB}/{labels}")).await?;
    ensure!(verdicts == expected, "trace says {verdicts:?} instead of {expected:?}");
    Ok(())
}
