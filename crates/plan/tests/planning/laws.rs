//! The laws of the design, on worlds that nobody thought of: apps and tenants with few names and ports, so that they
//! often meet; then every one of them changes its mind.

use crate::support::{Cluster, lawful_plan, settle};
use proptest::prelude::*;
use serde_json::{Value, json};

const PLATFORM: &str = r"
kind: Case
provisioner: helm oci://charts.test/vcluster 0.35.2
tenantApi: {gateway: kubespaces-system/api, domain: t.test}
tenantApps: {gateway: envoy-gateway-system/nebari-gateway, domain: t.test, clusterIssuer: issuer}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {name: nebari-gateway, namespace: envoy-gateway-system}
spec:
  gatewayClassName: any
  allowedListeners: {namespaces: {from: All}}
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {name: api, namespace: kubespaces-system}
spec:
  gatewayClassName: any
  listeners: [{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}]
";

fn pick(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(of).prop_map(str::to_owned)
}

fn hostname() -> impl Strategy<Value = String> {
    pick(&["a.test", "b.test", "x.b.test", "web.ten.apps.t.test", "ten.api.t.test"])
}

fn entry() -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        2 => Just(json!([])),
        1 => Just(json!(["pre-*"])),
        4 => prop::collection::vec(pick(&["a.test", "*.test", "*.b.test", "*.ten.apps.t.test", "b.test"]), 1..3)
            .prop_map(|names| json!(names)),
    ];
    let port = prop::sample::select(vec![443, 8786, 9000]);
    let service = prop_oneof![
        3 => Just(Value::Null),
        3 => Just(json!({ "name": "svc", "port": 8000 })),
        1 => pick(&["n1", "n2"]).prop_map(|other| json!({ "name": "svc", "port": 8000, "namespace": other })),
    ];
    let imports = pick(&["None", "TraefikIngressRouteTCP"]);
    (names, port, service, imports, clients()).prop_map(|(names, port, service, imports, clients)| {
        let mut entry = json!({ "listener": { "port": port }, "sniHostnames": names, "clients": clients });
        if service.is_null() {
            entry["routeImport"] = imports.into();
        } else {
            entry["service"] = service;
        }
        entry
    })
}

fn clients() -> impl Strategy<Value = Value> {
    let namespaces = json!({ "matchExpressions": [
        { "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["n1", "closed"] },
    ] });
    prop_oneof![
        2 => Just(json!([])),
        1 => Just(json!([{}])),
        2 => selector().prop_map(|pods| json!([{ "podSelector": pods }])),
        1 => selector().prop_map(move |pods| json!([{ "podSelector": pods, "namespaceSelector": namespaces }])),
    ]
}

/// Of pods, by two labels.
fn selector() -> impl Strategy<Value = Value> {
    let expression = |operator: &str, values: Value| json!({ "key": "b", "operator": operator, "values": values });
    prop_oneof![
        Just(json!({})),
        Just(json!({ "matchLabels": { "a": "1" } })),
        Just(json!({ "matchLabels": { "a": "2", "b": "1" } })),
        Just(json!({ "matchExpressions": [expression("NotIn", json!(["1"]))] })),
        Just(json!({ "matchLabels": { "a": "1" }, "matchExpressions": [expression("Exists", json!([]))] })),
    ]
}

/// A policy of others.
fn policy() -> impl Strategy<Value = (String, Value)> {
    let types = prop_oneof![
        Just(json!({ "policyTypes": ["Egress"] })),
        Just(json!({ "policyTypes": ["Ingress"] })),
        Just(json!({ "policyTypes": ["Ingress", "Egress"] })),
        Just(json!({})),
        Just(json!({ "egress": [{ "ports": [{ "port": 53 }] }] })),
    ];
    (pick(&["n1", "n2", "closed"]), selector(), types).prop_map(|(namespace, pods, mut spec)| {
        spec["podSelector"] = pods;
        (namespace, spec)
    })
}

/// An IngressRouteTCP: its namespace and its spec.
fn ingress_route() -> impl Strategy<Value = (String, Value)> {
    let rule = pick(&["HostSNI(`a.test`)", "HostSNI(`pre-1`)", "HostSNI(`x.b.test`)", "HostSNI(`*`)"]);
    let service = (pick(&["svc", "svc", "gone"]), pick(&["n1", "n2"]))
        .prop_map(|(name, namespace)| json!({ "name": name, "namespace": namespace, "port": 8000 }));
    let rules = prop::collection::vec((rule, service), 1..3);
    (pick(&["n1", "n2"]), rules, prop::bool::weighted(0.9)).prop_map(|(namespace, rules, passthrough)| {
        let rules: Vec<Value> =
            rules.into_iter().map(|(rule, service)| json!({ "match": rule, "services": [service] })).collect();
        (namespace, json!({ "routes": rules, "tls": { "passthrough": passthrough } }))
    })
}

fn routing() -> impl Strategy<Value = Value> {
    let tls = prop_oneof![Just(json!({})), Just(json!({ "enabled": false })), Just(json!({ "secretName": "own" })),];
    let management = pick(&["Operator", "Operator", "App"]);
    let annotations = prop_oneof![Just(json!({})), Just(json!({ "a": "1" })), Just(json!({ "b": "2" }))];
    let public = prop_oneof![Just(json!([])), Just(json!([{ "pathPrefix": "/open" }]))];
    (tls, management, annotations, public, prop::collection::vec(entry(), 0..3)).prop_map(
        |(tls, management, annotations, public, mut entries)| {
            for (place, entry) in entries.iter_mut().enumerate() {
                entry["name"] = format!("e{place}").into();
            }
            json!({
                "tls": tls, "routeManagement": management, "annotations": annotations, "publicRoutes": public,
                "tcp": entries,
            })
        },
    )
}

/// What an app may ask for, and change later.
fn app_spec() -> impl Strategy<Value = Value> {
    let auth = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({ "enabled": true })),
        1 => Just(json!({ "enabled": true, "enforceAtGateway": false })),
    ];
    (hostname(), prop::option::weighted(0.9, routing()), auth).prop_map(|(hostname, routing, auth)| {
        let mut spec = json!({ "hostname": hostname, "service": { "name": "svc", "port": 8000 }, "auth": auth });
        if let Some(routing) = routing {
            spec["routing"] = routing;
        }
        spec
    })
}

