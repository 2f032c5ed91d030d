//! Law 1: what is due, and nothing else.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::Value;

use crate::contains::contains;
use crate::object::Live;
use crate::output::FIELD_MANAGER;

/// How an object differs from what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift {
    /// Whether a write is due.
    pub(crate) due: bool,
    /// `metadata.generation` of the object once it is as wanted.
    pub(crate) generation: i64,
}

/// How an object differs from the body that is wanted of it.
pub(crate) fn differ(live: Option<Live<'_>>, body: &Value) -> Drift {
    let Some(live) = live else { return Drift { due: true, generation: 1 } };
    let metadata = live.metadata();
    let spec_differs = !live.spec_contains(&body["spec"]);
    let data_differs = !live.data_contains(&body["data"]);
    let metadata_differs = !contains("metadata", metadata, &body["metadata"]);
    let mut ours = owned_by_us(metadata.managed_fields.as_deref());
    let must_go = ours.any(|fields| goes_beyond(fields, body));
    Drift {
        due: spec_differs || data_differs || metadata_differs || must_go,
        generation: metadata.generation.unwrap_or_default() + i64::from(spec_differs),
    }
}

/// The fields that Portreeve has applied earlier, as `FieldsV1`.
pub(crate) fn owned_by_us(entries: Option<&[ManagedFieldsEntry]>) -> impl Iterator<Item = &Value> {
    let ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    entries.into_iter().flatten().filter(ours).filter_map(|entry| entry.fields_v1.as_ref()).map(|fields| &fields.0)
}

/// Whether an entry of `metadata.managedFields` tells of what Portreeve has applied.
pub(crate) fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Whether `fields` names something that `body` does not have.
fn goes_beyond(fields: &Value, body: &Value) -> bool {
    let Value::Object(fields) = fields else { return false };
    fields.iter().any(|(path, inner)| match step(path, body) {
        Step::Here => false,
        Step::Into(value) => goes_beyond(inner, value),
        Step::Gone => true,
    })
}

pub(crate) enum Step<'a> {
    Here,
    Into(&'a Value),
    Gone,
}

/// Follows one path element of `FieldsV1`: `f:` a field, `k:` an item of a list by its key, `v:` a value of a set, `i:`
/// an item by its place, `.` the thing itself.
pub(crate) fn step<'a>(path: &str, value: &'a Value) -> Step<'a> {
    let found = match path.split_once(':') {
        Some(("f", field)) => value.get(field),
        Some(("k", key)) => item(value, |item| {
            let key: Value = serde_json::from_str(key).unwrap_or_default();
            contains("", item, &key)
        }),
        Some(("v", text)) => {
            item(value, |item| serde_json::from_str::<Value>(text).is_ok_and(|wanted| wanted == *item))
        }
        Some(("i", place)) => place.parse::<usize>().ok().and_then(|place| value.get(place)),
        _ => return Step::Here,
    };
    found.map_or(Step::Gone, Step::Into)
}

fn item(list: &Value, is_it: impl Fn(&Value) -> bool) -> Option<&Value> {
    list.as_array()?.iter().find(|item| is_it(item))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_we_set_earlier_has_to_go() {
        let body = json!({"spec": {"listeners": [{"name": "t-a", "port": 1}]}, "metadata": {"labels": {"a": "1"}}});
        let beyond = |fields: Value| goes_beyond(&fields, &body);
        assert!(!beyond(json!({"f:spec": {"f:listeners": {r#"k:{"name":"t-a"}"#: {".": {}, "f:port": {}}}}})));
        assert!(beyond(json!({"f:spec": {"f:listeners": {r#"k:{"name":"t-gone"}"#: {".": {}}}}})));
        assert!(beyond(json!({"f:metadata": {"f:labels": {"f:gone": {}}}})));
        assert!(beyond(json!({"f:metadata": {"f:annotations": {"f:gone": {}}}})));
    }
}
