use std::collections::{BTreeMap, BTreeSet};

use portreeve_api::names::{labels, nebari_app, tenant};
use portreeve_plan::{Apply, Event, ObjectRef, Patch, Plan, StatusWrite, Takeover};
use serde_json::{Map, Value, json};

use crate::reflect::cache::Cache;
use crate::reflect::kind::{Kind, KindName, Typed};
use crate::reflect::{Entry, Key, Object};

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    /// It gets the finalizer.
    Guard,
    /// It is made as a copy of a Secret.
    Copy,
    /// Entries of it become ours that another operator wrote.
    TakeOver,
    /// Its fields are applied.
    Apply,
    /// Entries of it that were made for an owner go.
    Patch,
    /// It is deleted.
    Delete,
    /// Its status is written.
    Status,
    /// The finalizer goes.
    Release,
}

/// One request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) object: ObjectRef,
    pub(crate) verb: Verb,
    pub(crate) request: Request,
    /// Whom it is for, where the object says so.
    pub(crate) owner: Option<ObjectRef>,
    /// The revision of the object that this was planned for; 0 where it is to be made.
    pub(crate) seen: u64,
    /// What to tell once it has succeeded.
    pub(crate) events: Vec<Event>,
}

/// What a request has in its body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Request {
    /// Server-side apply.
    Apply(Value),
    /// A merge patch of the status. It names the state that it was made for, so that it never overwrites a later one.
    Status(Value),
    /// A JSON Patch that tests what it changes.
    Patch(Value),
    /// The Secret of this name is read and made anew.
    Copy(ObjectRef),
    /// The owners of the object's fields are read and written.
    Takeover(Takeover),
    /// Nobody else's object, and no later state of it, is deleted.
    Delete {
        /// Which object.
        uid: String,
        /// In which state.
        resource_version: String,
    },
}

impl Verb {
    /// As in metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Copy => "copy",
            Self::TakeOver => "takeover",
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Status => "status",
            Self::Release => "release",
        }
    }
}

/// Turns a plan into requests: stages, one after the other, of writes that may go side by side. The events are those that
/// wait for no write.
///
/// What has changed since the plan was made is left alone: the next plan decides about it. What is not written to the API
/// server, such as the Helm client's work, is not in it.
pub(crate) fn prepare(plan: Plan, cache: &Cache) -> (Vec<Vec<Write>>, Vec<Event>) {
    let Plan { guard, copies, apply, takeovers, patches, delete, statuses, events, release, .. } = plan;
    let unguarded: BTreeSet<ObjectRef> = guard.iter().cloned().collect();
    let mut told = by_object(events.into_iter().filter(|event| !unguarded.contains(&event.about)));
    let mut stages = vec![guard.into_iter().filter_map(|object| guarded(object, cache)).collect()];
    stages.push(
        copies.into_iter().map(|copy| Write::new(copy.to, Verb::Copy, Request::Copy(copy.from), cache)).collect(),
    );
    stages.push(takeovers.into_iter().map(|takeover| taken_over(takeover, cache)).collect());
    stages.extend(applies(apply, cache));
    stages.push(patches.into_iter().map(|patch| patched(patch, cache)).collect());
    stages.push(delete.into_iter().filter_map(|object| deletion(object, cache)).collect());
    stages.push(statuses.into_iter().filter_map(|write| status(write, cache, &mut told)).collect());
    stages.push(release.into_iter().filter_map(|object| released(object, cache)).collect());
    let may_go = |write: &Write| {
        let waits = write.verb != Verb::Guard && write.owner.as_ref().is_some_and(|owner| unguarded.contains(owner));
        !waits && is_as_planned(&write.object, cache)
    };
    for stage in &mut stages {
        stage.retain(may_go);
    }
    stages.retain(|stage| !stage.is_empty());
    (stages, told.into_values().flatten().collect())
}

impl Write {
    fn new(object: ObjectRef, verb: Verb, request: Request, cache: &Cache) -> Self {
        let seen = known(&object, cache).map_or(0, |entry| entry.revision);
        let owner = match &request {
            Request::Apply(body) => owner_of(body),
            _ => Some(object.clone()),
        };
        Self { object, verb, request, owner, seen, events: Vec::new() }
    }
}

/// Whom an object is for, by its owner reference or the contract's labels.
fn owner_of(body: &Value) -> Option<ObjectRef> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let metadata = &body["metadata"];
    let owner = &metadata["ownerReferences"][0];
    if let (Some(api_version), Some(kind), Some(name)) =
        (text(&owner["apiVersion"]), text(&owner["kind"]), text(&owner["name"]))
    {
        let is_namespaced = Kind::find(&api_version, &kind).is_some_and(|kind| kind.namespaced);
        let namespace = text(&metadata["namespace"]).filter(|_| is_namespaced);
        return Some(ObjectRef { api_version, kind, namespace, name });
    }
    let label = |key: &str| text(&metadata["labels"][key]);
    let (kind, namespace, name) = match label(labels::TENANT) {
        Some(tenant) => (KindName::Tenant, None, tenant),
        None => (KindName::NebariApp, label(labels::NEBARI_APP_NAMESPACE), label(labels::NEBARI_APP_NAME)?),
    };
    let kind = Kind::of(kind);
    Some(ObjectRef { api_version: kind.parsed_as(), kind: kind.kind.to_owned(), namespace, name })
}

