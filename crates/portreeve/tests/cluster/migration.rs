//! Apps move from the former operator's layout to the present one and back, while a client connects ten times a second.
//! traps: 16, 17.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use portreeve_testkit::{Bed, condition, eventually, fixtures, servers, tls};
use serde_json::{Value, json};

use crate::client::{Steady, Target, trusting};
use crate::support::{Operator, Platform as Parts};

const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";
const GATEWAY: &str = "envoy-gateway-system/nebari-gateway";
const NAME: &str = "web.example.com";
/// What the former operator called the app's listener.
const SECTION: &str = "tls-web-shop";

/// A whole move takes seconds on an idle machine.
const LONG: Duration = Duration::from_mins(3);

/// An authority that cert-manager has made itself.
const ISSUERS: &str = r"
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: bootstrap}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: authority, namespace: cert-manager}
spec:
  isCA: true
  commonName: test authority
  secretName: authority
  issuerRef: {name: bootstrap, kind: ClusterIssuer}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: platform}
spec: {ca: {secretName: authority}}
";

/// What tells the version of Envoy Gateway where its Helm chart has installed it.
const ENVOY_GATEWAY: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: envoy-gateway
  namespace: envoy-gateway-system
  labels: {app.kubernetes.io/name: gateway-helm, app.kubernetes.io/version: v1.9.1, control-plane: envoy-gateway}
spec:
  replicas: 0
  selector: {matchLabels: {control-plane: envoy-gateway}}
  template:
    metadata: {labels: {control-plane: envoy-gateway}}
    spec: {containers: [{name: envoy-gateway, image: "envoyproxy/gateway:v1.9.1"}]}
"#;

/// What the former operator leaves behind in the Gateway's namespace.
const FORMER_CERTIFICATE: &str = r"
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: web-shop-cert
  namespace: envoy-gateway-system
  labels:
    app.kubernetes.io/managed-by: nebari-operator
    nebari.dev/nebariapp-name: web
    nebari.dev/nebariapp-namespace: shop
spec:
  secretName: web-shop-tls
  dnsNames: [web.example.com]
  issuerRef: {group: cert-manager.io, name: platform, kind: ClusterIssuer}
";

/// Where the app's certificate comes from.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// cert-manager, by the former operator's Certificate.
    Issuer,
    /// The app names its Secret.
    Secret,
}

/// A platform with one app, as the former operator has left it.
struct Platform {
    bed: Bed,
    _backend: servers::Server,
    client: Steady,
    target: Target,
}

