//! What `portreeve doctor` says about worlds that are not as apps need them.

use portreeve_plan::Severity::{Advised, Required};
use portreeve_plan::{Advice, Severity, examine};

use crate::support::Cluster;

const READY: &str = include_str!("../../cases/migration-1-copy/in.yaml");

/// One line for each advice, without what to paste.
fn lines(found: &[Advice]) -> Vec<String> {
    let line =
        |advice: &Advice| format!("{:?} {}: {} -> {}", advice.severity, advice.subject, advice.finding, advice.action);
    found.iter().map(line).collect()
}

fn examined(yaml: &str) -> Vec<Advice> {
    examine(&Cluster::read(yaml).world())
}

/// nebariapp A.9: the platform's Gateway as it is installed today, before anything of ours is.
const PLATFORM: &str = "
kind: Case
clusterIssuer: letsencrypt
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: nebari-gateway, namespace: envoy-gateway-system}
spec:
  gatewayClassName: envoy-gateway
  listeners:
  - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
  - {name: https, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}, tls: {mode: Terminate, certificateRefs: [{name: nebari-gateway-tls}]}}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: letsencrypt}
spec: {acme: {solvers: [{http01: {gatewayHTTPRoute: {parentRefs: [{name: nebari-gateway}]}}}]}}
";

#[test]
fn the_platform_as_it_is_installed_needs_two_things_and_could_be_safer() {
    let found = examined(PLATFORM);
    let open = |listener: &str| {
        format!(
            "Advised Gateway envoy-gateway-system/nebari-gateway: listener {listener} has no host name and takes routes of \
         all namespaces: whoever may create an HTTPRoute anywhere can claim any name there that nobody else has -> let \
         its allowedRoutes.namespaces select nebari.dev/managed=true"
        )
    };
    assert_eq!(lines(&found), [
        "Required ClusterIssuer letsencrypt: its HTTP-01 solver names Gateway nebari-gateway without a namespace: it is \
         sought in each app's own -> set namespace on spec.acme.solvers[].http01.gatewayHTTPRoute.parentRefs, for \
         example envoy-gateway-system".to_owned(),
        "Required Gateway envoy-gateway-system/nebari-gateway: it does not \
         admit ListenerSets of namespaces that are opted in -> set spec.allowedListeners.namespaces on it, for example \
         {from: Selector, selector: {matchLabels: {nebari.dev/managed: \"true\"}}}".to_owned(),
        open("http"),
        open("https"),
    ]);
}

/// What it says to paste is what it asks for.
#[test]
fn whoever_pastes_its_yaml_hears_no_more_of_it() {
    let created = examined("{kind: Case}").remove(0).yaml.unwrap();
    assert_eq!(examined(&format!("{{kind: Case}}\n---\n{created}")), []);
    let closed = examined(PLATFORM).into_iter().find(|advice| advice.yaml.is_some()).unwrap().yaml.unwrap();
    let closed: serde_json::Value = serde_saphyr::from_str(&closed).unwrap();
    let mut cluster = Cluster::read(PLATFORM);
    let name = ["Gateway", "envoy-gateway-system", "nebari-gateway"].map(str::to_owned).into();
    let mut gateway = cluster.objects[&name].clone();
    gateway["spec"]["allowedListeners"] = closed["spec"]["allowedListeners"].clone();
    cluster.edit(&gateway);
    let left = examine(&cluster.world());
    assert!(left.iter().all(|advice| advice.yaml.is_none()), "{left:?}");
}

#[test]
fn namespaces_that_a_gateway_does_not_admit_are_named() {
    let namespaces = ["shop", "team"].map(|name| {
        format!("\n---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{nebari.dev/managed: \"true\"}}}}")
    });
    let found = examined(&format!("{PLATFORM}{}", namespaces.concat()));
    let closed = found.iter().find(|advice| advice.yaml.is_some()).unwrap();
    assert_eq!(closed.finding, "it does not admit ListenerSets of namespaces shop, team");
}

#[test]
fn what_the_former_operator_left_is_advised_and_an_old_envoy_gateway_required_for_the_move() {
    let old = READY.replace("envoyGateway: 1.9.1", "envoyGateway: 1.8.0");
    let found = lines(&examined(&old));
    assert!(found[0].starts_with("Required Envoy Gateway: version 1.8.0 drops the routes"), "{found:?}");
    let found = lines(&examined(&old.replace("migrate: 'on'", "migrate: 'off'")));
    assert!(found.iter().any(|line| line.starts_with("Advised Envoy Gateway: version 1.8.0")), "{found:?}");
    let legacy = "it has listeners of the former operator: tls-web-shop -> they go on serving; to move their apps, set \
                  --migrate-legacy-listeners";
    assert!(found.iter().any(|line| line.starts_with("Advised") && line.contains(legacy)), "{found:?}");
    assert!(examined(READY).iter().all(|advice| advice.severity == Severity::Advised));
}

#[test]
fn a_cluster_without_anything_is_told_what_to_install() {
    let found = examined(
        "{kind: Case, clusterIssuer: x, without: [Gateway, HTTPRoute, ListenerSet, TLSRoute, ReferenceGrant, Certificate]}",
    );
    let subjects: Vec<_> = found.iter().map(|advice| (advice.severity, advice.subject.as_str())).collect();
    assert_eq!(
        subjects,
        [
            (Required, "Certificate"),
            (Required, "Gateway"),
            (Required, "HTTPRoute"),
            (Required, "ListenerSet"),
            (Advised, "ReferenceGrant"),
            (Advised, "TLSRoute"),
        ]
    );
    assert_eq!(found[0].action, "install cert-manager");
    assert_eq!(found[1].finding, "the cluster lacks the CRD gateways.gateway.networking.k8s.io");
}

/// nebariapp A.12 (7)
#[test]
fn apps_that_will_let_fewer_in_are_named_before_they_are_taken_over() {
    let app = |name: &str, auth: &str, status: &str| {
        format!(
            "---\napiVersion: reconcilers.nebari.dev/v1\nkind: NebariApp\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n  \
             hostname: {name}.example.com\n  service: {{name: web, port: 80}}\n  auth: {{enabled: true, {auth}}}\n{status}"
        )
    };
    let former = "status: {authConfigHash: aa}\n";
    let made = "status: {authConfigHash: aa, authClientsHash: bb}\n";
    let world = |login: &str| {
        let apps = [
            app("former", "groups: [staff]", former),
            app("ours", "groups: [staff]", made),
            app("everybody", "provider: keycloak", former),
            app("by-itself", "groups: [staff], enforceAtGateway: false", former),
            app("generic", "groups: [staff], provider: generic-oidc, provisionClient: false", ""),
        ];
        format!("kind: Case\nlogin: {login}\n{}", apps.concat())
    };
    let found = examined(&world("{}"));
    let told: Vec<_> = lines(&found).into_iter().filter(|line| line.contains(" sign-in: ")).collect();
    assert_eq!(
        told,
        [
            "Required sign-in: apps with provider generic-oidc name auth.groups, which the gateway cannot tell there, and are \
         not served: shop/generic -> drop auth.groups of these apps, or set --auth-groups=ignore",
            "Advised sign-in: apps of the former operator name auth.groups, which it did not enforce; now only members get in: \
         shop/former -> see that the groups have the right members, or set --auth-groups=ignore",
        ]
    );
    assert!(lines(&examined(&world("{ignoreGroups: true}"))).iter().all(|line| !line.contains(" sign-in: ")));
}
