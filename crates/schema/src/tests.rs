use gateway_api::{gateways::Gateway, httproutes::HttpRoute, listenersets::ListenerSet, tlsroutes::TlsRoute};
use k8s_openapi::api::core::v1::Service;
use kube::CustomResourceExt;
use serde_json::json;

use super::*;

/// A definition with one of everything.
const STALL: &str = r#"
metadata: { name: stalls.example.com }
spec:
  group: example.com
  names: { kind: Stall, plural: stalls }
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [gate]
            properties:
              gate: { type: string, enum: [north, south], default: north }
              owner: { type: string, pattern: '^[a-z]+$', maxLength: 8, description: "Lower case.\nMore text." }
              note: { type: string, nullable: true }
              until: { type: string, format: date-time }
              target: { x-kubernetes-int-or-string: true }
              extra: { type: object, x-kubernetes-preserve-unknown-fields: true }
              prices: { type: object, additionalProperties: { type: integer, minimum: 1, maximum: 100 } }
              goods:
                type: array
                maxItems: 3
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                x-kubernetes-validations:
                - { rule: "self.map(g, g.weight).sum() <= 10", message: at most 10 stone in all }
                items:
                  type: object
                  required: [name]
                  properties:
                    name: { type: string }
                    weight: { type: integer, default: 1 }
              marks: { type: array, x-kubernetes-list-type: set, items: { type: string } }
"#;

fn definition(text: &str) -> CustomResourceDefinition {
    serde_saphyr::from_str(text).unwrap()
}

fn schema() -> Schema {
    Schema::of(&definition(STALL)).unwrap()
}

/// The stall of this spec, as the API server would store it.
fn stored(spec: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": "example.com/v1", "kind": "Stall", "metadata": { "name": "a" }, "spec": spec });
    schema().apply_defaults(&mut object);
    object["spec"].take()
}

/// `path: message` of each fault that a stall of this spec has.
fn faults(spec: &Value) -> Vec<String> {
    let mut object =
        json!({ "apiVersion": "example.com/v1", "kind": "Stall", "metadata": { "name": "a" }, "spec": spec });
    let schema = schema();
    schema.apply_defaults(&mut object);
    schema.check(&object).into_iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect()
}

#[test]
fn defaults_are_for_absent_fields_of_objects_that_are_there() {
    assert_eq!(stored(&json!({})), json!({ "gate": "north" }));
    assert_eq!(stored(&json!({ "gate": "south" })), json!({ "gate": "south" }));
    let spec = stored(&json!({ "goods": [{ "name": "a" }] }));
    assert_eq!(spec, json!({ "gate": "north", "goods": [{ "name": "a", "weight": 1 }] }));
}

