//! Entries of Gateways that the former operator wrote: their fields are made Portreeve's own.

use gateway_api::gateways::Gateway;
use serde_json::{Map, Value, json};

use crate::output::{FIELD_MANAGER, Takeover};

impl Takeover {
    /// The JSON patch that moves the ownership of the entries to [`FIELD_MANAGER`], of the Gateway as it was just read:
    /// a `test` of its `resourceVersion`, then its whole `metadata.managedFields`. Empty when nobody else owns them.
    pub fn operations(&self, live: &Gateway) -> Vec<Value> {
        let fields = serde_json::to_value(&live.metadata.managed_fields);
        let Ok(Value::Array(mut managers)) = fields else { return Vec::new() };
        let mut taken = Map::new();
        for manager in managers.iter_mut().filter(|manager| !is_ours(manager)) {
            let Some(listeners) = manager["fieldsV1"]["f:spec"]["f:listeners"].as_object_mut() else { continue };
            let keys: Vec<String> = listeners.keys().filter(|key| self.names(key)).cloned().collect();
            taken.extend(keys.into_iter().filter_map(|key| listeners.remove_entry(&key)));
        }
        if taken.is_empty() {
            return Vec::new();
        }
        give(&mut managers, taken);
        let version = live.metadata.resource_version.as_deref().unwrap_or_default();
        vec![
            json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version }),
            json!({ "op": "replace", "path": "/metadata/managedFields", "value": managers }),
        ]
    }

    fn names(&self, key: &str) -> bool {
        entry_name(key).is_some_and(|name| self.entries.contains(&name))
    }
}

/// The listener that a key of `f:listeners` means.
pub(crate) fn entry_name(key: &str) -> Option<String> {
    let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
    key["name"].as_str().map(str::to_owned)
}

fn is_ours(manager: &Value) -> bool {
    manager["manager"] == FIELD_MANAGER && manager["operation"] == "Apply" && manager["subresource"].is_null()
}

fn give(managers: &mut Vec<Value>, taken: Map<String, Value>) {
    let place = managers.iter().position(is_ours).unwrap_or_else(|| {
        managers.push(json!({
            "manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": "gateway.networking.k8s.io/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {},
        }));
        managers.len() - 1
    });
    let spec = &mut managers[place]["fieldsV1"]["f:spec"];
    if spec["f:listeners"].is_null() {
        spec["f:listeners"] = Value::Object(Map::new());
    }
    if let Some(listeners) = spec["f:listeners"].as_object_mut() {
        listeners.extend(taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::ObjectRef;

    fn gateway(managers: &Value) -> Gateway {
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "apps", "namespace": "gw", "resourceVersion": "7", "managedFields": managers},
            "spec": {"gatewayClassName": "envoy", "listeners": []},
        });
        serde_json::from_value(object).unwrap()
    }

    fn entry(manager: &str, operation: &str, listeners: &Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "gateway.networking.k8s.io/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:listeners": listeners}},
        })
    }

    #[test]
    fn only_the_entries_of_tenants_change_hands() {
        let (shop, http) = (r#"k:{"name":"t-shop"}"#, r#"k:{"name":"http"}"#);
        let object = ObjectRef {
            api_version: "gateway.networking.k8s.io/v1".to_owned(),
            kind: "Gateway".to_owned(),
            namespace: Some("gw".to_owned()),
            name: "apps".to_owned(),
        };
        let takeover = Takeover { object, entries: vec!["t-shop".to_owned()] };
        let before = entry("operator", "Update", &json!({shop: {".": {}, "f:port": {}}, http: {"f:port": {}}}));
        let operations = takeover.operations(&gateway(&json!([before])));
        assert_eq!(operations[0]["value"], "7");
        let after = [
            entry("operator", "Update", &json!({http: {"f:port": {}}})),
            entry(FIELD_MANAGER, "Apply", &json!({shop: {".": {}, "f:port": {}}})),
        ];
        assert_eq!(operations[1]["value"], json!(after));
        assert_eq!(takeover.operations(&gateway(&json!(after))), [Value::Null; 0], "once");
    }
}
