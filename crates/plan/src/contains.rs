//! Whether what is wanted is in what is there.
//!
//! What is there is walked as it would be serialized, with what is wanted beside it. So a whole object is compared
//! without a copy of it, and what nobody asks for is passed over.

use std::fmt::Display;
use std::slice::Iter;

use serde::ser::{self, Error as _, Impossible, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::merge::list_key;

/// Whether everything that is `wanted` is in what is `there`, the value of `field`. Maps may have more; so may lists
/// that merge by a key. Every other list is one whole, which whoever writes it replaces: it has to be as long, and nothing in
/// it may have more than what API servers fill in.
pub(crate) fn contains<T: Serialize + ?Sized>(field: &str, there: &T, wanted: &Value) -> bool {
    compare(field, there, wanted, false)
}

/// What API servers fill in where it is left out of items of lists, in the kinds that Portreeve writes.
const FILLED_IN: [&str; 8] = ["cacheDuration", "group", "kind", "matches", "path", "protocol", "type", "weight"];

/// `whole`: within a list that is one whole.
fn compare<T: Serialize + ?Sized>(field: &str, there: &T, wanted: &Value, whole: bool) -> bool {
    wanted.is_null() || there.serialize(Beside { field, wanted, whole }).is_ok()
}

/// What is wanted, beside the value that is being serialized.
struct Beside<'w> {
    field: &'w str,
    wanted: &'w Value,
    whole: bool,
}

/// Something that is wanted is not there; ends the walk.
#[derive(Debug)]
struct Differs;

type Outcome = Result<(), Differs>;

fn same(is_same: bool) -> Outcome {
    if is_same { Ok(()) } else { Err(Differs) }
}

impl Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("something that is wanted is not there")
    }
}

impl std::error::Error for Differs {}

impl ser::Error for Differs {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

/// The fields of an object of which some are wanted.
struct Fields<'w> {
    wanted: &'w Map<String, Value>,
    whole: bool,
    found: usize,
    /// The key whose value comes next.
    key: String,
}

impl Fields<'_> {
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, there: &T) -> Outcome {
        let Some(wanted) = self.wanted.get(name) else {
            return same(!self.whole || FILLED_IN.contains(&name) || is_nothing(there));
        };
        self.found += 1;
        same(compare(name, there, wanted, self.whole))
    }

    fn finish(self) -> Outcome {
        same(self.found == self.wanted.len())
    }
}

fn is_nothing<T: Serialize + ?Sized>(there: &T) -> bool {
    serde_json::to_value(there).is_ok_and(|there| there.is_null())
}

/// The items of a list.
enum Items<'w> {
    /// Items that merge by a key: those that were not met yet.
    Missing(Vec<&'w Value>),
    /// All of them in order: those that are to come.
    InOrder(Iter<'w, Value>),
}

impl Items<'_> {
    fn item<T: Serialize + ?Sized>(&mut self, there: &T) -> Outcome {
        match self {
            Self::Missing(items) => {
                items.retain(|wanted| !contains("", there, wanted));
                Ok(())
            }
            Self::InOrder(items) => same(items.next().is_some_and(|wanted| compare("", there, wanted, true))),
        }
    }

    fn finish(self) -> Outcome {
        same(match self {
            Self::Missing(items) => items.is_empty(),
            Self::InOrder(items) => items.len() == 0,
        })
    }
}

/// JSON tells whole numbers apart by their value alone.
macro_rules! whole_numbers {
    ($($method:ident: $type:ty as $widest:ty = $read:ident),*) => {
        $(fn $method(self, there: $type) -> Outcome {
            same(self.wanted.$read() == Some(<$widest>::from(there)))
        })*
    };
}

impl<'w> Serializer for Beside<'w> {
    type Ok = ();
    type Error = Differs;
    type SerializeSeq = Items<'w>;
    type SerializeMap = Fields<'w>;
    type SerializeStruct = Fields<'w>;
    // No object that Portreeve writes has tuples, or enums with fields.
    type SerializeTuple = Impossible<(), Differs>;
    type SerializeTupleStruct = Impossible<(), Differs>;
    type SerializeTupleVariant = Impossible<(), Differs>;
    type SerializeStructVariant = Impossible<(), Differs>;

    whole_numbers! {
        serialize_i8: i8 as i64 = as_i64, serialize_i16: i16 as i64 = as_i64,
        serialize_i32: i32 as i64 = as_i64, serialize_i64: i64 as i64 = as_i64,
        serialize_u8: u8 as u64 = as_u64, serialize_u16: u16 as u64 = as_u64,
        serialize_u32: u32 as u64 = as_u64, serialize_u64: u64 as u64 = as_u64
    }

    fn serialize_bool(self, there: bool) -> Outcome {
        same(self.wanted.as_bool() == Some(there))
    }

    fn serialize_f32(self, there: f32) -> Outcome {
        self.serialize_f64(there.into())
    }

    fn serialize_f64(self, there: f64) -> Outcome {
        same(self.wanted.is_f64() && *self.wanted == there)
    }

