//! Apps that want what others have, and parts of the platform that come late or go: each ends in the right state, with a
//! condition that says so and with the traffic that it should have.

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Channel, eventually, fixtures};
use serde_json::{Value, json};

use crate::support::{
    CERTIFICATES, GATEWAY_API, NEBARI, Operator, Platform, TLS_PORT, Team, WAY, issuer, message, side_by_side,
};

/// The ClusterIssuer of apps. It is not there when the operator starts.
const APPS_ISSUER: &str = "apps-issuer";

#[tokio::test(flavor = "multi_thread")]
async fn apps_get_what_is_theirs_whatever_others_do() {
    let platform = Platform::start(Channel::Standard).await.unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", &["--cluster-issuer", APPS_ISSUER]).unwrap();
    operator.wait_ready().await.unwrap();
    let log = || operator.log();
    side_by_side(vec![("a_certificate_comes_late", late_certificate(&platform).boxed_local())], log).await;
    // Also when that scenario was left out.
    platform.bed.apply(&issuer(APPS_ISSUER)).await.unwrap();
    side_by_side(
        vec![
            ("two_apps_want_one_port_alone", one_port_alone(&platform).boxed_local()),
            ("two_apps_share_a_port_by_name", one_port_shared(&platform).boxed_local()),
            ("two_namespaces_want_one_name", one_name(&platform).boxed_local()),
            ("an_edit_takes_no_name_from_who_serves_it", edited_hostname(&platform).boxed_local()),
            ("a_wildcard_covers_the_names_under_it", wildcard(&platform).boxed_local()),
            ("a_secret_is_rotated", rotated_secret(&platform).boxed_local()),
            ("a_namespace_opts_out_and_in_again", opt_out(&platform).boxed_local()),
            ("the_service_goes_and_comes_back", deleted_service(&platform).boxed_local()),
            ("a_route_of_somebody_else_has_the_name", foreign_route(&platform).boxed_local()),
            ("a_listener_set_of_somebody_else_has_the_name", foreign_listener_set(&platform).boxed_local()),
        ],
        log,
    )
    .await;
    let alone = vec![("the_gateway_comes_late_admits_late_and_goes", late_gateway(&platform).boxed_local())];
    side_by_side(alone, log).await;
    operator.stop().await.unwrap();
}

/// The issuer is made only while the app waits for it.
async fn late_certificate(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "late-certificate").await?;
    team.apply("web", "late-certificate.example.test", json!({"tls": {}})).await?;
    team.wait("web", &[("TLSReady", "False", "CertificateNotReady")]).await?;
    ensure!(team.get(CERTIFICATES, "Certificate", "web-late-certificate-cert").await?.is_some());
    platform.bed.apply(&issuer(APPS_ISSUER)).await?;
    team.wait("web", &[("Ready", "True", "ReconcileSuccess"), ("TLSReady", "True", "TLSConfigured")]).await?;
    team.wait_served("late-certificate.example.test").await?;
    Ok(())
}

async fn one_port_alone(platform: &Platform) -> anyhow::Result<()> {
    let (one, other) = (Team::new(platform, "port-one").await?, Team::new(platform, "port-other").await?);
    let routing = || json!({"tls": {}, "tcp": [{"name": "raw", "listener": {"port": 9101}}]});
    one.apply("web", "port-one.example.test", routing()).await?;
    one.wait("web", &[("TCPRoutingReady", "True", "ListenersProgrammed")]).await?;
    other.apply("web", "port-other.example.test", routing()).await?;
    let loser =
        other.wait("web", &[("TCPRoutingReady", "False", "PortConflict"), ("Ready", "False", "Failed")]).await?;
    ensure!(message(&loser, "TCPRoutingReady").contains("9101"), "{loser}");
    // The rest of the app is served all the same.
    other.wait_served("port-other.example.test").await?;
    let set = other.must_get(GATEWAY_API, "ListenerSet", "web-listeners").await?;
    assert_eq!(set["spec"]["listeners"].as_array().map(Vec::len), Some(1), "{set}");
    one.wait("web", &[("TCPRoutingReady", "True", "ListenersProgrammed"), ("Ready", "True", "ReconcileSuccess")])
        .await?;
    one.delete(NEBARI, "NebariApp", "web").await?;
    other
        .wait("web", &[("TCPRoutingReady", "True", "ListenersProgrammed"), ("Ready", "True", "ReconcileSuccess")])
        .await?;
    Ok(())
}

