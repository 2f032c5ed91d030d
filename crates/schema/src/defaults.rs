use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use crate::walk::{field, items};

/// Defaults as the API server applies them: parents first, so that a default is itself completed.
///
/// A null where null is no value gives way to the default, or goes; in a list, where nothing can go, it stays and is
/// refused later.
pub(crate) fn apply(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !value.is_null() || field(schema, name).is_none_or(is_nullable));
            for (name, property) in schema.properties.iter().flatten() {
                if let Some(default) = &property.default {
                    fields.entry(name.clone()).or_insert_with(|| default.0.clone());
                }
            }
            for (name, value) in fields {
                if let Some(property) = field(schema, name) {
                    apply(property, value);
                }
            }
        }
        Value::Array(list) => {
            if let Some(schema) = items(schema) {
                for item in list {
                    apply(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn is_nullable(schema: &JSONSchemaProps) -> bool {
    schema.nullable == Some(true)
}