    fn serialize_char(self, there: char) -> Outcome {
        self.serialize_str(there.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, there: &str) -> Outcome {
        same(self.wanted.as_str() == Some(there))
    }

    fn serialize_bytes(self, there: &[u8]) -> Outcome {
        same(*self.wanted == Value::from(there))
    }

    fn serialize_none(self) -> Outcome {
        Err(Differs)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, there: &T) -> Outcome {
        there.serialize(self)
    }

    fn serialize_unit(self) -> Outcome {
        Err(Differs)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Outcome {
        Err(Differs)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Outcome {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, there: &T) -> Outcome {
        there.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Outcome {
        Err(Differs)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'w>, Differs> {
        let items = self.wanted.as_array().ok_or(Differs)?;
        Ok(match list_key(self.field) {
            Some(_) => Items::Missing(items.iter().collect()),
            None => Items::InOrder(items.iter()),
        })
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Differs> {
        Err(Differs)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Differs> {
        Err(Differs)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Differs> {
        Err(Differs)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Fields<'w>, Differs> {
        let wanted = self.wanted.as_object().ok_or(Differs)?;
        // Part of a selector, where one label more is another meaning.
        if self.field == "matchLabels" && length != Some(wanted.len()) {
            return Err(Differs);
        }
        Ok(Fields { wanted, whole: self.whole, found: 0, key: String::new() })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Fields<'w>, Differs> {
        self.serialize_map(Some(length))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Differs> {
        Err(Differs)
    }
}

impl ser::SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Differs;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, there: &T) -> Outcome {
        self.field(name, there)
    }

    fn end(self) -> Outcome {
        self.finish()
    }
}

impl ser::SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Differs;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Outcome {
        let Ok(Value::String(key)) = serde_json::to_value(key) else { return Err(Differs::custom("no text")) };
        self.key = key;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, there: &T) -> Outcome {
        let key = std::mem::take(&mut self.key);
        self.field(&key, there)
    }

    fn end(self) -> Outcome {
        self.finish()
    }
}

impl ser::SerializeSeq for Items<'_> {
    type Ok = ();
    type Error = Differs;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, there: &T) -> Outcome {
        self.item(there)
    }

    fn end(self) -> Outcome {
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_that_the_server_added_are_no_difference() {
        let wanted = json!({"listeners": [{"name": "a", "port": 1}], "hostnames": ["x"]});
        let there = json!({
            "listeners": [{"name": "http"}, {"name": "a", "port": 1, "added": true}], "hostnames": ["x"], "more": 1,
        });
        assert!(contains("spec", &there, &wanted));
        let longer = json!({"listeners": [{"name": "a", "port": 1}], "hostnames": ["x", "y"]});
        assert!(!contains("spec", &longer, &wanted));
    }

    /// What is compared are the fields of the JSON, whatever the types call them.
    #[test]
    fn a_typed_object_is_compared_as_its_json() {
        let spec = json!({
            "parentRefs": [{"name": "gate", "sectionName": "https", "port": 443}],
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "web"}]}],
        });
        let there: gateway_api::httproutes::HttpRouteSpec = serde_json::from_value(spec.clone()).unwrap();
        assert!(contains("spec", &there, &spec));
        for (place, other) in [
            ("/parentRefs/0/port", json!(444)),
            ("/parentRefs/0/sectionName", json!("http")),
            ("/rules/0/matches/0/path/type", json!("Exact")),
            ("/rules/0/backendRefs", json!([])),
        ] {
            let mut wanted = spec.clone();
            *wanted.pointer_mut(place).unwrap() = other;
            assert!(!contains("spec", &there, &wanted), "{place}");
        }
    }

    #[test]
    fn of_a_list_that_is_one_whole_nothing_has_more_than_servers_fill_in() {
        let wanted = json!({"rules": [{"backendRefs": [{"name": "web", "port": 1}]}]});
        let there = |backend: Value, rule: Value| {
            let mut rule = rule;
            rule["backendRefs"] = json!([backend]);
            json!({ "rules": [rule], "more": 1 })
        };
        let filled = there(json!({"name": "web", "port": 1, "weight": 1, "group": ""}), json!({"matches": []}));
        assert!(contains("spec", &filled, &wanted));
        let elsewhere = there(json!({"name": "web", "port": 1, "namespace": "other"}), json!({}));
        let filtered = there(json!({"name": "web", "port": 1}), json!({"filters": []}));
        assert!(!contains("spec", &elsewhere, &wanted) && !contains("spec", &filtered, &wanted));
    }

    /// The definition, by whole copies.
    fn by_copies(field: &str, there: &Value, wanted: &Value, whole: bool) -> bool {
        match (there, wanted, list_key(field)) {
            (_, Value::Null, _) => true,
            (Value::Object(there), Value::Object(wanted), _) => {
                let more = |(name, value): (&String, &Value)| !wanted.contains_key(name) && !value.is_null();
                let is_there = |(name, wanted): (&String, &Value)| {
                    there.get(name).is_some_and(|there| by_copies(name, there, wanted, whole))
                };
                wanted.iter().all(is_there) && !(whole && there.iter().any(more))
            }
            (Value::Array(there), Value::Array(wanted), Some(_)) => {
                wanted.iter().all(|wanted| there.iter().any(|there| by_copies("", there, wanted, false)))
            }
            (Value::Array(there), Value::Array(wanted), None) => {
                there.len() == wanted.len()
                    && there.iter().zip(wanted).all(|(there, wanted)| by_copies("", there, wanted, true))
            }
            _ => there == wanted,
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-1..2i64).prop_map(Value::from),
            Just(json!(1.0)),
            "[ab]?".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let name = prop_oneof![Just("listeners"), Just("a"), Just("b")].prop_map(str::to_owned);
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map(name, inner, 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Origin: a random case of the property below.
    #[test]
    fn a_whole_number_is_not_one_with_a_fraction() {
        for (there, wanted) in [(json!(1.0), json!(1)), (json!(1), json!(1.0))] {
            assert!(!contains("a", &there, &wanted) && contains("a", &there, &there));
        }
    }

    proptest! {
        #[test]
        fn is_what_its_definition_says(there in values(), wanted in values()) {
            for wanted in [&wanted, &there] {
                prop_assert_eq!(contains("a", &there, wanted), by_copies("a", &there, wanted, false));
            }
        }
    }
}