impl Platform {
    async fn former(source: Source) -> Self {
        let parts = Bed::builder().with_controller_manager().with_envoy_gateway();
        let parts = if source == Source::Issuer { parts.with_cert_manager() } else { parts };
        let bed = Parts::bare(parts).await.unwrap().bed;
        bed.apply(ENVOY_GATEWAY).await.unwrap();
        let identity = tls::Identity::new(&["*.example.com"]).unwrap();
        bed.apply(&fixtures::tls_secret("envoy-gateway-system", "nebari-gateway-tls", &identity)).await.unwrap();
        bed.apply(&fixtures::shared_gateway(true)).await.unwrap();
        bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[80, 443]).await.unwrap();
        bed.apply(&fixtures::opted_in_namespace("shop")).await.unwrap();
        let host = bed.host("backend").unwrap();
        let backend = servers::echo(&host, 8000, "web").unwrap();
        bed.apply(&fixtures::service_at("shop", "web", 8000, host.address())).await.unwrap();
        let authority = match source {
            Source::Issuer => issue(&bed).await,
            Source::Secret => {
                let own = tls::Identity::new(&[NAME]).unwrap();
                for namespace in ["envoy-gateway-system", "shop"] {
                    bed.apply(&fixtures::tls_secret(namespace, "web-shop-tls", &own)).await.unwrap();
                }
                own.certificate_pem()
            }
        };
        add_entry(&bed).await;
        bed.apply(&app(source)).await.unwrap();
        let app = bed.get("reconcilers.nebari.dev/v1", "NebariApp", "shop/web").await.unwrap().unwrap();
        bed.apply(&former_route(&app)).await.unwrap();
        let target = Target {
            from: bed.host("client").unwrap(),
            to: bed.gateway_address(443).unwrap(),
            name: NAME.to_owned(),
            trusts: trusting(authority.as_bytes()).unwrap(),
        };
        eventually("the former layout serves", LONG, async || target.get().await).await.unwrap();
        let client = target.steadily();
        Self { bed, _backend: backend, client, target }
    }

    async fn wait_for_tls(&self, reason: &str) -> Value {
        let what = format!("TLSReady is {reason}");
        let told = eventually(&what, LONG, async || {
            let app = self.bed.get("reconcilers.nebari.dev/v1", "NebariApp", "shop/web").await?.unwrap_or_default();
            let conditions = app["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|condition| condition["type"] == "TLSReady").unwrap_or_default();
            anyhow::ensure!(found["reason"] == reason, "it is {found}");
            Ok(found)
        });
        told.await.unwrap()
    }

    async fn has_entry(&self) -> bool {
        let gateway = self.bed.get(GATEWAY_API, "Gateway", GATEWAY).await.unwrap().unwrap();
        gateway["spec"]["listeners"].as_array().unwrap().iter().any(|listener| listener["name"] == SECTION)
    }

    /// The app is on its own listener only.
    async fn assert_moved(&self) {
        assert!(!self.has_entry().await, "the former entry is there");
        let moved = |route: &Value| {
            let parents = route["spec"]["parentRefs"].as_array().unwrap();
            parents.len() == 1 && parents[0]["kind"] == "ListenerSet"
        };
        self.bed.wait_for(GATEWAY_API, "HTTPRoute", "shop/web-route", "has one parent", moved).await.unwrap();
    }

    async fn assert_certificate_moved(&self) {
        let certificate = "envoy-gateway-system/web-shop-cert";
        self.bed.wait_gone("cert-manager.io/v1", "Certificate", certificate).await.unwrap();
        let [new, old] = [self.certificate("shop").await, self.certificate("envoy-gateway-system").await];
        assert_eq!(new, old, "cert-manager issued again instead of taking over");
    }

    async fn certificate(&self, namespace: &str) -> Value {
        let secret = self.bed.get("v1", "Secret", &format!("{namespace}/web-shop-tls")).await.unwrap().unwrap();
        secret["data"]["tls.crt"].clone()
    }

    /// Lets the client go on for some seconds.
    async fn go_on(&self) {
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// The way there with the operator killed twice on it, and the way back.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_moves_and_comes_back_and_its_clients_do_not_notice_the_move() {
    let platform = Platform::former(Source::Issuer).await;
    let bed = &platform.bed;
    let off = ["--cluster-issuer=platform", "--migrate-legacy-listeners=off"];
    let on = ["--cluster-issuer=platform", "--migrate-legacy-listeners"];

    let operator = Operator::start(bed, "off", &off).unwrap();
    let told = platform.wait_for_tls("LegacyListener").await;
    assert_eq!(told["status"], "True", "{told}");
    assert!(bed.get(GATEWAY_API, "ListenerSet", "shop/web-listeners").await.unwrap().is_none());
    drop(operator);

    // A crash once the first thing is written, and one once the route has both parents.
    let operator = Operator::start(bed, "first", &on).unwrap();
    bed.wait_for("v1", "Secret", "shop/web-shop-tls", "is copied", |_| true).await.unwrap();
    drop(operator);
    let operator = Operator::start(bed, "second", &on).unwrap();
    let attached = |route: &Value| {
        route["spec"]["parentRefs"].as_array().unwrap().iter().any(|parent| parent["kind"] == "ListenerSet")
    };
    bed.wait_for(GATEWAY_API, "HTTPRoute", "shop/web-route", "has the new parent", attached).await.unwrap();
    drop(operator);
    platform.go_on().await;
    let operator = Operator::start(bed, "third", &on).unwrap();
    platform.wait_for_tls("TLSConfigured").await;
    platform.assert_moved().await;
    platform.assert_certificate_moved().await;
    platform.go_on().await;
    platform.client.assert_served(40);
    drop(operator);

    // Back. Until the route is at the entry again it answers 404 or 503, as docs/migration.md says.
    let operator = Operator::start(bed, "back", &off).unwrap();
    platform.wait_for_tls("TLSConfigured").await;
    platform.client.assert_served(40);
    platform.client.forget();
    add_entry(bed).await;
    platform.wait_for_tls("LegacyListener").await;
    bed.wait_gone(GATEWAY_API, "ListenerSet", "shop/web-listeners").await.unwrap();
    for (at, what) in platform.client.account().bad {
        assert!(what.contains("404") || what.contains("503"), "{:.1} s: {what}", at.as_secs_f64());
    }
    eventually("the entry serves", LONG, async || platform.target.get().await).await.unwrap();
    platform.client.forget();
    platform.go_on().await;
    platform.client.assert_served(20);
    drop(operator);
}

/// The user has put the Secret into the app's namespace.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_with_a_secret_of_its_own_moves_and_its_clients_do_not_notice() {
    let platform = Platform::former(Source::Secret).await;
    let operator = Operator::start(&platform.bed, "operator", &["--migrate-legacy-listeners"]).unwrap();
    platform.wait_for_tls("UserProvidedSecretReady").await;
    platform.assert_moved().await;
    platform.go_on().await;
    platform.client.assert_served(30);
    drop(operator);
}