async fn one_port_shared(platform: &Platform) -> anyhow::Result<()> {
    let mut teams = Vec::new();
    for namespace in ["sni-one", "sni-other"] {
        let team = Team::new(platform, namespace).await?;
        let name = format!("tls.{namespace}.example.test");
        let server = team.tls_service(&name).await?;
        let routing = json!({"tls": {}, "tcp": [{"name": "pass", "listener": {"port": 9102}, "sniHostnames": [name],
            "service": {"name": "tls", "port": TLS_PORT}}]});
        team.apply("web", &format!("{namespace}.example.test"), routing).await?;
        teams.push((team, name, server));
    }
    for (team, name, _server) in &teams {
        team.wait("web", &[("TCPRoutingReady", "True", "ListenersProgrammed"), ("Ready", "True", "ReconcileSuccess")])
            .await?;
        team.wait_served_on(9102, name).await?;
    }
    Ok(())
}

async fn one_name(platform: &Platform) -> anyhow::Result<()> {
    let (one, other) = (Team::new(platform, "name-one").await?, Team::new(platform, "name-other").await?);
    let hostname = "one-name.example.test";
    one.apply("web", hostname, json!({"tls": {}})).await?;
    one.wait_ready("web").await?;
    one.wait_served(hostname).await?;
    let lost = [("TLSReady", "False", "HostnameConflict"), ("RoutingReady", "False", "HostnameConflict")];
    one.served_throughout(
        hostname,
        async {
            other.apply("web", hostname, json!({"tls": {}})).await?;
            let loser = other.wait("web", &lost).await?;
            ensure!(message(&loser, "TLSReady").contains(hostname), "{loser}");
            for (kind, name) in [("HTTPRoute", "web-route"), ("ListenerSet", "web-listeners")] {
                assert_eq!(other.get(GATEWAY_API, kind, name).await?, None);
            }
            Ok(())
        }
        .boxed_local(),
    )
    .await?;
    one.wait_ready("web").await?;
    one.delete(NEBARI, "NebariApp", "web").await?;
    other.wait_ready("web").await?;
    other.wait_served(hostname).await?;
    Ok(())
}

/// The app that is edited is the older one.
async fn edited_hostname(platform: &Platform) -> anyhow::Result<()> {
    let (older, younger) = (Team::new(platform, "edit-older").await?, Team::new(platform, "edit-younger").await?);
    let hostname = "edit-younger.example.test";
    older.apply("web", "edit-older.example.test", json!({"tls": {}})).await?;
    older.wait_ready("web").await?;
    younger.apply("web", hostname, json!({"tls": {}})).await?;
    younger.wait_ready("web").await?;
    younger.wait_served(hostname).await?;
    younger
        .served_throughout(
            hostname,
            async {
                older.apply("web", hostname, json!({"tls": {}})).await?;
                older.wait("web", &[("TLSReady", "False", "HostnameConflict"), ("Ready", "False", "Failed")]).await?;
                older.wait_not_served("edit-older.example.test").await?;
                older.apply("web", "edit-older.example.test", json!({"tls": {}})).await?;
                older.wait_ready("web").await?;
                older.wait_served("edit-older.example.test").await?;
                Ok(())
            }
            .boxed_local(),
        )
        .await?;
    younger.wait_ready("web").await?;
    Ok(())
}

