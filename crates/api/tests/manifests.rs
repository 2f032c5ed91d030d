//! What an API server accepts and refuses of our kinds, and with which defaults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use portreeve_api::{NebariApp, Tenant, crds};
use portreeve_schema::Schema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const APP: &str = "{ hostname: app.example.com, service: { name: app, port: 8000 } }";

/// What is merged into [`APP`] and accepted.
const ACCEPTED: &[&str] = &[
    "{}",
    // API-level assertions of the operator that this replaces: host names, paths, the two ways of defaulting.
    "{ hostname: app }",
    "{ hostname: 1-app.dev.example-2.com }",
    "{ routing: {} }",
    "{ routing: { routes: [{ pathPrefix: / }, { pathPrefix: /api, pathType: Exact }], publicRoutes: [{ pathPrefix: /open }] } }",
    "{ routing: { tls: { enabled: false }, annotations: { example.com/note: text } } }",
    "{ routing: { tls: { secretName: app.tls } } }",
    "{ auth: { forwardAccessToken: true } }",
    "{ auth: { forwardAccessToken: false, enforceAtGateway: false } }",
    "{ auth: { provider: generic-oidc, denyRedirect: [{ name: Accept, value: json }] } }",
    "{ auth: { spaClient: {}, deviceFlowClient: {}, tokenExchange: {}, keycloakConfig: {} } }",
    "{ landingPage: {} }",
    "{ landingPage: { healthCheck: {} }, routing: { tls: {} } }",
    "{ landingPage: { enabled: true, priority: 1000, healthCheck: { intervalSeconds: 10, timeoutSeconds: 30 } } }",
    // A null on an optional field is no field.
    "{ gateway: null, serviceAccountName: null, routing: { tls: null }, landingPage: { healthCheck: null } }",
    // The sketch of the requirement: the planner refuses it with a reason, the schema does not.
    "{ routing: { tcp: [{ name: scheduler, listener: { port: 8786 }, sniHostnames: ['daskgateway-*'], service: { name: s, port: 8786 } }] } }",
    "{ routing: { routeManagement: App, tcp: [{ name: a, listener: { port: 1 } }, { name: b, listener: { port: 1 }, sniHostnames: [] }] } }",
    "{ routing: { tcp: [{ name: a, listener: { port: 1 }, routeImport: TraefikIngressRouteTCP, clients: [{}, { podSelector: { matchLabels: { a: b } } }] }] } }",
    // Ports and names are the planner's to judge.
    "{ routing: { tcp: [{ name: a, listener: { port: 443 }, sniHostnames: [Not.A.Name, 10.0.0.1] }] } }",
];

/// What is merged into [`APP`] and refused, and the field that is said to be wrong.
const REFUSED: &[(&str, &str)] = &[
    ("{ hostname: App.example.com }", "spec.hostname"),
    ("{ hostname: -app.example.com }", "spec.hostname"),
    ("{ hostname: app..example.com }", "spec.hostname"),
    ("{ hostname: '*.example.com' }", "spec.hostname"),
    ("{ hostname: null }", "spec"),
    ("{ service: null }", "spec"),
    ("{ service: { port: 99999 } }", "spec.service.port"),
    ("{ service: { port: 0 } }", "spec.service.port"),
    ("{ service: { port: '80' } }", "spec.service.port"),
    ("{ service: { name: '' } }", "spec.service.name"),
    ("{ service: { namespace: '' } }", "spec.service.namespace"),
    ("{ gateway: other }", "spec.gateway"),
    ("{ serviceAccountName: '' }", "spec.serviceAccountName"),
    ("{ routing: { routes: [{ pathPrefix: api }] } }", "spec.routing.routes[0].pathPrefix"),
    ("{ routing: { publicRoutes: [{ pathType: Exact }] } }", "spec.routing.publicRoutes[0]"),
    ("{ routing: { routes: [{ pathPrefix: /, pathType: Prefix }] } }", "spec.routing.routes[0].pathType"),
    ("{ routing: { tls: { secretName: App } } }", "spec.routing.tls.secretName"),
    ("{ routing: { annotations: { a: 1 } } }", "spec.routing.annotations.a"),
    ("{ routing: { routeManagement: Nobody } }", "spec.routing.routeManagement"),
    ("{ auth: { forwardAccessToken: true, enforceAtGateway: false } }", "spec.auth"),
    ("{ auth: { provider: other } }", "spec.auth.provider"),
    ("{ auth: { denyRedirect: [{ name: a }] } }", "spec.auth.denyRedirect[0]"),
    ("{ auth: { denyRedirect: [{ name: a, value: b, type: Like }] } }", "spec.auth.denyRedirect[0].type"),
    ("{ auth: { keycloakConfig: { groups: [{ name: '' }] } } }", "spec.auth.keycloakConfig.groups[0].name"),
    ("{ auth: { keycloakConfig: { protocolMappers: [{ name: a }] } } }", "spec.auth.keycloakConfig.protocolMappers[0]"),
    ("{ landingPage: { priority: 1001 } }", "spec.landingPage.priority"),
    ("{ landingPage: { healthCheck: { port: 65536 } } }", "spec.landingPage.healthCheck.port"),
    ("{ landingPage: { healthCheck: { intervalSeconds: 9 } } }", "spec.landingPage.healthCheck.intervalSeconds"),
    ("{ landingPage: { healthCheck: { timeoutSeconds: 31 } } }", "spec.landingPage.healthCheck.timeoutSeconds"),
    ("{ routing: { tcp: [{ name: a.b, listener: { port: 1 } }] } }", "spec.routing.tcp[0].name"),
    ("{ routing: { tcp: [{ name: A, listener: { port: 1 } }] } }", "spec.routing.tcp[0].name"),
    ("{ routing: { tcp: [{ name: a }] } }", "spec.routing.tcp[0]"),
    ("{ routing: { tcp: [{ name: a, listener: { port: 65536 } }] } }", "spec.routing.tcp[0].listener.port"),
    (
        "{ routing: { tcp: [{ name: a, listener: { port: 1 }, routeImport: Other }] } }",
        "spec.routing.tcp[0].routeImport",
    ),
    (
        "{ routing: { tcp: [{ name: a, listener: { port: 1 }, sniHostnames: [''] }] } }",
        "spec.routing.tcp[0].sniHostnames[0]",
    ),
    (
        "{ routing: { tcp: [{ name: a, listener: { port: 1 } }, { name: a, listener: { port: 2 } }] } }",
        "spec.routing.tcp[1]",
    ),
];

