//! Tenants: their API servers by TLS passthrough, their apps by one listener each, and what a tenant tries in vain.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use portreeve_testkit::clients::http2_get;
use portreeve_testkit::{Channel, Host, TenantApiServer, eventually, fixtures, tls};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::tenants::{
    API_GATEWAY, APPS_GATEWAY, ARGUMENTS, DOMAIN, GATEWAYS, TENANTS, Tenant, tenant, with_hosts,
};
use crate::support::{GATEWAY_API, Operator, PORT, Platform, Team, WAY, has, message, side_by_side};
use crate::tenants_gitops::others_write_the_gateway;
use crate::tenants_isolation::isolated;

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_served_and_kept_apart() {
    let platform = Platform::start(Channel::Standard).await.unwrap();
    platform.add_tenant_gateways(&[APPS_GATEWAY]).await.unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", ARGUMENTS).unwrap();
    operator.wait_ready().await.unwrap();
    let log = || operator.log();
    side_by_side(
        vec![
            ("kubectl_goes_through_the_gateway_to_the_tenants_own_api_server", kubectl(&platform).boxed_local()),
            ("a_tenant_gets_no_name_but_its_own", adversarial(&platform).boxed_local()),
            ("namespaces_are_whose_they_are", namespaces(&platform).boxed_local()),
            ("a_tenant_goes_without_a_trace", deletion(&platform).boxed_local()),
            ("a_tenants_namespace_is_closed", isolated(&platform).boxed_local()),
        ],
        log,
    )
    .await;
    let open = ("an_api_gateway_that_lets_tenants_in_is_told", open_api_gateway(&platform).boxed_local());
    side_by_side(vec![open], log).await;
    let others = ("tenants_stay_on_a_gateway_that_others_write", others_write_the_gateway(&platform).boxed_local());
    side_by_side(vec![others], log).await;
    side_by_side(vec![("what_is_settled_is_not_written", settled(&operator).boxed_local())], log).await;
    operator.stop().await.unwrap();
}

/// The API server behind the gateway is a real one that knows people by their client certificates.
async fn kubectl(platform: &Platform) -> anyhow::Result<()> {
    let blue = Tenant::new(platform, "blue").await?;
    let hostname = blue.api_hostname();
    let server = TenantApiServer::start(&platform.bed, "blue-api", &["blue.svc"]).await?;
    blue.provision(&server).await?;
    let missing = platform.wait_tenant("blue", &[("APIServerReachable", "False", "SANMissing")]).await?;
    ensure!(message(&missing, "APIServerReachable").contains("blue.svc"), "which names it has is told: {missing}");
    server.certify(&["blue.svc", &hostname])?;
    platform.wait_tenant("blue", &[("APIServerReachable", "True", "APIServerReached")]).await?;
    let has_kubeconfig =
        |tenant: &Value| tenant["status"]["phase"] == "Ready" && tenant["status"]["kubeconfigSecretRef"].is_object();
    let ready = platform.bed.wait_for(TENANTS, "Tenant", "blue", "is Ready", has_kubeconfig).await?;
    ensure!(ready["status"]["apiServerUrl"] == format!("https://{hostname}:443"), "{ready}");
    platform.wait_tenant("blue", &[("APIRoutingReady", "True", "RouteAccepted")]).await?;

    let developer = Developer::new(platform, &blue, &ready).await?;
    eventually("kubectl lists through the gateway", WAY, async || {
        let listed = developer.run(&["get", "namespaces", "--output=name"]).await?;
        ensure!(listed.status.success(), "it says {}", String::from_utf8_lossy(&listed.stderr));
        ensure!(String::from_utf8_lossy(&listed.stdout).contains("namespace/kube-system"), "{listed:?}");
        Ok(())
    })
    .await?;
    let gateway = TcpStream::connect(platform.tenant_gateway(API_GATEWAY)?).await?;
    let stream = tls::handshake(tls::any_certificate()?, &hostname, gateway).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    ensure!(shown == Some(&server.certificate()?), "the gateway shows another certificate than the API server");
    watch(platform, &developer).await
}