fn identity() -> impl Strategy<Value = Identity> {
    (pick(&["n1", "n2"]), pick(&["x", "x-public", "y"]), prop::option::of(0..3_u8))
}

/// Namespace, name and age of an app; name, namespace and age of a tenant.
type Identity = (String, String, Option<u8>);

#[derive(Clone, Debug)]
struct Scene {
    /// Each with what it asks for first, and then; `None`: it goes.
    apps: Vec<(Identity, Value, Option<Value>)>,
    tenants: Vec<Identity>,
    /// Objects of others under names that Portreeve would give.
    strangers: Vec<Value>,
    opted_in: [bool; 2],
    /// Each by its namespace and spec. They go when the apps change their minds, if `objects_go`.
    network_policies: Vec<(String, Value)>,
    ingress_routes: Vec<(String, Value)>,
    objects_go: bool,
    /// Whether the Services consent to routes of both namespaces.
    consent: bool,
    policy: bool,
    issuer: bool,
}

fn scene() -> impl Strategy<Value = Scene> {
    let app = (identity(), app_spec(), prop::option::weighted(0.8, app_spec()), prop::bool::weighted(0.3));
    let app = app.prop_map(|(identity, spec, later, moves)| {
        let later = if moves { Some(with_ports_swapped(&spec)) } else { later };
        (identity, spec, later)
    });
    let tenant = (pick(&["ten", "b.ten", "other"]), pick(&["", "shared-ns", "n1"]), prop::option::of(0..3_u8));
    let opted_in = prop::array::uniform2(prop::bool::weighted(0.9));
    let strangers = prop_oneof![2 => Just(Vec::new()), 1 => prop::sample::subsequence(strangers(), 1..4)];
    let owners = (prop::collection::vec(app, 0..5), prop::collection::vec(tenant, 0..3));
    let around = (prop::collection::vec(policy(), 0..4), prop::collection::vec(ingress_route(), 0..3));
    (owners, around, strangers, opted_in, any::<[bool; 4]>()).prop_map(
        |((apps, tenants), (network_policies, ingress_routes), strangers, opted_in, switches)| {
            let [objects_go, consent, policy, issuer] = switches;
            Scene {
                apps,
                tenants,
                strangers,
                opted_in,
                network_policies,
                ingress_routes,
                objects_go,
                consent,
                policy,
                issuer,
            }
        },
    )
}

/// The same listeners by name, each changed: what the gateway said of them says nothing now.
fn with_ports_swapped(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for entry in spec.pointer_mut("/routing/tcp").and_then(Value::as_array_mut).into_iter().flatten() {
        let port = &mut entry["listener"]["port"];
        *port = if *port == 8786 { 9000.into() } else { 8786.into() };
    }
    spec
}

