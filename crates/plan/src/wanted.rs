//! The objects that are wanted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::differ::{Drift, differ};
use crate::object::{Key, OwnerIdentity};
use crate::output::Apply;
use crate::view::View;

/// What is wanted, and how it differs from what is there. Bodies are kept only of what has to be written.
pub(crate) struct Wanted<'v, 'a> {
    view: &'v View<'a>,
    drifts: HashMap<Key, Drift>,
    due: BTreeMap<Key, Value>,
    /// What must stay although it is not written.
    pub(crate) kept: BTreeSet<Key>,
}

impl<'v, 'a> Wanted<'v, 'a> {
    pub(crate) fn new(view: &'v View<'a>) -> Self {
        Self { view, drifts: HashMap::new(), due: BTreeMap::new(), kept: BTreeSet::new() }
    }

    /// Wants an object for `owner`. False when the name is somebody else's: an object of that name is there which this
    /// owner's side did not make, or another owner, who came first, wants one.
    #[must_use]
    pub(crate) fn add(&mut self, owner: OwnerIdentity<'_>, key: &Key, body: Value) -> bool {
        let foreign = self.view.live(key).is_some_and(|live| !live.maker().is(owner));
        if foreign || self.is_wanted(key) {
            return false;
        }
        self.add_settled(key.clone(), body);
        true
    }

    /// Wants fields of an object that is somebody else's, or whose maker has been settled already. Of several bodies
    /// the last counts.
    pub(crate) fn add_settled(&mut self, key: Key, body: Value) {
        let drift = differ(self.view.live(&key), &body);
        self.due.remove(&key);
        if drift.due {
            self.due.insert(key.clone(), body);
        }
        self.drifts.insert(key, drift);
    }

    pub(crate) fn is_wanted(&self, key: &Key) -> bool {
        self.drifts.contains_key(key)
    }

    /// The generation that an object has once it is as wanted; 0 when it is not wanted.
    pub(crate) fn generation(&self, key: &Key) -> i64 {
        self.drifts.get(key).map_or(0, |drift| drift.generation)
    }

    /// What is to be written of an object, if anything is.
    pub(crate) fn due(&self, key: &Key) -> Option<&Value> {
        self.due.get(key)
    }

    /// All that is to be written, in the order in which it must be.
    pub(crate) fn applies(self) -> Vec<Apply> {
        let apply = self.due.into_iter().map(|(key, body)| {
            let api_version = body["apiVersion"].as_str().unwrap_or_default();
            Apply { object: key.object_ref(api_version), body }
        });
        apply.collect()
    }
}