/// A watch stays open while other tenants come and go.
async fn watch(platform: &Platform, developer: &Developer) -> anyhow::Result<()> {
    let log = platform.bed.folder().join("blue-watch.log");
    let watching = developer.command(&["get", "configmaps", "--watch", "--output=name"])?;
    let mut watching = developer.start(watching, &log)?;
    let seen = |name: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(name));
    for round in 0..5 {
        let other = format!("passer-by-{round}");
        platform.bed.apply(&tenant(&other, json!({}))).await?;
        platform.wait_tenant(&other, &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
        let name = format!("change-{round}");
        let made = developer.run(&["create", "configmap", &name]).await?;
        ensure!(made.status.success(), "kubectl says {}", String::from_utf8_lossy(&made.stderr));
        eventually(format!("the watch tells of {name}"), Duration::from_secs(10), async || {
            ensure!(seen(&name), "it has told {}", std::fs::read_to_string(&log)?);
            Ok(())
        })
        .await?;
        platform.bed.delete(TENANTS, "Tenant", &other).await?;
        platform.bed.wait_gone(TENANTS, "Tenant", &other).await?;
    }
    ensure!(watching.ended()?.is_none(), "the watch has ended");
    Ok(())
}

/// Somebody with the kubeconfig that a Tenant's status names.
struct Developer {
    host: Host,
    kubeconfig: PathBuf,
    hosts: PathBuf,
}

impl Developer {
    async fn new(platform: &Platform, of: &Tenant<'_>, tenant: &Value) -> anyhow::Result<Self> {
        let reference = &tenant["status"]["kubeconfigSecretRef"];
        let name = format!("{}/{}", of.namespace(), reference["name"].as_str().context("a kubeconfig is named")?);
        let secret = platform.bed.get("v1", "Secret", &name).await?.context("the kubeconfig is there")?;
        let key = reference["key"].as_str().context("a key is named")?;
        let k8s_openapi::ByteString(kubeconfig) = serde_json::from_value(secret["data"][key].clone())?;
        let folder = platform.bed.folder();
        let developer = Self {
            host: platform.bed.host(&format!("{}-developer", of.name))?,
            kubeconfig: folder.join(format!("{}.kubeconfig", of.name)),
            hosts: folder.join(format!("{}.hosts", of.name)),
        };
        std::fs::write(&developer.kubeconfig, kubeconfig)?;
        let address = platform.tenant_gateway(API_GATEWAY)?.ip();
        std::fs::write(&developer.hosts, format!("127.0.0.1 localhost\n{address} {}\n", of.api_hostname()))?;
        Ok(developer)
    }

    fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut kubectl = self.host.command(portreeve_programs::find("kubectl")?);
        kubectl.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        Ok(with_hosts(&kubectl, &self.hosts))
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = self.command(arguments)?;
        Ok(tokio::task::spawn_blocking(move || command.output()).await??)
    }

    fn start(&self, mut command: Command, log: &std::path::Path) -> anyhow::Result<portreeve_testkit::Running> {
        let file = File::create(log)?;
        command.stdout(file.try_clone()?).stderr(file);
        self.host.spawn(command)
    }
}

/// What `red` tries; each attempt is checked by asking for the name that it wants.
async fn adversarial(platform: &Platform) -> anyhow::Result<()> {
    let (red, green) = (Tenant::new(platform, "red").await?, Tenant::new(platform, "green").await?);
    red.publish(APPS_GATEWAY).await?;
    green.publish(APPS_GATEWAY).await?;
    let longer = Tenant::new(platform, "infrared").await?;
    longer.publish(APPS_GATEWAY).await?;

    foreign_hostnames(platform, &red, &green, &longer).await?;
    foreign_gateways(platform, &red).await?;
    copied_label(platform, &red).await?;
    app_under_a_tenants_name(platform, &red).await?;
    one_connection_for_two(platform, &red, &green).await?;
    green.wait_served(APPS_GATEWAY, &green.hostname()).await?;
    red.wait_served(APPS_GATEWAY, &red.hostname()).await?;
    Ok(())
}

