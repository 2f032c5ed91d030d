use std::collections::BTreeMap;

use gateway_api::gateways::Gateway;
use gateway_api::httproutes::HttpRoute;
use gateway_api::listenersets::ListenerSet;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;

fn crds() -> BTreeMap<String, CustomResourceDefinition> {
    let crds = [Gateway::crd(), ListenerSet::crd(), HttpRoute::crd(), TlsRoute::crd(), ReferenceGrant::crd()];
    crds.into_iter().map(|crd| (crd.spec.names.kind.clone(), crd)).collect()
}

/// `path: message` of each fault of an object of this kind and spec.
fn faults(kind: &str, spec: &Value) -> Vec<String> {
    let schema = schema_of(&crds()[kind]).unwrap();
    let object =
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    schema.check(&object).into_iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect()
}

fn gateway(listeners: &Value) -> Vec<String> {
    faults("Gateway", &json!({"gatewayClassName": "c", "listeners": listeners}))
}

fn tls_route(patch: &Value) -> Vec<String> {
    let mut spec = json!({"hostnames": ["a.test"], "rules": [{"backendRefs": [{"name": "s", "port": 1}]}]});
    for (name, value) in patch.as_object().unwrap() {
        spec[name] = value.clone();
    }
    faults("TLSRoute", &spec)
}

fn http_rule(rule: &Value) -> Vec<String> {
    faults("HTTPRoute", &json!({"rules": [rule]}))
}

/// A rule on a field that a type does not have would never be asked.
#[test]
fn every_rule_stands_on_a_field_that_is_there() {
    let mut crds = crds();
    for (kinds, field, ..) in RULES {
        for kind in *kinds {
            let root = crds.get_mut(*kind).unwrap().spec.versions[0].schema.as_mut().unwrap();
            assert!(find(root.open_api_v3_schema.as_mut().unwrap(), field).is_some(), "{kind} {field}");
        }
    }
}

#[test]
fn what_the_definitions_accept_is_accepted() {
    let listeners = json!([
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "*.a.test", "tls": {"certificateRefs": [{"name": "c"}]}},
        {"name": "no-tls", "port": 444, "protocol": "HTTPS"},
        {"name": "pass", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        {"name": "db", "port": 5432, "protocol": "TCP"},
    ]);
    assert_eq!(gateway(&listeners), Vec::<String>::new());
    assert_eq!(tls_route(&json!({})), Vec::<String>::new());
    let rule =
        json!({"matches": [{"path": {"type": "Exact", "value": "/a/b"}}], "backendRefs": [{"name": "s", "port": 1}]});
    assert_eq!(http_rule(&rule), Vec::<String>::new());
    let grant =
        json!({"from": [{"group": "", "kind": "Gateway", "namespace": "a"}], "to": [{"group": "", "kind": "Secret"}]});
    assert_eq!(faults("ReferenceGrant", &grant), Vec::<String>::new());
}

#[test]
fn what_the_definitions_refuse_is_refused() {
    let listener = |patch: Value| {
        let mut listener = json!({"name": "a", "port": 1, "protocol": "HTTP"});
        for (name, value) in patch.as_object().unwrap() {
            listener[name] = value.clone();
        }
        gateway(&json!([listener]))
    };
    let route = json!({"name": "s", "port": 1});
    let cases = [
        (gateway(&json!([])), "spec.listeners: there must be 1 to 64"),
        (
            gateway(
                &json!([{"name": "a", "port": 1, "protocol": "HTTP"}, {"name": "a", "port": 2, "protocol": "HTTP"}]),
            ),
            "spec.listeners: each listener needs a name of its own",
        ),
        (
            gateway(
                &json!([{"name": "a", "port": 1, "protocol": "HTTP"}, {"name": "b", "port": 1, "protocol": "HTTP", "hostname": ""}]),
            ),
            "spec.listeners: two listeners have the same port",
        ),
        (listener(json!({"port": 70000})), "spec.listeners[0]: port must be"),
        (listener(json!({"tls": {"certificateRefs": [{"name": "c"}]}})), "spec.listeners[0]: tls must not be set"),
        (
            listener(json!({"protocol": "HTTPS", "tls": {"mode": "Passthrough"}})),
            "spec.listeners[0]: protocol HTTPS cannot have tls.mode Passthrough: use protocol TLS",
        ),
        (listener(json!({"protocol": "TLS"})), "spec.listeners[0]: protocol TLS needs tls.mode"),
        (listener(json!({"protocol": "TCP", "hostname": "a.test"})), "spec.listeners[0]: hostname must not be set"),
        (
            listener(json!({"protocol": "HTTPS", "tls": {}})),
            "spec.listeners[0].tls: mode Terminate needs certificateRefs",
        ),
        (listener(json!({"hostname": "daskgateway-*"})), "spec.listeners[0].hostname: a host name is"),
        (listener(json!({"hostname": "a.*.test"})), "spec.listeners[0].hostname: a host name is"),
        (listener(json!({"name": "A"})), "spec.listeners[0].name: a listener's name"),
        (tls_route(&json!({"hostnames": []})), "spec.hostnames: there must be 1 to 1024"),
        (tls_route(&json!({"hostnames": ["10.0.0.1"]})), "spec.hostnames[0]: an IP address"),
        (tls_route(&json!({"hostnames": ["A.test"]})), "spec.hostnames[0]: a host name is"),
        (
            tls_route(&json!({"rules": [{"backendRefs": [route]}, {"backendRefs": [route]}]})),
            "spec.rules: there must be exactly one",
        ),
        (tls_route(&json!({"rules": [{"backendRefs": []}]})), "spec.rules[0]: there must be 1 to 16"),
        (tls_route(&json!({"rules": [{"backendRefs": [{"name": "s"}]}]})), "spec.rules[0].backendRefs[0]: a reference"),
        (http_rule(&json!({"matches": [{"path": {"value": "a"}}]})), "spec.rules[0].matches[0].path: a path starts"),
        (
            http_rule(&json!({"matches": [{"path": {"value": "/a//b"}}]})),
            "spec.rules[0].matches[0].path: a path must not",
        ),
        (
            http_rule(
                &json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 301}}], "backendRefs": [route]}),
            ),
            "spec.rules[0]: a rule with a RequestRedirect",
        ),
        (
            faults("ReferenceGrant", &json!({"from": [], "to": [{"group": "", "kind": "Secret"}]})),
            "spec.from: there must be",
        ),
    ];
    for (faults, expected) in cases {
        assert!(faults.iter().any(|fault| fault.starts_with(expected)), "{expected}: {faults:?}");
    }
}