#[test]
fn what_the_contract_allows_is_accepted() {
    for changes in ACCEPTED {
        assert_eq!(wrong_fields(&app(&yaml(changes))), [""; 0], "{changes}");
    }
}

#[test]
fn what_the_contract_forbids_is_refused_at_the_field_that_is_wrong() {
    for (changes, path) in REFUSED {
        assert_eq!(wrong_fields(&app(&yaml(changes))), [*path], "{changes}");
    }
}

#[test]
fn lengths_have_their_bounds() {
    let landing_page = |field: &str, length: usize| app(&json!({ "landingPage": { field: "x".repeat(length) } }));
    let secret = |length: usize| app(&json!({ "routing": { "tls": { "secretName": "x".repeat(length) } } }));
    let entry_name = |length: usize| entries(&json!([{ "name": "x".repeat(length), "listener": { "port": 1 } }]));
    for (at_the_bound, beyond) in [
        (landing_page("displayName", 64), landing_page("displayName", 65)),
        (landing_page("description", 256), landing_page("description", 257)),
        (secret(253), secret(254)),
        (entry_name(63), entry_name(64)),
        (entries(&many_entries(16, 0)), entries(&many_entries(17, 0))),
        (entries(&many_entries(1, 16)), entries(&many_entries(1, 17))),
    ] {
        assert_eq!(wrong_fields(&at_the_bound), [""; 0], "{at_the_bound}");
        assert_eq!(wrong_fields(&beyond).len(), 1, "{beyond}");
    }
}

#[test]
fn tenants_need_an_owner_and_may_override_any_value() {
    let tenant = |spec: &str| json!({ "apiVersion": "kubespaces.io/v1alpha1", "kind": "Tenant", "metadata": { "name": "a" }, "spec": yaml(spec) });
    assert_eq!(wrong_fields(&tenant("{ owner: ann }")), [""; 0]);
    assert_eq!(wrong_fields(&tenant("{ owner: ann, vcluster: { valuesOverrides: { a: { b: [1] } } } }")), [""; 0]);
    assert_eq!(wrong_fields(&tenant("{}")), ["spec"]);
    assert_eq!(wrong_fields(&tenant("{ owner: '' }")), ["spec.owner"]);
    assert_eq!(wrong_fields(&tenant("{ owner: ann, resources: { cpu: 4 } }")), ["spec.resources.cpu"]);
}

/// A rule that is never seen to hold, or never seen to be broken, may as well be a mistake.
#[test]
fn every_rule_of_our_definitions_is_seen_both_ways() {
    let sni = |names: &[&str]| entries(&json!([{ "name": "a", "listener": { "port": 1 }, "sniHostnames": names }]));
    let mut many = many_entries(4, 16);
    let (sixty_four, patterns) = (entries(&many), entries(&many_patterns(16)));
    many[0]["sniHostnames"].as_array_mut().unwrap().pop();
    let (sixty_three, one_listener) = (entries(&many), sni(&["a-*", "b-*"]));
    let auth = |auth: &str| app(&json!({ "auth": yaml(auth) }));
    let table = [
        (
            "forwardAccessToken: true requires enforceAtGateway: true",
            vec![auth("{}"), auth("{ forwardAccessToken: true }")],
            auth("{ forwardAccessToken: true, enforceAtGateway: false }"),
        ),
        (
            "sniHostnames must be either all names or all patterns that end in '*'; use an entry for each",
            vec![sni(&[]), sni(&["a", "*.b"]), one_listener],
            sni(&["a", "b-*"]),
        ),
        (
            "at most 63 listeners over all entries: each name of sniHostnames is one, an entry without names or with a pattern is one",
            vec![sixty_three, patterns, entries(&json!([]))],
            sixty_four,
        ),
    ];
    let tested: BTreeSet<String> = table.iter().map(|(message, ..)| (*message).to_owned()).collect();
    assert_eq!(crds().iter().flat_map(rule_messages).collect::<BTreeSet<_>>(), tested);
    for (message, accepted, refused) in table {
        for object in accepted {
            assert_eq!(messages(&object), [""; 0], "{object}");
        }
        assert_eq!(messages(&refused), [message], "{refused}");
    }
}

