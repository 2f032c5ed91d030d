//! Law 1: what is due, and nothing else.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde::de::{self, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
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
    let spec_differs = !live.contents_contain(body);
    let data_differs = !live.data_contains(&body["data"]);
    let metadata_differs = !contains("metadata", metadata, &body["metadata"]);
    let must_go = owned_by_us(metadata.managed_fields.as_deref()).any(|fields| fields.go_beyond(body));
    Drift {
        due: spec_differs || data_differs || metadata_differs || must_go,
        generation: metadata.generation.unwrap_or_default() + i64::from(spec_differs),
    }
}

/// The fields that Portreeve has applied earlier.
pub(crate) fn owned_by_us(entries: Option<&[ManagedFieldsEntry]>) -> impl Iterator<Item = OwnedFields<'_>> {
    let ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    let entries = entries.into_iter().flatten().filter(ours);
    entries.filter_map(|entry| entry.fields_v1.as_ref()).map(|fields| OwnedFields(&fields.0))
}

/// Whether an entry of `metadata.managedFields` tells of what Portreeve has applied.
pub(crate) fn is_ours(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER
        && entry["operation"] == "Apply"
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Fields as `FieldsV1` names them: an object, or that object's text, which is a twentieth of it in memory.
#[derive(Clone, Copy)]
pub(crate) struct OwnedFields<'a>(&'a Value);

impl<'a> OwnedFields<'a> {
    pub(crate) fn to_value(self) -> Cow<'a, Value> {
        match self.0 {
            Value::String(text) => Cow::Owned(serde_json::from_str(text).unwrap_or_default()),
            value => Cow::Borrowed(value),
        }
    }

    /// Whether they name something that `body` does not have.
    fn go_beyond(self, body: &Value) -> bool {
        match self.0 {
            Value::String(text) => Within(body).deserialize(&mut serde_json::Deserializer::from_str(text)).is_err(),
            value => Within(body).deserialize(value).is_err(),
        }
    }
}

/// Reads fields with the value beside them, and fails at the first that the value does not have.
struct Within<'b>(&'b Value);

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, fields: D) -> Result<(), D::Error> {
        fields.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Within<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fields that are wanted")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(step) = fields.next_key_seed(Path(self.0))? {
            match step {
                Step::Here => drop(fields.next_value::<IgnoredAny>()?),
                Step::Into(value) => fields.next_value_seed(Within(value))?,
                Step::Gone => return Err(A::Error::custom("a field is not wanted any more")),
            }
        }
        Ok(())
    }
}

/// Reads one path element, and follows it.
struct Path<'b>(&'b Value);

impl<'de, 'b> DeserializeSeed<'de> for Path<'b> {
    type Value = Step<'b>;

    fn deserialize<D: Deserializer<'de>>(self, path: D) -> Result<Step<'b>, D::Error> {
        path.deserialize_str(self)
    }
}

impl<'b> Visitor<'_> for Path<'b> {
    type Value = Step<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path element")
    }

    fn visit_str<E: de::Error>(self, path: &str) -> Result<Step<'b>, E> {
        Ok(step(path, self.0))
    }
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
        let beyond = |fields: Value| {
            let text = Value::String(fields.to_string());
            let beyond = OwnedFields(&fields).go_beyond(&body);
            assert_eq!(OwnedFields(&text).go_beyond(&body), beyond, "{text}");
            beyond
        };
        assert!(!beyond(json!({"f:spec": {"f:listeners": {r#"k:{"name":"t-a"}"#: {".": {}, "f:port": {}}}}})));
        assert!(beyond(json!({"f:spec": {"f:listeners": {r#"k:{"name":"t-gone"}"#: {".": {}}}}})));
        assert!(beyond(json!({"f:metadata": {"f:labels": {"f:gone": {}}}})));
        assert!(beyond(json!({"f:metadata": {"f:annotations": {"f:gone": {}}}})));
    }
}
