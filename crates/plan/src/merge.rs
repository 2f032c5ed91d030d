//! What server-side apply makes of an object, for whoever holds the world in memory: the standalone shell, and tests.
//!
//! This is the part of the API server's behaviour that Portreeve's own bodies need. Maps merge deeply; `listeners` merge
//! by name and `ownerReferences` by uid; every other list is replaced. What Portreeve applied earlier and no longer wants
//! must not be in `object` any more: merge each new body into the object as its author wrote it.

use serde_json::{Map, Value, json};

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
