//! Our definitions against those of the operators that they replace, property by property.
//!
//! The reference definitions belong to others and are not in this repository. They are read from the folder that
//! `PORTREEVE_REFERENCE_CRDS` names, else from `../shared/facts/peer-crds` beside the workspace; without either the
//! comparison is skipped, and says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use portreeve_api::crds;
use serde_json::{Value, json};

/// Everything that our definitions have and the reference does not.
const ADDITIONS: [&str; 10] = [
    "NebariApp: spec.routing.routeManagement: added",
    "NebariApp: spec.routing.tcp: added",
    "NebariApp: status.authClients: added",
    "NebariApp: status.authClientsHash: added",
    "NebariApp: status.authSwitchingOn: added",
    "NebariApp: status.claims: added",
    "NebariApp: status.https: added",
    "NebariApp: status.tcp: added",
    "Tenant: status.appsGateway: added",
    "Tenant: status.claims: added",
];

/// Words for people, in any schema; properties may have these names too.
const PROSE: [&str; 2] = ["description", "title"];

#[test]
fn our_schemas_are_the_reference_and_the_additions() {
    let Some(folder) = reference_folder() else {
        eprintln!("skipped: the reference schemas are not there; name their folder in PORTREEVE_REFERENCE_CRDS");
        return;
    };
    let mut differences = BTreeSet::new();
    for (crd, file) in crds().iter().zip(["nebariapps.yaml", "tenants.yaml"]) {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let theirs: Value = serde_saphyr::from_str(&text).unwrap();
        let ours = serde_json::to_value(crd).unwrap();
        assert_eq!(ours["metadata"]["name"], theirs["metadata"]["name"]);
        let kind = &crd.spec.names.kind;
        differences.extend(compare(&ours["spec"], &theirs["spec"]).into_iter().map(|text| format!("{kind}: {text}")));
    }
    assert_eq!(differences, ADDITIONS.map(str::to_owned).into());
}

#[test]
fn every_kind_of_difference_is_seen() {
    let reference = json!({
        "type": "object",
        "required": ["a", "b"],
        "description": "text",
        "properties": { "description": { "type": "string", "maxLength": 3 }, "b": { "default": 1 } },
    });
    let changed = |pointer: &str, value: Value| {
        let mut ours = reference.clone();
        *ours.pointer_mut(pointer).unwrap() = value;
        compare(&ours, &reference)
    };
    assert_eq!(changed("/description", json!("other")), [""; 0]);
    assert_eq!(changed("/required", json!(["b", "a"])), [""; 0]);
    assert_eq!(changed("/properties/b/default", json!(1.0)), [""; 0]);
    assert_eq!(changed("/required", json!(["a"])), [r#"required: ["a"] instead of ["a","b"]"#]);
    assert_eq!(changed("/type", json!("array")), [r#"type: "array" instead of "object""#]);
    assert_eq!(changed("/properties/b/default", json!(2)), ["b.default: 2 instead of 1"]);
    assert_eq!(changed("/properties/b", json!({})), ["b.default: missing"]);
    assert_eq!(changed("/properties/b", json!({ "default": 1, "nullable": true })), ["b.nullable: added"]);
    assert_eq!(changed("/properties", json!({ "b": { "default": 1 } })), ["description: missing"]);
}

fn reference_folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts/peer-crds");
    let folder = std::env::var_os("PORTREEVE_REFERENCE_CRDS").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

/// What is other in `ours` than in `theirs`, without prose.
fn compare(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    compare_at(&mut Vec::new(), ours, theirs, &mut differences);
    differences
}

fn compare_at(path: &mut Vec<String>, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(our_fields), Value::Object(their_fields)) => {
            let of_properties = path.last().is_some_and(|last| last == "properties");
            let names: BTreeSet<&String> = our_fields.keys().chain(their_fields.keys()).collect();
            for name in names.into_iter().filter(|name| of_properties || !PROSE.contains(&name.as_str())) {
                path.push(name.clone());
                match (our_fields.get(name), their_fields.get(name)) {
                    (Some(ours), Some(theirs)) => compare_at(path, ours, theirs, differences),
                    (Some(_), None) => differences.push(format!("{}: added", shown(path))),
                    (None, _) => differences.push(format!("{}: missing", shown(path))),
                }
                path.pop();
            }
        }
        (Value::Array(our_items), Value::Array(their_items))
            if our_items.len() == their_items.len() && our_items.iter().all(Value::is_object) =>
        {
            our_items.iter().zip(their_items).for_each(|(ours, theirs)| compare_at(path, ours, theirs, differences));
        }
        _ if normal(ours) == normal(theirs) => {}
        _ => differences.push(format!("{}: {ours} instead of {theirs}", shown(path))),
    }
}

/// The order of names in `required` and `enum` means nothing, nor does the way in which a number is written.
fn normal(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(normal).collect();
            items.sort_by_key(ToString::to_string);
            items.into()
        }
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}

/// The path of a property, without the words of the schema language around it.
fn shown(path: &[String]) -> String {
    let words = ["versions", "schema", "openAPIV3Schema", "properties"];
    path.iter().filter(|step| !words.contains(&step.as_str())).cloned().collect::<Vec<_>>().join(".")
}
