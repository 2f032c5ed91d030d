//! Entries of tenants that an API server refuses, for as long as nothing has changed that may be why.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, Instant};

use portreeve_plan::ObjectRef;
use portreeve_plan::claim::GatewayName;
use serde_json::Value;

use crate::execute::RejectedEntry;
use crate::reflect::cache::Cache;
use crate::reflect::kind::{KindName, Typed};
use crate::reflect::{Key, Object};

/// After this an entry is tried again, whatever was wrong with it.
const LONGEST: Duration = Duration::from_mins(10);
/// The beginning of the names of tenants' listeners.
const OF_TENANTS: &str = "t-";

/// What is refused at present.
#[derive(Debug, Default)]
pub(super) struct Rejections(BTreeMap<(GatewayName, String), Rejection>);

#[derive(Debug)]
struct Rejection {
    why: String,
    since: Instant,
    /// Of what the answer may depend on.
    mark: u64,
}

impl Rejections {
    /// Takes in what the API server has refused of a Gateway.
    pub(super) fn note(&mut self, gateway: &ObjectRef, rejected: Vec<RejectedEntry>, cache: &Cache, now: Instant) {
        let gateway = GatewayName::new(gateway.namespace.as_deref().unwrap_or_default(), &gateway.name);
        for RejectedEntry { name, why } in rejected {
            tracing::warn!(%gateway, listener = name, "the API server refuses a tenant's listener: {why}");
            let mark = mark(&gateway, &name, cache);
            self.0.insert((gateway.clone(), name), Rejection { why, since: now, mark });
        }
    }

    /// What is refused still; what may be right by now is forgotten.
    pub(super) fn present(&mut self, cache: &Cache, now: Instant) -> BTreeMap<(GatewayName, String), String> {
        self.0.retain(|(gateway, entry), rejection| {
            now < rejection.since + LONGEST && mark(gateway, entry, cache) == rejection.mark
        });
        self.0.iter().map(|(entry, rejection)| (entry.clone(), rejection.why.clone())).collect()
    }

    /// When the next one is tried again.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.values().map(|rejection| rejection.since + LONGEST).min()
    }
}

/// Changes with the Tenant of an entry, and with what of the Gateway is not tenants'.
fn mark(gateway: &GatewayName, entry: &str, cache: &Cache) -> u64 {
    let tenant = entry.strip_prefix(OF_TENANTS).unwrap_or(entry);
    let tenant = cache.get(KindName::Tenant, &Key { namespace: String::new(), name: tenant.to_owned() });
    let tenant = tenant.map(|tenant| (tenant.metadata().uid.clone(), tenant.metadata().generation));
    let key = Key { namespace: gateway.namespace.to_string(), name: gateway.name.to_string() };
    let spec = match cache.get(KindName::Gateway, &key).map(|found| &found.object) {
        Some(Object::Readable(Typed::Gateway(found))) => serde_json::to_value(&found.spec).unwrap_or_default(),
        _ => Value::Null,
    };
    let foreign = without_tenants(spec).to_string();
    BuildHasherDefault::<DefaultHasher>::default().hash_one((tenant, foreign))
}

fn without_tenants(mut spec: Value) -> Value {
    if let Some(listeners) = spec["listeners"].as_array_mut() {
        listeners.retain(|listener| !listener["name"].as_str().is_some_and(|name| name.starts_with(OF_TENANTS)));
    }
    spec
}