async fn wildcard(platform: &Platform) -> anyhow::Result<()> {
    let (one, other) = (Team::new(platform, "wild-one").await?, Team::new(platform, "wild-other").await?);
    let _server = one.tls_service("any.wild.example.test").await?;
    let entry = |name: &str, port: u16| {
        json!({"tls": {}, "tcp": [{"name": "wild", "listener": {"port": port}, "sniHostnames": [name],
            "service": {"name": "tls", "port": TLS_PORT}}]})
    };
    one.apply("web", "wild-one.example.test", entry("*.wild.example.test", 9103)).await?;
    one.wait_ready("web").await?;
    one.wait_served_on(9103, "any.wild.example.test").await?;
    let lost = [("TLSReady", "False", "HostnameConflict"), ("Ready", "False", "Failed")];
    other.apply("under", "app.wild.example.test", json!({"tls": {}})).await?;
    other.wait("under", &lost).await?;
    // The other way round: a wildcard over a name that somebody has.
    other.apply("web", "beside.over.example.test", json!({"tls": {}})).await?;
    other.wait_ready("web").await?;
    one.apply("over", "wild-two.example.test", entry("*.over.example.test", 9104)).await?;
    one.wait("over", &[("TCPRoutingReady", "False", "HostnameConflict")]).await?;
    other.wait_ready("web").await?;
    Ok(())
}

/// It is the shared Gateway itself, so nothing else may run beside this.
async fn late_gateway(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "late-gateway").await?;
    let hostname = "late-gateway.example.test";
    let no_gateway = [("RoutingReady", "False", "GatewayNotFound"), ("Ready", "False", "Failed")];
    platform.bed.delete(GATEWAY_API, "Gateway", "envoy-gateway-system/nebari-gateway").await?;
    team.apply("web", hostname, json!({"tls": {}})).await?;
    team.wait("web", &no_gateway).await?;

    platform.bed.apply(&fixtures::shared_gateway(false)).await?;
    let refused = team.wait("web", &[("TLSReady", "False", "ListenerSetNotAllowed")]).await?;
    for word in ["nebari-gateway", "spec.allowedListeners"] {
        ensure!(message(&refused, "TLSReady").contains(word), "{refused}");
    }
    platform.bed.apply(&fixtures::shared_gateway(true)).await?;
    team.wait_ready("web").await?;
    team.wait_served(hostname).await?;

    platform.bed.delete(GATEWAY_API, "Gateway", "envoy-gateway-system/nebari-gateway").await?;
    team.wait("web", &no_gateway).await?;
    platform.bed.apply(&fixtures::shared_gateway(true)).await?;
    team.wait_ready("web").await?;
    team.wait_served(hostname).await?;
    Ok(())
}

async fn rotated_secret(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "rotated").await?;
    let hostname = "rotated.example.test";
    let (old, new) = (Identity::new(&[hostname])?, Identity::new(&[hostname])?);
    platform.bed.apply(&fixtures::tls_secret("rotated", "mine", &old)).await?;
    team.apply("web", hostname, json!({"tls": {"secretName": "mine"}})).await?;
    let before = team.wait_ready("web").await?;
    let answer = team.wait_served(hostname).await?;
    assert_eq!(answer.certificate.as_ref(), Some(old.certificate()));
    team.served_throughout(
        hostname,
        async {
            platform.bed.apply(&fixtures::tls_secret("rotated", "mine", &new)).await?;
            eventually("the new certificate is served", WAY, async || {
                let answer = platform.https(hostname, "/").await?;
                ensure!(answer.certificate.as_ref() == Some(new.certificate()), "it is the old one");
                Ok(())
            })
            .await
        }
        .boxed_local(),
    )
    .await?;
    assert_eq!(team.wait_ready("web").await?["status"]["conditions"], before["status"]["conditions"]);

    team.delete("v1", "Secret", "mine").await?;
    team.wait("web", &[("TLSReady", "False", "UserProvidedSecretNotFound")]).await?;
    platform.bed.apply(&fixtures::tls_secret("rotated", "mine", &old)).await?;
    team.wait_ready("web").await?;
    Ok(())
}