/// Has cert-manager issue what the former operator had it issue; returns the authority.
async fn issue(bed: &Bed) -> String {
    bed.apply(ISSUERS).await.unwrap();
    bed.apply(FORMER_CERTIFICATE).await.unwrap();
    let ready = |object: &Value| condition(object, "Ready") == Some("True");
    let certificate = "envoy-gateway-system/web-shop-cert";
    bed.wait_for("cert-manager.io/v1", "Certificate", certificate, "is ready", ready).await.unwrap();
    let secret = bed.get("v1", "Secret", "cert-manager/authority").await.unwrap().unwrap();
    let secret: k8s_openapi::api::core::v1::Secret = serde_json::from_value(secret).unwrap();
    String::from_utf8(secret.data.unwrap()["ca.crt"].0.clone()).unwrap()
}

fn app(source: Source) -> String {
    let routing = if source == Source::Secret { json!({"tls": {"secretName": "web-shop-tls"}}) } else { json!({}) };
    json!({
        "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp",
        "metadata": {"name": "web", "namespace": "shop", "finalizers": ["nebari.dev/cleanup"]},
        "spec": {"hostname": NAME, "service": {"name": "web", "port": 8000}, "routing": routing},
    })
    .to_string()
}

/// Puts the former operator's entry at the end of the Gateway's listeners, as one who updates the whole object does.
async fn add_entry(bed: &Bed) {
    add_former_entry(bed, SECTION, NAME, ("shop", "web-shop-tls")).await.unwrap();
}

/// Puts an entry of the former operator on the shared Gateway, for the app of a namespace, with a Secret of the Gateway's.
pub(crate) async fn add_former_entry(
    bed: &Bed,
    section: &str,
    name: &str,
    (namespace, secret): (&str, &str),
) -> anyhow::Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway"));
    let gateways: Api<DynamicObject> = Api::namespaced_with(bed.client(), "envoy-gateway-system", &resource);
    let gateway = gateways.get("nebari-gateway").await?;
    let mut listeners = gateway.data["spec"]["listeners"].as_array().cloned().unwrap_or_default();
    listeners.push(json!({
        "name": section, "hostname": name, "port": 443, "protocol": "HTTPS",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": secret, "namespace": "envoy-gateway-system"}]},
        "allowedRoutes": {"namespaces": {"from": "Selector",
            "selector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}},
    }));
    let patch = Patch::Merge(json!({"spec": {"listeners": listeners}}));
    gateways.patch("nebari-gateway", &PatchParams::default(), &patch).await?;
    Ok(())
}

fn former_route(app: &Value) -> String {
    json!({
        "apiVersion": GATEWAY_API, "kind": "HTTPRoute",
        "metadata": {
            "name": "web-route", "namespace": "shop", "annotations": {"nebari.dev/tls-enabled": "true"},
            "labels": {"app.kubernetes.io/name": "nebariapp", "app.kubernetes.io/instance": "web",
                "app.kubernetes.io/managed-by": "nebari-operator"},
            "ownerReferences": [{"apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp", "name": "web",
                "uid": app["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "hostnames": [NAME],
            "parentRefs": [{"name": "nebari-gateway", "namespace": "envoy-gateway-system", "sectionName": SECTION}],
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"name": "web", "port": 8000}]}],
        },
    })
    .to_string()
}
