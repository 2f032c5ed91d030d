use portreeve_plan::{TenantApi, TenantApps};

use super::*;
use crate::manifest;

fn objects(text: &str) -> Objects {
    let contents = manifest::read(&"f.yaml".into(), text);
    assert_eq!(contents.findings, []);
    contents.manifests.into_iter().map(|manifest| (manifest.object, manifest.value)).collect()
}

fn names(objects: &Objects) -> Vec<String> {
    objects.keys().map(ToString::to_string).collect()
}

const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: hub, namespace: team}
spec: {ports: [{name: http, port: 80}, {name: admin, port: 81}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: hub-x, namespace: team, labels: {kubernetes.io/service-name: hub}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.0.0.1]}]
";

#[test]
fn backends_are_written_as_they_are_documented() {
    for text in ["team/hub=127.0.0.1:3000", "team/hub:80=127.0.0.1:3000", "team/hub:80=[::1]:3000"] {
        assert_eq!(text.parse::<BackendEndpoint>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "hub=127.0.0.1:1",
        "team/hub",
        "team/hub=localhost:1",
        "team/hub:0=127.0.0.1:1",
        "team/hub=127.0.0.1:0",
        "team/hub:x=127.0.0.1:1",
        "/hub=127.0.0.1:1",
    ] {
        assert_eq!(text.parse::<BackendEndpoint>(), Err(NoBackendEndpoint), "{text}");
    }
}

#[test]
fn namespaces_that_objects_use_are_there() {
    let mut objects = objects(SERVICE);
    assume(&mut objects, &[]);
    assert_eq!(names(&objects), ["EndpointSlice/team/hub-x", "Namespace/team", "Service/team/hub"]);
    // Not one more label than every namespace has: opting in is for its owner (traps: 39).
    let namespace = &objects[&object("v1", "Namespace", None, "team")];
    assert_eq!(namespace["metadata"], json!({"name": "team"}));
}

#[test]
fn the_namespace_of_a_tenant_is_not_assumed_but_made() {
    let tenant = "---\napiVersion: kubespaces.io/v1alpha1\nkind: Tenant\nmetadata: {name: blue}\nspec: {owner: me}\n";
    let mut objects = objects(&[tenant, "---\n", &SERVICE.replace("team", "kubespaces-tenant-blue")].concat());
    assume(&mut objects, &[]);
    assert!(objects.keys().all(|object| object.kind != "Namespace"), "{:?}", names(&objects));
}

#[test]
fn a_backend_takes_the_place_of_the_endpoints_that_are_written() {
    let mut objects = objects(SERVICE);
    assume(&mut objects, &["team/hub:80=127.0.0.1:3000".parse().unwrap(), "team/hub=127.0.0.1:4000".parse().unwrap()]);
    let slices: Vec<_> = objects.iter().filter(|(object, _)| object.kind == "EndpointSlice").collect();
    assert_eq!(slices.iter().map(|(object, _)| &*object.name).collect::<Vec<_>>(), ["hub-backend-0", "hub-backend-1"]);
    assert_eq!(slices[0].1["ports"], json!([{"name": "http", "port": 3000}]));
    assert_eq!(slices[1].1["ports"], json!([{"name": "http", "port": 4000}, {"name": "admin", "port": 4000}]));
    assert_eq!(slices[0].1["endpoints"][0]["addresses"], json!(["127.0.0.1"]));
}

#[test]
fn a_service_that_nobody_wrote_has_the_ports_of_its_backends() {
    let mut objects = Objects::new();
    assume(&mut objects, &["a/s:80=127.0.0.1:3000".parse().unwrap(), "a/t=127.0.0.1:4000".parse().unwrap()]);
    let ports = |name: &str| objects[&object("v1", "Service", Some("a"), name)]["spec"]["ports"][0]["port"].clone();
    assert_eq!((ports("s"), ports("t")), (json!(80), json!(4000)));
    assert!(names(&objects).contains(&"Namespace/a".to_owned()));
}

#[test]
fn default_gateways_are_those_that_nobody_wrote() {
    let app = "apiVersion: reconcilers.nebari.dev/v1\nkind: NebariApp\nmetadata: {name: a}\nspec: {hostname: a.test, service: {name: s, port: 1}}\n";
    let gateway = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: nebari-gateway, namespace: envoy-gateway-system}\nspec: {gatewayClassName: mine, listeners: [{name: http, port: 80, protocol: HTTP}]}\n";
    let mut objects = objects(&[app, gateway].concat());
    let config = Config {
        tenant_api: Some(TenantApi {
            gateway_namespace: "kubespaces-system".into(),
            gateway_name: "kubespaces-api".into(),
            section: None,
            domain: "example.com".into(),
            external_dns_target: None,
        }),
        tenant_apps: Some(TenantApps {
            gateway_namespace: "kubespaces-system".into(),
            gateway_name: "kubespaces-apps".into(),
            domain: "example.com".into(),
            cluster_issuer: LOCAL_ISSUER.into(),
            ..TenantApps::default()
        }),
        ..Config::default()
    };
    default_gateways(&mut objects, &config);
    let gateway = |namespace: &str, name: &str| {
        &objects[&object("gateway.networking.k8s.io/v1", "Gateway", Some(namespace), name)]["spec"]
    };
    assert_eq!(gateway(names::GATEWAY_NAMESPACE, "nebari-gateway")["gatewayClassName"], "mine");
    assert_eq!(gateway(names::GATEWAY_NAMESPACE, "nebari-internal-gateway")["listeners"][1]["port"], 443);
    assert_eq!(gateway("kubespaces-system", "kubespaces-api")["listeners"][0]["hostname"], "*.api.example.com");
    assert_eq!(gateway("kubespaces-system", "kubespaces-apps")["listeners"][0]["port"], 80);
    let certificate =
        object("cert-manager.io/v1", "Certificate", Some(names::GATEWAY_NAMESPACE), names::GATEWAY_TLS_SECRET);
    assert_eq!(objects[&certificate]["spec"]["dnsNames"], json!(["a.test", "localhost"]));
}

/// What is made here is what an API server would take.
#[test]
fn what_is_assumed_is_valid() {
    let mut objects = Objects::new();
    default_gateways(&mut objects, &Config::default());
    assume(&mut objects, &["a/s:80=127.0.0.1:3000".parse().unwrap()]);
    assert!(objects.len() > 5);
    for (object, value) in objects {
        let contents = manifest::read(&"f.json".into(), &value.to_string());
        assert_eq!(contents.findings, [], "{object}");
        assert_eq!(contents.manifests[0].object, object);
    }
}
