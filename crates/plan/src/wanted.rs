//! The objects that are wanted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gateway_api::listenersets::ListenerSet;
use portreeve_api::conditions::events;
use serde_json::{Value, json};

use crate::body::GATEWAY_API_V1;
use crate::condition::{Finding, Reason};
use crate::differ::{Drift, OwnedFields, differ, owned_by_us};
use crate::object::{Key, Live, OwnerIdentity, maker_of};
use crate::output::{Apply, Event, Patch};
use crate::text::list;
use crate::view::View;

/// What is wanted, and how it differs from what is there. Bodies are kept only of what has to be written.
pub(crate) struct Wanted<'v, 'a> {
    view: &'v View<'a>,
    drifts: HashMap<Key, Drift>,
    due: BTreeMap<Key, Value>,
    /// What somebody else has put into objects of ours, and is to go.
    strays: Vec<(Patch, Event)>,
    /// What must stay although it is not written.
    pub(crate) kept: BTreeSet<Key>,
}

impl<'v, 'a> Wanted<'v, 'a> {
    pub(crate) fn new(view: &'v View<'a>) -> Self {
        Self { view, drifts: HashMap::new(), due: BTreeMap::new(), strays: Vec::new(), kept: BTreeSet::new() }
    }

    /// Wants an object for `owner`. False when the name is somebody else's: an object of that name is there which this
    /// owner's side did not make, or another owner, who came first, wants one.
    #[must_use]
    pub(crate) fn add(&mut self, owner: OwnerIdentity<'_>, key: &Key, body: Value) -> bool {
        let unreadable = || self.view.unreadable(key).map(|metadata| maker_of(key.kind, metadata));
        let maker = self.view.live(key).map(Live::maker).or_else(unreadable);
        let foreign = maker.is_some_and(|maker| !maker.is(owner));
        if foreign || self.is_wanted(key) {
            return false;
        }
        if let Some(Live::ListenerSet(set)) = self.view.live(key) {
            self.strays.extend(strays(set, key, &body, owner));
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

    /// Why an object is not as it is wanted: the API server refused it when it was applied last.
    pub(crate) fn refusal(&self, key: &Key) -> Option<Finding> {
        let api_version = self.due.get(key)?["apiVersion"].as_str().unwrap_or_default();
        let why = self.view.refused(&key.object_ref(api_version))?;
        Some(Reason::WriteRefused.because(format!("the API server refuses {}: {why}", key.describe())))
    }

    /// What is to be written of an object, if anything is.
    pub(crate) fn due(&self, key: &Key) -> Option<&Value> {
        self.due.get(key)
    }

    /// What is to be taken out of objects of ours, and what their owners are told.
    pub(crate) fn take_strays(&mut self) -> Vec<(Patch, Event)> {
        std::mem::take(&mut self.strays)
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

/// That the name of an object which is wanted for `whom` is somebody else's.
pub(crate) fn foreign(key: &Key, whom: &str) -> Finding {
    let what = key.describe();
    Reason::ForeignObject.because(format!("{what} is there and was not made for this {whom}; rename or delete it"))
}

/// What a ListenerSet of ours has that its body has not: server-side apply leaves it, and so it would serve names that nobody
/// was granted.
fn strays(set: &ListenerSet, key: &Key, body: &Value, owner: OwnerIdentity<'_>) -> Option<(Patch, Event)> {
    let wanted = |name: &str| {
        let listeners = body["spec"]["listeners"].as_array();
        listeners.into_iter().flatten().find(|listener| listener["name"] == name)
    };
    owned_by_us(set.metadata.managed_fields.as_deref()).next()?;
    // What we put there ourselves goes with the next apply.
    let is_ours = |name: &str, field: &str| {
        let entry = json!({ "name": name }).to_string();
        let mut ours = owned_by_us(set.metadata.managed_fields.as_deref()).map(OwnedFields::to_value);
        ours.any(|fields| !fields["f:spec"]["f:listeners"][format!("k:{entry}")][field].is_null())
    };
    let (mut operations, mut names) = (Vec::new(), BTreeSet::new());
    // From the end, so that no place changes meanwhile.
    for (place, listener) in set.spec.listeners.iter().enumerate().rev() {
        let (name, path) = (&listener.name, format!("/spec/listeners/{place}"));
        let gone = match wanted(name) {
            None if !is_ours(name, ".") => path.clone(),
            Some(wanted)
                if wanted["hostname"].is_null() && listener.hostname.is_some() && !is_ours(name, "f:hostname") =>
            {
                format!("{path}/hostname")
            }
            _ => continue,
        };
        operations.push(json!({ "op": "test", "path": format!("{path}/name"), "value": name }));
        operations.push(json!({ "op": "remove", "path": gone }));
        names.insert(name.clone());
    }
    let object = key.object_ref(GATEWAY_API_V1);
    let message = format!("{} has what Portreeve did not put there; removed from: {}", key.describe(), list(&names));
    let reason = events::LISTENERS_RESTORED.to_owned();
    let event = Event { about: owner.object_ref(), warning: true, reason, message };
    (!operations.is_empty()).then_some((Patch { object, operations }, event))
}
