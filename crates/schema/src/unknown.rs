use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use crate::Warning;
use crate::walk::walk;

/// The most letters that may be wrong in a name for it to be taken for another: one in three.
const LETTERS_PER_MISTAKE: usize = 3;

/// The fields of `object` that its schema does not have.
pub(crate) fn fields(schema: &JSONSchemaProps, object: &Value) -> Vec<Warning> {
    let mut warnings = Vec::new();
    walk(schema, object, &mut |schema, value, path| {
        let (Some(properties), Value::Object(fields)) = (&schema.properties, value) else { return };
        if schema.x_kubernetes_preserve_unknown_fields == Some(true) || schema.additional_properties.is_some() {
            return;
        }
        for name in fields.keys().filter(|name| !properties.contains_key(*name)) {
            let nearest = nearest(name, properties.keys().map(String::as_str)).map(str::to_owned);
            warnings.push(Warning { path: path.key(name), nearest });
        }
    });
    warnings
}

/// The one of `known` that `name` was probably meant to be; letter case is no difference.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&name, &candidate.to_lowercase());
    known
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| distance * LETTERS_PER_MISTAKE <= candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}