fn is_as_planned(object: &ObjectRef, cache: &Cache) -> bool {
    Kind::find(&object.api_version, &object.kind).is_none_or(|kind| !cache.is_touched(kind.name, &key(object)))
}

/// One stage for each kind, in the order of the plan: an object may refer to those of the stages before it.
fn applies(applies: Vec<Apply>, cache: &Cache) -> Vec<Vec<Write>> {
    let mut stages: Vec<Vec<Write>> = Vec::new();
    for Apply { object, body } in applies {
        let write = Write::new(object, Verb::Apply, Request::Apply(body), cache);
        match stages.last_mut().filter(|stage| stage.last().is_some_and(|last| last.object.kind == write.object.kind)) {
            Some(stage) => stage.push(write),
            None => stages.push(vec![write]),
        }
    }
    stages
}

/// Adds the contract's finalizer to an owner that is there, in the state in which it was found.
fn guarded(object: ObjectRef, cache: &Cache) -> Option<Write> {
    let metadata = known(&object, cache)?.metadata();
    let finalizer = finalizer(&object);
    let test = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version });
    let add = match &metadata.finalizers {
        Some(_) => json!({ "op": "add", "path": "/metadata/finalizers/-", "value": finalizer }),
        None => json!({ "op": "add", "path": "/metadata/finalizers", "value": [finalizer] }),
    };
    Some(Write::new(object, Verb::Guard, Request::Patch(json!([test, add])), cache))
}

fn taken_over(takeover: Takeover, cache: &Cache) -> Write {
    Write::new(takeover.object.clone(), Verb::TakeOver, Request::Takeover(takeover), cache)
}

fn patched(patch: Patch, cache: &Cache) -> Write {
    Write::new(patch.object, Verb::Patch, Request::Patch(patch.operations.into()), cache)
}

/// Nothing for an object that is gone, or is going already.
fn deletion(object: ObjectRef, cache: &Cache) -> Option<Write> {
    let metadata = known(&object, cache)?.metadata();
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (uid, resource_version) = (metadata.uid.clone()?, metadata.resource_version.clone()?);
    Some(Write::new(object, Verb::Delete, Request::Delete { uid, resource_version }, cache))
}

fn status(write: StatusWrite, cache: &Cache, told: &mut BTreeMap<ObjectRef, Vec<Event>>) -> Option<Write> {
    let StatusWrite { object, status } = write;
    let entry = known(&object, cache)?;
    let before = status_of(&entry.object);
    let metadata = json!({ "resourceVersion": entry.metadata().resource_version });
    let body = json!({ "metadata": metadata, "status": difference(&before, &status) });
    let events = told.remove(&object).unwrap_or_default();
    Some(Write { events, ..Write::new(object, Verb::Status, Request::Status(body), cache) })
}

fn status_of(object: &Object) -> Value {
    let status = match object {
        Object::Readable(Typed::NebariApp(app)) => serde_json::to_value(&app.status),
        Object::Readable(Typed::Tenant(tenant)) => serde_json::to_value(&tenant.status),
        _ => Ok(Value::Null),
    };
    status.unwrap_or_default()
}

/// The merge patch (RFC 7396) that makes `after` out of `before`: only what differs, and `null` for what goes.
fn difference(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let gone = old.keys().filter(|field| !new.contains_key(*field)).map(|field| (field.clone(), Value::Null));
    let changed = new.iter().filter(|(field, value)| old.get(*field) != Some(value));
    let nothing = Value::Null;
    let changed = changed.map(|(field, value)| (field.clone(), difference(old.get(field).unwrap_or(&nothing), value)));
    Value::Object(gone.chain(changed).collect::<Map<_, _>>())
}

/// Removes the contract's finalizer and no other.
fn released(object: ObjectRef, cache: &Cache) -> Option<Write> {
    let metadata = known(&object, cache)?.metadata();
    let finalizer = finalizer(&object);
    let place = metadata.finalizers.iter().flatten().position(|one| one == finalizer)?;
    let path = format!("/metadata/finalizers/{place}");
    let operations = json!([
        { "op": "test", "path": "/metadata/uid", "value": metadata.uid },
        { "op": "test", "path": path, "value": finalizer },
        { "op": "remove", "path": path },
    ]);
    Some(Write::new(object, Verb::Release, Request::Patch(operations), cache))
}

fn finalizer(owner: &ObjectRef) -> &'static str {
    if owner.kind == Kind::of(KindName::Tenant).kind { tenant::FINALIZER } else { nebari_app::FINALIZER }
}

fn by_object(events: impl Iterator<Item = Event>) -> BTreeMap<ObjectRef, Vec<Event>> {
    let mut by_object: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for event in events {
        by_object.entry(event.about.clone()).or_default().push(event);
    }
    by_object
}

fn known<'a>(object: &ObjectRef, cache: &'a Cache) -> Option<&'a Entry> {
    let kind = Kind::find(&object.api_version, &object.kind)?;
    cache.get(kind.name, &key(object))
}

/// What the object is called in the cache.
pub(crate) fn key(object: &ObjectRef) -> Key {
    Key { namespace: object.namespace.clone().unwrap_or_default(), name: object.name.clone() }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
