//! Walking a value and its schema side by side.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use crate::path::Path;

/// Calls `visit` with every value that the schema describes, parents first.
pub(crate) fn walk(schema: &JSONSchemaProps, value: &Value, visit: &mut dyn FnMut(&JSONSchemaProps, &Value, &Path)) {
    walk_at(schema, value, &Path::default(), visit);
}

/// The schema of the field `name` of an object.
pub(crate) fn field<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    let declared = schema.properties.as_ref().and_then(|properties| properties.get(name));
    declared.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values),
        _ => None,
    })
}

/// The schema of the items of a list.
pub(crate) fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items),
        _ => None,
    }
}

/// The schemas directly below `schema`.
pub(crate) fn children(schema: &JSONSchemaProps) -> impl Iterator<Item = &JSONSchemaProps> {
    let values = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
        _ => None,
    };
    schema.properties.iter().flat_map(|properties| properties.values()).chain(values).chain(items(schema))
}

fn walk_at(
    schema: &JSONSchemaProps,
    value: &Value,
    path: &Path,
    visit: &mut dyn FnMut(&JSONSchemaProps, &Value, &Path),
) {
    visit(schema, value, path);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(schema) = field(schema, name) {
                    walk_at(schema, value, &path.key(name), visit);
                }
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                if let Some(schema) = items(schema) {
                    walk_at(schema, item, &path.index(index), visit);
                }
            }
        }
        _ => {}
    }
}