async fn foreign_hostnames(
    platform: &Platform,
    red: &Tenant<'_>,
    green: &Tenant<'_>,
    longer: &Tenant<'_>,
) -> anyhow::Result<()> {
    let theirs = [green.hostname(), longer.hostname()];
    let refused: [(&str, &[&str]); 4] = [
        ("steals", &["web.green.apps.example.test"]),
        ("steals-api", &["green.api.example.test"]),
        ("suffix", &["web.infrared.apps.example.test"]),
        ("bare", &["apps.example.test", "example.test"]),
    ];
    for (name, hostnames) in refused {
        platform.bed.apply(&red.route(name, APPS_GATEWAY, hostnames)).await?;
        wait_refused(platform, "HTTPRoute", &red.namespace(), name, "NoMatchingListenerHostname").await?;
    }
    let confined: [(&str, &[&str]); 3] =
        [("everything", &[]), ("wildcard", &["*.apps.example.test"]), ("domain", &["*.example.test"])];
    for (name, hostnames) in confined {
        platform.bed.apply(&red.route(name, APPS_GATEWAY, hostnames)).await?;
        // It is served, under its own names.
        red.wait_served(APPS_GATEWAY, &format!("{name}.red.apps.{DOMAIN}")).await?;
        let mut names = vec![(DOMAIN, DOMAIN), ("apps.example.test", "apps.example.test")];
        names.extend([
            ("red.apps.example.test", "red.apps.example.test"),
            ("new.apps.example.test", "new.apps.example.test"),
        ]);
        names.extend(theirs.iter().map(|name| (&**name, &**name)));
        // Under its own server name, with another's host.
        let own = red.hostname();
        names.extend(theirs.iter().map(|name| (&*own, &**name)));
        names.extend(theirs.iter().map(|name| (&**name, &*own)));
        red.ensure_not_served(APPS_GATEWAY, &names).await.context(name)?;
        platform.bed.delete(GATEWAY_API, "HTTPRoute", &format!("{}/{name}", red.namespace())).await?;
    }
    Ok(())
}

/// Routes to the API Gateway, and listeners of its own.
async fn foreign_gateways(platform: &Platform, red: &Tenant<'_>) -> anyhow::Result<()> {
    let namespace = red.namespace();
    platform.bed.apply(&red.route("to-api", API_GATEWAY, &["web.red.apps.example.test"])).await?;
    wait_refused(platform, "HTTPRoute", &namespace, "to-api", "NotAllowedByListeners").await?;
    for (name, gateway) in [("tls-to-api", API_GATEWAY), ("tls-to-apps", APPS_GATEWAY)] {
        let route = json!({"apiVersion": GATEWAY_API, "kind": "TLSRoute",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"parentRefs": [{"name": gateway, "namespace": GATEWAYS}], "hostnames": ["green.api.example.test"],
                "rules": [{"backendRefs": [{"name": "web", "port": PORT}]}]}});
        platform.bed.apply(&route.to_string()).await?;
        wait_refused(platform, "TLSRoute", &namespace, name, "NotAllowedByListeners").await?;
    }
    for gateway in [API_GATEWAY, APPS_GATEWAY] {
        let set = json!({"apiVersion": GATEWAY_API, "kind": "ListenerSet",
            "metadata": {"namespace": namespace, "name": gateway},
            "spec": {"parentRef": {"name": gateway, "namespace": GATEWAYS}, "listeners": [
                {"name": "mine", "port": 443, "protocol": "HTTPS", "hostname": "new.apps.example.test",
                    "tls": {"certificateRefs": [{"name": "none"}]}}]}});
        platform.bed.apply(&set.to_string()).await?;
        let refused = |set: &Value| has(set, ("Accepted", "False", "NotAllowed"));
        let name = format!("{namespace}/{gateway}");
        platform.bed.wait_for(GATEWAY_API, "ListenerSet", &name, "is not accepted", refused).await?;
    }
    red.ensure_not_served(APPS_GATEWAY, &[("new.apps.example.test", "new.apps.example.test")]).await?;
    red.ensure_not_served(API_GATEWAY, &[("green.api.example.test", "green.api.example.test")]).await
}

