//! What the Helm client's own records say of releases.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use portreeve_api::names::labels;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::output::VALUES_LABEL;
use crate::world::World;

/// How long a client may be at work on a release before it is taken to have died over it. Helm's own limit is half of it.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// Bytes of the hash that tells values apart.
const DIGEST_BYTES: usize = 16;

/// The newest revision of a release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    revision: u64,
    pub(crate) status: &'a str,
    /// What it was installed with, as [`digest`] says it; absent for what others have installed.
    pub(crate) digest: Option<&'a str>,
    written: Option<Timestamp>,
}

/// The newest revision of each release, by its namespace and name.
pub(crate) fn releases(world: &World) -> HashMap<(&str, &str), Release<'_>> {
    let mut newest: HashMap<(&str, &str), Release<'_>> = HashMap::new();
    for (name, release) in world.helm_releases.iter().filter_map(|record| read(record)) {
        let known = newest.entry(name).or_insert(release);
        if known.revision < release.revision {
            *known = release;
        }
    }
    newest
}

/// Tells chart, version and values from any others; fit for the value of a label.
pub(crate) fn digest(chart: &str, version: &str, values: &Value) -> String {
    let hash = Sha256::digest(json!([chart, version, values]).to_string());
    hash.iter().take(DIGEST_BYTES).fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

impl Release<'_> {
    /// Until when somebody is taken to be at work on it; `None` when nobody is at `now`.
    pub(crate) fn busy_until(&self, now: Timestamp) -> Option<Timestamp> {
        let is_busy = self.status.starts_with("pending-") || self.status == "uninstalling";
        let until = self.written? + PATIENCE;
        (is_busy && until > now).then_some(until)
    }

    /// Whether it was removed, and only its record was kept.
    pub(crate) fn is_removed(&self) -> bool {
        self.status == "uninstalled"
    }
}

fn read(record: &Secret) -> Option<((&str, &str), Release<'_>)> {
    let metadata = &record.metadata;
    let labels = metadata.labels.as_ref()?;
    let label = |key: &str| labels.get(key).map(String::as_str);
    let release = Release {
        revision: label(labels::HELM_REVISION)?.parse().ok()?,
        status: label(labels::HELM_STATUS)?,
        digest: label(VALUES_LABEL),
        written: metadata.creation_timestamp.as_ref().map(|time| time.0),
    };
    Some(((metadata.namespace.as_deref()?, label(labels::HELM_RELEASE)?), release))
}