#[test]
fn null_gives_way_to_the_default_or_goes_unless_it_is_a_value() {
    let spec = stored(&json!({ "gate": null, "owner": null, "note": null, "prices": { "a": null } }));
    assert_eq!(spec, json!({ "gate": "north", "note": null, "prices": {} }));
    assert_eq!(faults(&json!({ "marks": [null] })), [r#"spec.marks[0]: null is not of type "string""#]);
}

#[test]
fn what_the_schema_allows_has_no_fault() {
    for spec in [
        json!({}),
        json!({ "owner": "ann", "note": null, "until": "2026-08-01T00:00:00Z", "extra": { "any": [1] } }),
        json!({ "target": 80 }),
        json!({ "target": "http" }),
        json!({ "prices": { "apples": 1, "pears": 100 }, "marks": ["a", "b"] }),
        json!({ "goods": [{ "name": "a", "weight": 9 }, { "name": "b" }] }),
        json!({ "goods": [] }),
    ] {
        assert_eq!(faults(&spec), Vec::<String>::new(), "{spec}");
    }
}

#[test]
fn what_it_does_not_allow_is_named_with_its_place() {
    for (spec, expected) in [
        (json!({ "owner": "Ann" }), r#"spec.owner: "Ann" does not match "^[a-z]+$""#),
        (json!({ "owner": "abcdefghi" }), r#"spec.owner: "abcdefghi" is longer than 8 characters"#),
        (json!({ "owner": 1 }), r#"spec.owner: 1 is not of type "string""#),
        (json!({ "gate": "east" }), r#"spec.gate: "east" is not one of "north" or "south""#),
        (json!({ "until": "today" }), r#"spec.until: "today" is not a "date-time""#),
        (json!({ "target": true }), r#"spec.target: true is not of types "integer", "string""#),
        (json!({ "prices": { "a": 0 } }), "spec.prices.a: 0 is less than the minimum of 1"),
        (json!({ "prices": { "a.b": 101 } }), "spec.prices['a.b']: 101 is greater than the maximum of 100"),
        (json!({ "goods": [{}] }), r#"spec.goods[0]: "name" is a required property"#),
        (
            json!({ "goods": [{ "name": "a" }, { "name": "b" }, { "name": "a" }] }),
            r#"spec.goods[2]: "a" is a duplicate of the item at spec.goods[0]"#,
        ),
        (json!({ "marks": ["a", "a"] }), r#"spec.marks[1]: "a" is a duplicate of the item at spec.marks[0]"#),
        (json!({ "goods": [{ "name": "a", "weight": 11 }] }), "spec.goods: at most 10 stone in all"),
    ] {
        assert_eq!(faults(&spec), [expected], "{spec}");
    }
}

#[test]
fn metadata_is_that_of_every_object() {
    let schema = schema();
    let object = json!({ "metadata": { "lables": {}, "labels": { "a": true } }, "spec": { "gate": "north" } });
    assert_eq!(schema.check(&object)[0].path.to_string(), "metadata.labels.a");
    let unknown = schema.unknown_fields(&object);
    assert_eq!(
        (unknown[0].path.to_string(), unknown[0].nearest.as_deref()),
        ("metadata.lables".into(), Some("labels"))
    );
}

#[test]
fn a_hint_is_the_nearest_value_or_what_the_schema_says() {
    let schema = schema();
    let hint = |spec: Value| schema.check(&json!({ "spec": spec })).swap_remove(0).hint;
    assert_eq!(hint(json!({ "gate": "nroth" })).as_deref(), Some("did you mean 'north'?"));
    assert_eq!(hint(json!({ "gate": "somewhere" })), None);
    assert_eq!(hint(json!({ "gate": "north", "owner": "Ann" })).as_deref(), Some("Lower case."));
}

#[test]
fn unknown_fields_are_named_where_the_schema_is_closed() {
    let schema = schema();
    let spec =
        json!({ "onwer": "ann", "zzz": 1, "extra": { "any": 1 }, "prices": { "any": 1 }, "goods": [{ "Name": "a" }] });
    let mut unknown: Vec<_> = schema
        .unknown_fields(&json!({ "spec": spec }))
        .into_iter()
        .map(|warning| (warning.path.to_string(), warning.nearest))
        .collect();
    unknown.sort();
    assert_eq!(
        unknown,
        [
            ("spec.goods[0].Name".to_owned(), Some("name".to_owned())),
            ("spec.onwer".to_owned(), Some("owner".to_owned())),
            ("spec.zzz".to_owned(), None),
        ]
    );
}

#[test]
fn a_rule_that_cannot_be_evaluated_says_so_unless_the_object_is_wrong_anyway() {
    let broken = STALL.replace("self.map(g, g.weight).sum() <= 10", "self.map(g, g.price).sum() <= 10");
    let schema = Schema::of(&definition(&broken)).unwrap();
    let object = |goods: Value| json!({ "spec": { "gate": "north", "goods": goods } });
    let faults = schema.check(&object(json!([{ "name": "a" }])));
    assert!(faults[0].message.contains("cannot be evaluated: No such key: price"), "{faults:?}");
    assert_eq!(schema.check(&object(json!([{ "price": "a" }]))).len(), 1);
}

#[test]
fn a_wrong_schema_is_refused() {
    let refused = |from: &str, to: &str| Schema::of(&definition(&STALL.replace(from, to))).unwrap_err();
    assert!(matches!(refused("^[a-z]+$", "["), InvalidSchema::Keyword(_)));
    assert!(matches!(refused("sum() <= 10", "sum() <="), InvalidSchema::Rule { .. }));
    assert!(matches!(refused("storage: true", "storage: false"), InvalidSchema::Missing(_)));
}

#[test]
fn kinds_of_kubernetes_itself_have_schemas_too() {
    let schema = Schema::of_type::<Service>().unwrap();
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "a", "creationTimestamp": null },
        "spec": { "ports": [{ "port": 80, "targetPort": "http" }, { "port": 443, "targetPort": 8443 }], "selektor": {} },
    });
    let mut stored = service.clone();
    schema.apply_defaults(&mut stored);
    assert_eq!(schema.check(&stored), []);
    assert_eq!(schema.unknown_fields(&service)[0].nearest.as_deref(), Some("selector"));
}

#[test]
fn kinds_of_gateway_api_have_schemas_too() {
    for crd in [HttpRoute::crd(), ListenerSet::crd(), TlsRoute::crd()] {
        Schema::of(&crd).unwrap();
    }
    let schema = Schema::of(&Gateway::crd()).unwrap();
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": "a" },
        "spec": {
            "gatewayClassName": "a",
            "listeners": [{ "name": "a", "port": 443, "protocol": "TLS", "tls": { "modee": "Passthrough" } }],
        },
    });
    assert_eq!(schema.check(&gateway), []);
    assert_eq!(schema.unknown_fields(&gateway)[0].path.to_string(), "spec.listeners[0].tls.modee");
}