/// The label alone lets no other namespace in.
async fn copied_label(platform: &Platform, red: &Tenant<'_>) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "red-copy", "labels": {"kubespaces.io/tenant": "red"}}});
    platform.bed.apply(&namespace.to_string()).await?;
    platform.bed.apply(&fixtures::service_at("red-copy", "web", PORT, red.host.address())).await?;
    platform
        .bed
        .apply(&Tenant::route_in("red-copy", "copied", APPS_GATEWAY, &["copied.red.apps.example.test"]))
        .await?;
    wait_refused(platform, "HTTPRoute", "red-copy", "copied", "NotAllowedByListeners").await?;
    red.ensure_not_served(APPS_GATEWAY, &[("copied.red.apps.example.test", "copied.red.apps.example.test")]).await
}

async fn app_under_a_tenants_name(platform: &Platform, red: &Tenant<'_>) -> anyhow::Result<()> {
    let team = Team::new(platform, "thief").await?;
    team.apply("web", &red.hostname(), json!({"tls": {}})).await?;
    let loser = team.wait("web", &[("TLSReady", "False", "HostnameConflict"), ("Ready", "False", "Failed")]).await?;
    ensure!(message(&loser, "TLSReady").contains(&red.hostname()), "{loser}");
    Ok(())
}

/// Browsers reuse a connection of HTTP/2 for another host when the certificate covers it.
async fn one_connection_for_two(platform: &Platform, red: &Tenant<'_>, green: &Tenant<'_>) -> anyhow::Result<()> {
    let (own, theirs) = (red.hostname(), green.hostname());
    let to = platform.tenant_gateway(APPS_GATEWAY)?;
    let answers = http2_get(to, &[&own, &theirs], tls::any_certificate()?).await?;
    ensure!(red.is_own(&answers[0]), "{answers:?}");
    ensure!(matches!(answers[1].status, 404 | 421), "the host of another tenant answers {answers:?}");
    Ok(())
}

/// Waits until a route's only parent says no, for this reason.
async fn wait_refused(
    platform: &Platform,
    kind: &str,
    namespace: &str,
    name: &str,
    reason: &str,
) -> anyhow::Result<()> {
    let refused = |route: &Value| {
        let parents = route["status"]["parents"].as_array();
        parents.is_some_and(|parents| parents.iter().any(|parent| has(parent, ("Accepted", "False", reason))))
    };
    platform.bed.wait_for(GATEWAY_API, kind, &format!("{namespace}/{name}"), reason, refused).await?;
    Ok(())
}