/// One of each kind that Portreeve makes, in places where apps and tenants want theirs.
fn strangers() -> Vec<Value> {
    let gateway = json!({ "name": "nebari-gateway", "namespace": "envoy-gateway-system" });
    let set = json!({ "parentRef": gateway, "listeners": [{ "name": "web", "port": 9999, "protocol": "HTTP" }] });
    let http = json!({ "parentRefs": [gateway], "hostnames": ["a.test"] });
    let tls = json!({ "parentRefs": [gateway], "hostnames": ["a.test"], "rules": [] });
    let certificate =
        json!({ "secretName": "s", "dnsNames": ["a.test"], "issuerRef": { "kind": "Issuer", "name": "i" } });
    let grant = json!({
        "from": [{ "group": "gateway.networking.k8s.io", "kind": "TLSRoute", "namespace": "elsewhere" }],
        "to": [{ "group": "", "kind": "Service" }],
    });
    let objects = [
        ("HTTPRoute", "n1", "x-route", &http),
        ("HTTPRoute", "n1", "x-public-route", &http),
        ("HTTPRoute", "n2", "y-route", &http),
        ("TLSRoute", "n1", "x.e0", &tls),
        ("ListenerSet", "n1", "x-listeners", &set),
        ("ListenerSet", "n2", "y-listeners", &set),
        ("Certificate", "n1", "x-n1-cert", &certificate),
        ("ReferenceGrant", "kubespaces-tenant-ten", "kubespaces-tenant-api", &grant),
        ("TLSRoute", "kubespaces-system", "tenant-api-ten", &tls),
        ("Certificate", "envoy-gateway-system", "ten-apps-tls", &certificate),
    ];
    let object = |(kind, namespace, name, spec): (&str, &str, &str, &Value)| {
        let group = if kind == "Certificate" { "cert-manager.io" } else { "gateway.networking.k8s.io" };
        let metadata = json!({ "name": name, "namespace": namespace });
        json!({ "kind": kind, "apiVersion": format!("{group}/v1"), "metadata": metadata, "spec": spec })
    };
    objects.into_iter().map(object).collect()
}

fn with_age(mut object: Value, age: Option<u8>) -> Value {
    if let Some(age) = age {
        object["metadata"]["creationTimestamp"] = format!("2026-01-0{}T00:00:00Z", age + 1).into();
    }
    object
}

impl Scene {
    fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::read(PLATFORM);
        cluster.set_issuer(self.issuer.then_some("issuer"));
        let consent = if self.consent { json!({ "nebari.dev/allow-from": "n1, n2" }) } else { json!({}) };
        cluster.author(json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "closed" } }));
        for object in self.objects_around() {
            cluster.author(object);
        }
        for (namespace, opted_in) in ["n1", "n2"].into_iter().zip(self.opted_in) {
            let labels = if opted_in { json!({ "nebari.dev/managed": "true" }) } else { json!({}) };
            cluster.author(
                json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": namespace, "labels": labels } }),
            );
            cluster.author(json!({
                "kind": "Service", "apiVersion": "v1",
                "metadata": { "name": "svc", "namespace": namespace, "annotations": consent },
                "spec": { "ports": [{ "port": 8000 }], "selector": { "a": "1" } },
            }));
            if self.policy {
                cluster.author(json!({
                    "kind": "SecurityPolicy", "apiVersion": "gateway.envoyproxy.io/v1alpha1",
                    "metadata": { "name": "policy", "namespace": namespace },
                    "spec": {
                        "oidc": {},
                        "targetRefs": [{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "x-route" }],
                    },
                }));
            }
        }
        for stranger in &self.strangers {
            cluster.author(stranger.clone());
        }
        for (identity, spec, _) in &self.apps {
            cluster.author(app(identity, spec));
        }
        for (name, namespace, age) in &self.tenants {
            let mut tenant = json!({
                "kind": "Tenant", "apiVersion": "kubespaces.io/v1alpha1",
                "metadata": { "name": name }, "spec": { "owner": "jo" },
            });
            if !namespace.is_empty() {
                tenant["spec"]["targetNamespace"] = namespace.as_str().into();
            }
            cluster.author(with_age(tenant, *age));
        }
        cluster
    }

    fn objects_around(&self) -> impl Iterator<Item = Value> {
        let policies = self.network_policies.iter().map(|policy| ("NetworkPolicy", "networking.k8s.io/v1", policy));
        let routes = self.ingress_routes.iter().map(|route| ("IngressRouteTCP", "traefik.io/v1alpha1", route));
        policies.chain(routes).enumerate().map(|(place, (kind, api_version, (namespace, spec)))| {
            let metadata = json!({ "name": format!("around-{place}"), "namespace": namespace });
            json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata, "spec": spec })
        })
    }

    /// Every app gets its second spec, or goes; so may what is around them.
    fn change(&self, cluster: &mut Cluster) {
        for object in self.objects_around().filter(|_| self.objects_go) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = &object["metadata"];
            cluster.withdraw(&text(&object["kind"]), &text(&metadata["namespace"]), &text(&metadata["name"]));
        }
        for (identity, _, later) in &self.apps {
            match later {
                Some(spec) => cluster.edit(&app(identity, spec)),
                None => cluster.withdraw("NebariApp", &identity.0, &identity.1),
            }
        }
    }
}