#[test]
fn the_types_have_the_defaults_of_the_schema() {
    for changes in ACCEPTED.iter().filter(|changes| !changes.contains("null")) {
        let written = app(&yaml(changes));
        assert_eq!(through::<NebariApp>(&written), through::<NebariApp>(&stored(&written)), "{changes}");
    }
}

#[test]
fn the_types_carry_every_field_of_the_schema() {
    let [app, tenant] = crds().map(|crd| sample_object(&crd));
    assert_eq!(through::<NebariApp>(&app), app);
    assert_eq!(through::<Tenant>(&tenant), tenant);
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// An app with these changes to its spec.
fn app(changes: &Value) -> Value {
    let mut spec = yaml(APP);
    merge(&mut spec, changes);
    json!({ "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp", "metadata": { "name": "app" }, "spec": spec })
}

/// An app with these entries of `routing.tcp`.
fn entries(entries: &Value) -> Value {
    app(&json!({ "routing": { "tcp": entries } }))
}

fn many_entries(count: usize, names: usize) -> Value {
    let names = |entry: usize| (0..names).map(move |name| format!("{name}.{entry}.example.com"));
    let entry = |entry: usize| json!({ "name": format!("e{entry}"), "listener": { "port": 1 }, "sniHostnames": names(entry).collect::<Vec<_>>() });
    (0..count).map(entry).collect()
}

/// As many entries as may be, with as many patterns as may be: each is one listener.
fn many_patterns(count: usize) -> Value {
    let patterns: Vec<String> = (0..count).map(|pattern| format!("p{pattern}-*")).collect();
    let entry =
        |entry: usize| json!({ "name": format!("e{entry}"), "listener": { "port": 1 }, "sniHostnames": patterns });
    (0..count).map(entry).collect()
}

fn merge(value: &mut Value, changes: &Value) {
    match (value, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(fields.entry(name.clone()).or_insert(Value::Null), change);
            }
        }
        (value, changes) => *value = changes.clone(),
    }
}

fn schema(object: &Value) -> Schema {
    let crd = crds().into_iter().find(|crd| object["kind"] == crd.spec.names.kind.as_str()).unwrap();
    Schema::of(&crd).unwrap()
}

/// The object as an API server would store it.
fn stored(object: &Value) -> Value {
    let mut object = object.clone();
    schema(&object).apply_defaults(&mut object);
    object
}

fn wrong_fields(object: &Value) -> Vec<String> {
    schema(object).check(&stored(object)).into_iter().map(|fault| fault.path.to_string()).collect()
}

fn messages(object: &Value) -> Vec<String> {
    schema(object).check(&stored(object)).into_iter().map(|fault| fault.message).collect()
}

/// The object after it has been read into the type and written again.
fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}

fn root(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
}

fn rule_messages(crd: &CustomResourceDefinition) -> Vec<String> {
    fn collect(schema: &JSONSchemaProps, messages: &mut Vec<String>) {
        messages.extend(schema.x_kubernetes_validations.iter().flatten().filter_map(|rule| rule.message.clone()));
        schema.properties.iter().flatten().for_each(|(_, property)| collect(property, messages));
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            collect(items, messages);
        }
    }
    let mut messages = Vec::new();
    collect(root(crd), &mut messages);
    messages
}

/// An object with a value for every field of the schema.
fn sample_object(crd: &CustomResourceDefinition) -> Value {
    let mut object = sample(root(crd));
    object["apiVersion"] = format!("{}/{}", crd.spec.group, crd.spec.versions[0].name).into();
    object["kind"] = crd.spec.names.kind.as_str().into();
    object["metadata"] = json!({ "name": "a" });
    object
}

fn sample(schema: &JSONSchemaProps) -> Value {
    if let Some(default) = schema.default.as_ref().or(schema.enum_.as_ref().and_then(|values| values.first())) {
        return default.0.clone();
    }
    match schema.type_.as_deref() {
        Some("boolean") => json!(true),
        Some("integer") => json!(schema.minimum.map_or(1, |minimum| format!("{minimum}").parse().unwrap())),
        Some("string") if schema.format.as_deref() == Some("date-time") => json!("2026-08-01T00:00:00Z"),
        Some("string") => json!("a"),
        Some("array") => match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => json!([sample(items)]),
            _ => json!([]),
        },
        _ => match (&schema.properties, &schema.additional_properties) {
            (Some(properties), _) => {
                properties.iter().map(|(name, property)| (name.clone(), sample(property))).collect()
            }
            (None, Some(JSONSchemaPropsOrBool::Schema(values))) => json!({ "a": sample(values) }),
            (None, _) => json!({ "a": 1 }),
        },
    }
}
