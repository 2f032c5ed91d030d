//! What server-side apply makes of an object, for whoever holds the world in memory: the standalone shell, and tests.
//!
//! This is the part of the API server's behaviour that Portreeve's own bodies need. Maps merge deeply; `listeners` merge
//! by name and `ownerReferences` by uid; every other list is replaced. What Portreeve applied earlier and no longer wants
//! must not be in `object` any more: merge each new body into the object as its author wrote it.

use serde_json::{Map, Value, json};

use crate::contains::contains;
use crate::differ::{Step, is_ours, step};
use crate::output::FIELD_MANAGER;

/// Lists that Kubernetes merges by a key instead of replacing them, and that key, by the name of their field.
const LIST_KEY: [(&str, &str); 2] = [("listeners", "name"), ("ownerReferences", "uid")];

/// `object` after `body` has been applied to it; `body` alone when there is no object.
///
/// `metadata.managedFields` is left to [`managed_fields`], `metadata.generation` to the caller.
pub fn apply(object: Option<&Value>, body: &Value) -> Value {
    match object {
        Some(object) => merge("", object, body),
        None => body.clone(),
    }
}

/// `live`, an object as an API server shows it, after `body` has been applied to it: as [`apply`], and what Portreeve
/// applied earlier, nobody else owns and `body` does not have any more is gone.
pub fn apply_again(live: &Value, body: &Value) -> Value {
    let mut object = live.clone();
    let entries = live["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let (ours, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| is_ours(entry));
    let others: Vec<_> = others.into_iter().map(|entry| &entry["fieldsV1"]).collect();
    for entry in ours {
        let_go(&mut object, &entry["fieldsV1"], body, &others);
    }
    apply(Some(&object), body)
}

/// Takes out of `value` what `fields` names and `body` does not have, unless the fields of others name it too.
fn let_go(value: &mut Value, fields: &Value, body: &Value, others: &[&Value]) {
    for (path, inner) in fields.as_object().into_iter().flatten() {
        let kept: Vec<_> = others.iter().filter_map(|fields| fields.get(path)).collect();
        match step(path, body) {
            Step::Here => {}
            Step::Gone if kept.is_empty() => take_out(value, path),
            Step::Gone => {
                if let Some(value) = step_mut(path, value) {
                    let_go(value, inner, &Value::Null, &kept);
                }
            }
            Step::Into(body) => {
                if let Some(value) = step_mut(path, value) {
                    let_go(value, inner, body, &kept);
                }
            }
        }
    }
}

/// As [`step`], to change what is there. What is named by its place has nothing to go into.
fn step_mut<'v>(path: &str, value: &'v mut Value) -> Option<&'v mut Value> {
    match path.split_once(':')? {
        ("f", field) => value.get_mut(field),
        ("k", key) => value.as_array_mut()?.iter_mut().find(|item| has_key(item, key)),
        _ => None,
    }
}

fn take_out(value: &mut Value, path: &str) {
    match (path.split_once(':'), value) {
        (Some(("f", field)), Value::Object(fields)) => drop(fields.remove(field)),
        (Some(("k", key)), Value::Array(items)) => items.retain(|item| !has_key(item, key)),
        (Some(("v", text)), Value::Array(items)) => {
            items.retain(|item| serde_json::from_str::<Value>(text).map_or(true, |gone| gone != *item));
        }
        _ => {}
    }
}

fn has_key(item: &Value, key: &str) -> bool {
    serde_json::from_str::<Value>(key).is_ok_and(|key| contains("", item, &key))
}