async fn opt_out(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "opt-out").await?;
    let hostname = "opt-out.example.test";
    team.apply("web", hostname, json!({"tls": {}})).await?;
    team.wait_ready("web").await?;
    team.wait_served(hostname).await?;
    let secret = async || anyhow::Ok(team.must_get("v1", "Secret", "web-opt-out-tls").await?["data"].clone());
    let before = secret().await?;

    platform.bed.apply(&fixtures::namespace("opt-out")).await?;
    team.wait("web", &[("Ready", "False", "NamespaceNotOptedIn")]).await?;
    team.wait_gone(GATEWAY_API, "HTTPRoute", "web-route").await?;
    team.wait_gone(GATEWAY_API, "ListenerSet", "web-listeners").await?;
    team.wait_not_served(hostname).await?;
    team.must_get(CERTIFICATES, "Certificate", "web-opt-out-cert").await?;
    assert_eq!(secret().await?, before);

    platform.bed.apply(&fixtures::opted_in_namespace("opt-out")).await?;
    team.wait_ready("web").await?;
    team.wait_served(hostname).await?;
    assert_eq!(secret().await?, before);
    Ok(())
}

async fn deleted_service(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "no-service").await?;
    let hostname = "no-service.example.test";
    team.apply("web", hostname, json!({"tls": {}})).await?;
    team.wait_ready("web").await?;
    team.wait_served(hostname).await?;
    team.delete("v1", "Service", "web").await?;
    let app = team.wait("web", &[("Ready", "False", "ServiceNotFound")]).await?;
    ensure!(message(&app, "Ready").contains("web"), "{app}");
    team.wait_not_served(hostname).await?;
    // Nothing is taken away that would have to be made again.
    team.must_get(GATEWAY_API, "HTTPRoute", "web-route").await?;
    team.apply_service().await?;
    team.wait_ready("web").await?;
    team.wait_served(hostname).await?;
    Ok(())
}

async fn foreign_route(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "foreign-route").await?;
    let foreign = json!({"apiVersion": GATEWAY_API, "kind": "HTTPRoute",
        "metadata": {"namespace": "foreign-route", "name": "web-route"},
        "spec": {"hostnames": ["by-hand.example.test"]}});
    refuses_to_overwrite(&team, foreign, "RoutingReady").await
}

async fn foreign_listener_set(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "foreign-set").await?;
    let foreign = json!({"apiVersion": GATEWAY_API, "kind": "ListenerSet",
        "metadata": {"namespace": "foreign-set", "name": "web-listeners"},
        "spec": {"parentRef": {"name": "nebari-gateway", "namespace": "envoy-gateway-system"},
            "listeners": [{"name": "by-hand", "port": 9105, "protocol": "HTTP"}]}});
    refuses_to_overwrite(&team, foreign, "TLSReady").await
}

/// An object that somebody else made stays as it is; the app says so, and goes on when it is gone.
async fn refuses_to_overwrite(team: &Team<'_>, foreign: Value, condition: &str) -> anyhow::Result<()> {
    team.platform.bed.apply(&foreign.to_string()).await?;
    let hostname = format!("{}.example.test", team.namespace);
    team.apply("web", &hostname, json!({"tls": {}})).await?;
    let app = team.wait("web", &[(condition, "False", "ForeignObject"), ("Ready", "False", "Failed")]).await?;
    let (kind, name) =
        (foreign["kind"].as_str().context("a kind")?, foreign["metadata"]["name"].as_str().context("a name")?);
    ensure!(message(&app, condition).contains(name), "{app}");
    let there = team.must_get(GATEWAY_API, kind, name).await?;
    assert_eq!(there["metadata"]["generation"], 1, "{there}");
    assert_eq!(there["metadata"]["ownerReferences"], Value::Null, "{there}");
    team.delete(GATEWAY_API, kind, name).await?;
    team.wait_ready("web").await?;
    team.wait_served(&hostname).await?;
    Ok(())
}
