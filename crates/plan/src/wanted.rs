//! The objects that are wanted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::object::{Key, OwnerIdentity};
use crate::view::View;

/// Complete bodies by object, and what must stay although it is not written.
pub(crate) struct Wanted<'v, 'a> {
    view: &'v View<'a>,
    pub(crate) bodies: BTreeMap<Key, Value>,
    pub(crate) kept: BTreeSet<Key>,
}

impl<'v, 'a> Wanted<'v, 'a> {
    pub(crate) fn new(view: &'v View<'a>) -> Self {
        Self { view, bodies: BTreeMap::new(), kept: BTreeSet::new() }
    }

    /// Wants an object for `owner`. False when the name is somebody else's: an object of that name is there which this
    /// owner's side did not make, or another owner, who came first, wants one.
    #[must_use]
    pub(crate) fn add(&mut self, owner: OwnerIdentity<'_>, key: &Key, body: Value) -> bool {
        let foreign = self.view.live(key).is_some_and(|live| !live.maker().is(owner, &key.namespace));
        if foreign || self.bodies.contains_key(key) {
            return false;
        }
        self.bodies.insert(key.clone(), body);
        true
    }

    /// Wants fields of an object that is somebody else's, or whose maker has been settled already.
    pub(crate) fn add_settled(&mut self, key: Key, body: Value) {
        self.bodies.insert(key, body);
    }
}
