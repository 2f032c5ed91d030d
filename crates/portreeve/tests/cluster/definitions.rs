//! Kinds whose definitions are not there yet.

use anyhow::ensure;
use portreeve_testkit::{Bed, Channel, fixtures};
use serde_json::{Value, json};

use crate::support::{CERTIFICATES, GATEWAY_API, NEBARI, Operator, Platform, Team, has, message, say};

/// There is no gateway here: what the app has to wait for is only its definitions.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_that_come_late_are_taken_up_without_a_restart() {
    let platform = Platform::bare(Bed::builder()).await.unwrap();
    let bed = &platform.bed;
    let mut operator = Operator::start(bed, "operator", &["--cluster-issuer=selfsigned-issuer"]).unwrap();
    operator.wait_ready().await.unwrap();
    late_definitions(&platform).await.map_err(|error| format!("{error:?}\n{}", operator.log())).unwrap();
    operator.ensure_alive().await.unwrap();
    operator.stop().await.unwrap();
}

async fn late_definitions(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    let team = Team::new(platform, "late").await?;
    let routing = json!({"tls": {}, "tcp": [{"name": "pass", "listener": {"port": 9301},
        "sniHostnames": ["tls.late.example.test"], "service": {"name": "web", "port": 8080}}]});
    team.apply("web", "late.example.test", routing).await?;
    let app =
        team.wait("web", &[("TCPRoutingReady", "False", "GatewayNotFound"), ("Ready", "False", "Failed")]).await?;
    ensure!(message(&app, "TCPRoutingReady").contains("gateways.gateway.networking.k8s.io"), "{app}");

    say("Gateway API without TLSRoute and ListenerSet");
    let late = ["tlsroutes", "listenersets"];
    let standard = Channel::Standard.definitions();
    bed.define(standard, |file| !late.iter().any(|kind| file.contains(kind))).await?;
    bed.apply(&fixtures::namespace("envoy-gateway-system")).await?;
    bed.apply(&fixtures::shared_gateway(true)).await?;
    let app = team.wait("web", &[("TLSReady", "False", "ListenerSetUnsupported")]).await?;
    ensure!(message(&app, "TLSReady").contains("listenersets.gateway.networking.k8s.io"), "{app}");

    say("ListenerSet");
    bed.define(standard, |file| file.contains("listenersets")).await?;
    let app = team.wait("web", &[("TCPRoutingReady", "False", "TLSRouteUnsupported")]).await?;
    ensure!(message(&app, "TCPRoutingReady").contains("tlsroutes.gateway.networking.k8s.io"), "{app}");
    team.must_get(GATEWAY_API, "ListenerSet", "web-listeners").await?;

    say("TLSRoute");
    bed.define(standard, |file| file.contains("tlsroutes")).await?;
    let there = |_: &Value| true;
    bed.wait_for(GATEWAY_API, "TLSRoute", &team.named("web.pass"), "is there", there).await?;
    let app = team.wait("web", &[("TLSReady", "False", "CertificateFailed")]).await?;
    ensure!(message(&app, "TLSReady").contains("certificates.cert-manager.io"), "{app}");

    say("cert-manager");
    bed.define("cert-manager", |_| true).await?;
    bed.wait_for(CERTIFICATES, "Certificate", &team.named("web-late-cert"), "is there", there).await?;
    let taken_up = |app: &Value| !has(app, ("TLSReady", "False", "CertificateFailed"));
    bed.wait_for(NEBARI, "NebariApp", &team.named("web"), "has heard of cert-manager", taken_up).await?;
    Ok(())
}
