//! The entries of a shared Gateway one by one, when the API server refuses them together.

use kube::api::Api;
use kube::core::DynamicObject;
use serde_json::Value;

use super::run::{apply, in_time};
use super::{Executor, Failure};

/// An entry that the API server refuses, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RejectedEntry {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// The entries in the body of an apply; none where that is not of a Gateway.
pub(super) fn entries(body: &Value) -> Vec<Value> {
    let is_gateway = body["kind"] == "Gateway";
    body["spec"]["listeners"].as_array().filter(|_| is_gateway).cloned().unwrap_or_default()
}

impl Executor {
    /// Applies of a Gateway what it can: first the entries that it has already, so that what goes makes room; then the
    /// others, in their order.
    ///
    /// # Errors
    ///
    /// When the API server refuses even what the Gateway has, or cannot be reached.
    pub(super) async fn apply_one_by_one(
        &self,
        body: &Value,
        gateways: &Api<DynamicObject>,
    ) -> Result<(DynamicObject, Vec<RejectedEntry>), Failure> {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let live = in_time(async { Ok(gateways.get(name).await?) }).await?;
        let has: Vec<Value> = live.data["spec"]["listeners"].as_array().cloned().unwrap_or_default();
        let (mut taken, more): (Vec<_>, Vec<_>) =
            entries(body).into_iter().partition(|entry| has.iter().any(|live| contains(live, entry)));
        let mut object = in_time(apply(gateways, name, &with(body, &taken))).await?;
        let mut rejected = Vec::new();
        for entry in more {
            if !self.may_write() {
                return Err(Failure::Stopped);
            }
            taken.push(entry);
            match in_time(apply(gateways, name, &with(body, &taken))).await {
                Ok(applied) => object = applied,
                Err(Failure::Invalid(why)) => {
                    let entry = taken.pop().unwrap_or_default();
                    let name = entry["name"].as_str().unwrap_or_default().to_owned();
                    rejected.push(RejectedEntry { name, why });
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((object, rejected))
    }
}

fn with(body: &Value, entries: &[Value]) -> Value {
    let mut body = body.clone();
    if entries.is_empty() {
        if let Some(body) = body.as_object_mut() {
            body.remove("spec");
        }
    } else {
        body["spec"]["listeners"] = entries.into();
    }
    body
}

/// Whether what is wanted is there, whatever defaults are there too.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(field, wanted)| live.get(field).is_some_and(|live| contains(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
        }
        _ => live == wanted,
    }
}