async fn namespaces(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    // Somebody else's is not taken.
    bed.apply(&fixtures::namespace("somebodys")).await?;
    bed.apply(&tenant("taker", json!({"targetNamespace": "somebodys"}))).await?;
    let failed = platform.wait_tenant("taker", &[("Ready", "False", "NamespaceFailed")]).await?;
    ensure!(failed["status"]["phase"] == "Failed" && message(&failed, "Ready").contains("somebodys"), "{failed}");
    // Of two that want one, the older gets it.
    bed.apply(&tenant("first", json!({"targetNamespace": "wanted"}))).await?;
    platform.wait_tenant("first", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
    bed.apply(&tenant("second", json!({"targetNamespace": "wanted"}))).await?;
    platform.wait_tenant("second", &[("Ready", "False", "NamespaceFailed")]).await?;
    // A label that somebody alters is repaired.
    for value in ["second", ""] {
        let altered = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "wanted", "labels": {"kubespaces.io/tenant": value}}});
        bed.apply(&altered.to_string()).await?;
        let repaired = |namespace: &Value| namespace["metadata"]["labels"]["kubespaces.io/tenant"] == "first";
        bed.wait_for("v1", "Namespace", "wanted", "has its tenant's label again", repaired).await?;
    }
    // Those of the platform are nobody's.
    bed.apply(&tenant("climber", json!({"targetNamespace": GATEWAYS}))).await?;
    platform.wait_tenant("climber", &[("Ready", "False", "NamespaceFailed")]).await?;
    for name in ["taker", "second", "climber"] {
        bed.delete(TENANTS, "Tenant", name).await?;
        bed.wait_gone(TENANTS, "Tenant", name).await?;
    }
    for name in ["somebodys", "wanted", GATEWAYS] {
        let left = bed.get("v1", "Namespace", name).await?;
        ensure!(left.is_some_and(|left| left["metadata"]["deletionTimestamp"].is_null()), "{name} has gone");
    }
    Ok(())
}

async fn deletion(platform: &Platform) -> anyhow::Result<()> {
    let gone = Tenant::new(platform, "gone").await?;
    gone.publish(APPS_GATEWAY).await?;
    platform.bed.delete(TENANTS, "Tenant", "gone").await?;
    platform.bed.wait_gone(TENANTS, "Tenant", "gone").await?;
    for (version, kind, name) in [
        ("v1", "Namespace", gone.namespace()),
        (GATEWAY_API, "TLSRoute", format!("{GATEWAYS}/tenant-api-gone")),
        ("cert-manager.io/v1", "Certificate", format!("{GATEWAYS}/gone-apps-tls")),
        ("v1", "Secret", format!("{GATEWAYS}/gone-apps-tls")),
    ] {
        platform.bed.wait_gone(version, kind, &name).await?;
    }
    let gateway = platform.bed.get(GATEWAY_API, "Gateway", &format!("{GATEWAYS}/{APPS_GATEWAY}")).await?;
    let gateway = gateway.context("the Gateway stays")?;
    ensure!(!gateway.to_string().contains("t-gone"), "its listener is left: {gateway}");
    ensure!(gateway["spec"]["listeners"][0]["name"] == "http", "the platform's listener stays: {gateway}");
    gone.ensure_not_served(APPS_GATEWAY, &[(&gone.hostname(), &gone.hostname())]).await
}

async fn open_api_gateway(platform: &Platform) -> anyhow::Result<()> {
    let careful = Tenant::new(platform, "careful").await?;
    careful.provision_stub().await?;
    platform.wait_tenant("careful", &[("APIRoutingReady", "True", "RouteAccepted")]).await?;
    platform.bed.apply(&fixtures::tenant_api_gateway(API_GATEWAY, "All")).await?;
    let told = platform.wait_tenant("careful", &[("APIRoutingReady", "False", "GatewayNotIsolated")]).await?;
    let said = message(&told, "APIRoutingReady");
    ensure!(said.contains("apipassthrough") && said.contains("allowedRoutes.namespaces.from"), "{said}");
    platform.bed.apply(&fixtures::tenant_api_gateway(API_GATEWAY, "Same")).await?;
    platform.wait_tenant("careful", &[("APIRoutingReady", "True", "RouteAccepted")]).await?;
    Ok(())
}

pub(crate) async fn settled(operator: &Operator) -> anyhow::Result<()> {
    let mut before = operator.writes().await?;
    eventually("nothing is written for three seconds", WAY, async || {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = operator.writes().await?;
        let written = now - std::mem::replace(&mut before, now);
        ensure!(written == 0, "{written} writes");
        Ok(())
    })
    .await
}
