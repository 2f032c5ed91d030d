//! Types, bounds, patterns, required fields and unique items.

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::LocationSegment;
use jsonschema::{Draft, ValidationError, Validator};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::{Map, Value, json};

use crate::path::{Path, Segment};
use crate::unknown::nearest;
use crate::walk::{field, items, walk};
use crate::{Fault, InvalidSchema};

/// A schema's structure, compiled.
#[derive(Debug)]
pub(crate) struct Structure {
    validator: Validator,
}

impl Structure {
    pub(crate) fn of(root: &JSONSchemaProps) -> Result<Self, InvalidSchema> {
        // A struct of strings, numbers and lists becomes JSON; the error is there for types that are not.
        let mut schema = serde_json::to_value(root)
            .map_err(|source| InvalidSchema::Foreign { type_name: "JSONSchemaProps", source })?;
        to_json_schema(&mut schema);
        let options = jsonschema::options().with_draft(Draft::Draft4).should_validate_formats(true);
        options.build(&schema).map(|validator| Self { validator }).map_err(|error| InvalidSchema::Keyword(error.into()))
    }

    pub(crate) fn check(&self, root: &JSONSchemaProps, object: &Value) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.validator.iter_errors(object).map(|error| fault(root, &error)).collect();
        walk(root, object, &mut |schema, value, path| repeated_items(schema, value, path, &mut faults));
        faults
    }
}

/// Rewrites a schema of Kubernetes (OpenAPI 3.0) into JSON Schema draft 4, of which it is a dialect.
fn to_json_schema(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    if keywords.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
        keywords.insert("type".to_owned(), json!(["integer", "string"]));
    }
    if keywords.get("nullable") == Some(&json!(true)) {
        allow_null(keywords);
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(to_json_schema),
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas.iter_mut().for_each(to_json_schema),
            ("items" | "additionalProperties" | "not", schema) => to_json_schema(schema),
            // A bound reads better in a message without its ".0".
            ("minimum" | "maximum", bound) => shorten(bound),
            _ => {}
        }
    }
}

fn allow_null(keywords: &mut Map<String, Value>) {
    if let Some(type_ @ Value::String(_)) = keywords.get_mut("type") {
        *type_ = json!([type_, "null"]);
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum") {
        values.push(Value::Null);
    }
}

fn shorten(number: &mut Value) {
    if let Some(whole) = number.as_f64().and_then(|float| format!("{float}").parse::<i64>().ok()) {
        *number = json!(whole);
    }
}

/// List-maps have one item of each key, sets one of each value.
fn repeated_items(schema: &JSONSchemaProps, value: &Value, path: &Path, faults: &mut Vec<Fault>) {
    let Value::Array(list) = value else { return };
    let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default();
    let identity = |item: &Value| match schema.x_kubernetes_list_type.as_deref() {
        Some("map") => Some(keys.iter().map(|key| item[key.as_str()].clone()).collect::<Vec<_>>()),
        Some("set") => Some(vec![item.clone()]),
        _ => None,
    };
    let identities: Vec<_> = list.iter().map_while(identity).collect();
    for (index, identity) in identities.iter().enumerate() {
        let Some(first) = identities[..index].iter().position(|other| other == identity) else { continue };
        let names: Vec<String> = identity.iter().map(ToString::to_string).collect();
        faults.push(Fault {
            path: path.index(index),
            message: format!("{} is a duplicate of the item at {}", names.join(", "), path.index(first)),
            hint: None,
        });
    }
}

fn fault(root: &JSONSchemaProps, error: &ValidationError<'_>) -> Fault {
    let path = Path(error.instance_path().segments().map(segment).collect());
    // The text of a whole object helps nobody, and may be a secret.
    let message = match &**error.instance() {
        Value::Object(_) | Value::Array(_) => error.masked().to_string(),
        _ => error.to_string(),
    };
    Fault { hint: hint(root, &path, error), path, message }
}

fn segment(segment: LocationSegment<'_>) -> Segment {
    match segment {
        LocationSegment::Property(name) => Segment::Key(name.into_owned()),
        LocationSegment::Index(index) => Segment::Index(index),
    }
}

/// The allowed value that was probably meant, or the first sentence that the schema has on the field.
fn hint(root: &JSONSchemaProps, path: &Path, error: &ValidationError<'_>) -> Option<String> {
    if let (ValidationErrorKind::Enum { options }, Some(text)) = (error.kind(), error.instance().as_str()) {
        let known = options.as_array().into_iter().flatten().filter_map(Value::as_str);
        return nearest(text, known).map(|value| format!("did you mean '{value}'?"));
    }
    let schema = described(root, path)?;
    let description = match error.kind() {
        ValidationErrorKind::Required { property } => &field(schema, property.as_str()?)?.description,
        _ => &schema.description,
    };
    description.as_deref().and_then(|text| text.lines().next()).map(str::to_owned)
}

/// The schema of the value at `path`.
fn described<'a>(root: &'a JSONSchemaProps, path: &Path) -> Option<&'a JSONSchemaProps> {
    path.0.iter().try_fold(root, |schema, segment| match segment {
        Segment::Key(name) => field(schema, name),
        Segment::Index(_) => items(schema),
    })
}