fn app((namespace, name, age): &Identity, spec: &Value) -> Value {
    let app = json!({
        "kind": "NebariApp", "apiVersion": "reconcilers.nebari.dev/v1",
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    });
    with_age(app, *age)
}

/// So many cases, unless `PROPTEST_CASES` says otherwise.
fn usually(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

proptest! {
    #![proptest_config(usually(128))]

    /// Each plan on the way is lawful; each leads to a world in which nothing is left to do.
    #[test]
    fn every_world_settles(scene in scene(), signs_in: bool) {
        let mut cluster = scene.cluster();
        if signs_in {
            cluster.offer_sign_in();
        }
        settle(&mut cluster);
        cluster.answer();
        settle(&mut cluster);
        scene.change(&mut cluster);
        settle(&mut cluster);
        cluster.answer();
        settle(&mut cluster);
        let plan = lawful_plan(&cluster.world());
        prop_assert!(plan.is_empty());
    }

    /// What was made earlier leaves no trace: after a change the world has what a planner would make that had never
    /// seen it otherwise, with the same records of who holds what.
    #[test]
    fn no_trace_is_left_of_what_was_wanted_before(mut scene in scene()) {
        // The public route of x and the main one of x-public have one name: whose object is there keeps it.
        scene.apps.retain(|((_, name, _), ..)| name != "x-public");
        let mut cluster = scene.cluster();
        settle(&mut cluster);
        scene.change(&mut cluster);
        settle(&mut cluster);
        let mut fresh = cluster.forget_what_was_made();
        settle(&mut fresh);
        prop_assert_eq!(cluster.essence(), fresh.essence());
    }

    /// Whatever one namespace asks for, one edit after the other, costs nobody else a name or a place.
    #[test]
    fn nobody_loses_what_another_edits(scene in scene(), edits in prop::collection::vec((any::<u8>(), app_spec()), 1..7)) {
        let mut cluster = scene.cluster();
        settle(&mut cluster);
        for (which, spec) in &edits {
            let Some((identity, ..)) = scene.apps.get(usize::from(*which) % scene.apps.len().max(1)) else { continue };
            let before = grants_of_others(&cluster, &identity.0);
            cluster.pass_an_hour();
            cluster.edit(&app(identity, spec));
            settle(&mut cluster);
            let after = grants_of_others(&cluster, &identity.0);
            for (owner, grant) in before {
                let is_left = |(other, left): &(String, Value)| {
                    *other == owner && (*left == grant || (grant["port"].is_null() && left["name"] == grant["name"]))
                };
                prop_assert!(after.iter().any(is_left), "{owner} loses {grant} when {identity:?} wants {spec}");
            }
        }
    }
}

proptest! {
    #![proptest_config(usually(32))]

    /// Apps that the former operator left on the Gateway, with the flag and without it; then it is switched.
    #[test]
    fn the_former_layout_settles(scene in scene(), served in prop::array::uniform5(any::<bool>()), migrate: bool) {
        let mut cluster = scene.cluster();
        cluster.settings.migrate = if migrate { "force" } else { "off" }.to_owned();
        let entries = scene.apps.iter().zip(served).filter(|(_, served)| *served);
        for (((namespace, name, _), spec, _), _) in entries {
            cluster.add_listener(legacy_entry(namespace, name, &spec["hostname"]));
        }
        cluster.author(json!({
            "apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "metadata": { "name": "issuer" }, "spec": {},
        }));
        settle(&mut cluster);
        for _ in 0..4 {
            cluster.answer();
            settle(&mut cluster);
        }
        scene.change(&mut cluster);
        settle(&mut cluster);
        cluster.settings.migrate = if migrate { "off" } else { "force" }.to_owned();
        for _ in 0..4 {
            settle(&mut cluster);
            cluster.answer();
        }
        settle(&mut cluster);
        prop_assert!(lawful_plan(&cluster.world()).is_empty());
    }
}

fn legacy_entry(namespace: &str, app: &str, hostname: &Value) -> Value {
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    json!({
        "name": format!("tls-{app}-{namespace}"), "hostname": hostname, "port": 443, "protocol": "HTTPS",
        "allowedRoutes": { "namespaces": { "from": "Selector", "selector": selector } },
    })
}

/// What everybody outside a namespace holds, with its owner.
fn grants_of_others(cluster: &Cluster, namespace: &str) -> Vec<(String, Value)> {
    let owners = cluster
        .objects
        .iter()
        .filter(|((kind, home, _), _)| (kind == "NebariApp" && home != namespace) || kind == "Tenant");
    let claims = owners.flat_map(|(name, owner)| {
        let claims = owner["status"]["claims"].as_array().cloned().unwrap_or_default();
        claims.into_iter().map(move |claim| (format!("{name:?}"), claim))
    });
    claims.collect()
}