/// The entry of `metadata.managedFields` that the API server would write for `body`.
pub fn managed_fields(body: &Value) -> Value {
    let mut fields = field_set("", body);
    if let Value::Object(root) = &mut fields {
        for identity in ["f:apiVersion", "f:kind"] {
            root.remove(identity);
        }
        if let Some(Value::Object(metadata)) = root.get_mut("f:metadata") {
            for identity in ["f:name", "f:namespace", "f:uid"] {
                metadata.remove(identity);
            }
        }
    }
    json!({
        "manager": FIELD_MANAGER,
        "operation": "Apply",
        "apiVersion": body["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    })
}

/// The key by which the list in the field `field` merges, if it does.
pub(crate) fn list_key(field: &str) -> Option<&'static str> {
    LIST_KEY.iter().find(|(name, _)| *name == field).map(|(_, key)| *key)
}

fn merge(field: &str, old: &Value, new: &Value) -> Value {
    match (old, new, list_key(field)) {
        (Value::Object(old), Value::Object(new), _) => {
            let mut merged = old.clone();
            for (name, value) in new {
                let value = old.get(name).map_or_else(|| value.clone(), |old| merge(name, old, value));
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(old), Value::Array(new), Some(key)) => merge_list(key, old, new),
        _ => new.clone(),
    }
}

fn merge_list(key: &str, old: &[Value], new: &[Value]) -> Value {
    let mut merged = old.to_vec();
    for item in new {
        match merged.iter_mut().find(|other| other[key] == item[key]) {
            Some(place) => *place = merge("", place, item),
            None => merged.push(item.clone()),
        }
    }
    Value::Array(merged)
}

fn field_set(field: &str, value: &Value) -> Value {
    let mut fields = Map::new();
    match (value, list_key(field)) {
        (Value::Object(object), _) => {
            for (name, value) in object {
                fields.insert(format!("f:{name}"), field_set(name, value));
            }
        }
        (Value::Array(items), Some(key)) => {
            for item in items {
                let mut inner = field_set("", item);
                inner["."] = json!({});
                fields.insert(format!("k:{}", json!({ key: item[key] })), inner);
            }
        }
        _ => {}
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_merge_by_name_and_other_lists_are_replaced() {
        let object =
            json!({"spec": {"listeners": [{"name": "http", "port": 80}, {"name": "t-a", "port": 1}], "other": [1, 2]}});
        let body = json!({"spec": {"listeners": [{"name": "t-a", "port": 443}, {"name": "t-b"}], "other": [3]}});
        let merged = json!({"spec": {
            "listeners": [{"name": "http", "port": 80}, {"name": "t-a", "port": 443}, {"name": "t-b"}],
            "other": [3],
        }});
        assert_eq!(apply(Some(&object), &body), merged);
    }

    #[test]
    fn what_was_applied_earlier_goes_unless_others_have_it_too() {
        let fields = |names: &[&str]| -> Value {
            let labels: Map<_, _> = names.iter().map(|name| (format!("f:{name}"), json!({}))).collect();
            let listener =
                json!({ r#"k:{"name":"t-gone"}"#: {".": {}}, r#"k:{"name":"t-a"}"#: {".": {}, "f:hostname": {}} });
            json!({"f:metadata": {"f:labels": labels}, "f:spec": {"f:listeners": listener}})
        };
        let live = json!({
            "metadata": {
                "labels": {"gone": "1", "shared": "1", "foreign": "1", "kept": "1"},
                "managedFields": [
                    {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields(&["gone", "shared", "kept"])},
                    {"manager": "x", "operation": "Update",
                        "fieldsV1": {"f:metadata": {"f:labels": {"f:shared": {}, "f:foreign": {}}}}},
                ],
            },
            "spec": {"listeners": [{"name": "t-gone"}, {"name": "http"}, {"name": "t-a", "hostname": "old", "port": 1}]},
        });
        let body = json!({"metadata": {"labels": {"kept": "2"}}, "spec": {"listeners": [{"name": "t-a"}]}});
        let after = apply_again(&live, &body);
        assert_eq!(after["metadata"]["labels"], json!({"shared": "1", "foreign": "1", "kept": "2"}));
        assert_eq!(after["spec"]["listeners"], json!([{"name": "http"}, {"name": "t-a", "port": 1}]));
    }

    /// The text of the keys is what the API server writes: compact JSON.
    #[test]
    fn managed_fields_name_every_field_but_the_identity() {
        let body = json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {"listeners": [{"name": "t-a", "port": 443}], "hostnames": ["a", "b"]},
        });
        let fields = json!({
            "f:metadata": {"f:labels": {"f:a": {}}},
            "f:spec": {
                "f:listeners": {r#"k:{"name":"t-a"}"#: {".": {}, "f:name": {}, "f:port": {}}},
                "f:hostnames": {},
            },
        });
        assert_eq!(managed_fields(&body)["fieldsV1"], fields);
    }
}
