//! Every object that there is: what people wrote, what the plan has applied to it, and the statuses.
//!
//! This is what an API server would hold, in memory: nothing here decides.

mod assumed;
mod certificates;
mod converge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use assumed::{BackendEndpoint, LOCAL_ISSUER, NoBackendEndpoint, assume, default_gateways};
pub use converge::{Converged, Environment, Unsettled, converge};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use portreeve_api::SecurityPolicy;
use portreeve_attach::AdminPolicy;
use portreeve_plan::claim::{Owner, OwnerKind};
use portreeve_plan::{Absent, Apply, ObjectRef, merge};
use serde::Serialize;
use serde_json::{Value, json};

use crate::kinds::{Kind, ParseFault, Typed, split_api_version, stable_uid};

/// The claims that were granted, by owner (`Kind/namespace/name`), as `status.claims` has them.
///
/// This is the record by which an incumbent keeps its name over a restart.
pub type Claims = BTreeMap<String, Value>;

/// Every object that there is.
#[derive(Debug, Default)]
pub struct World {
    entries: BTreeMap<ObjectRef, Entry>,
    claims: Claims,
}

/// One object.
#[derive(Debug)]
struct Entry {
    /// As its author wrote it; absent for what the plan made.
    written: Option<(Author, Arc<Value>)>,
    /// What the plan has applied last.
    applied: Option<Value>,
    status: Option<Value>,
    generation: i64,
    /// When the plan made it: what its author wrote without a time counts as newer.
    made: Option<Timestamp>,
    /// All of the above, as an API server would show it.
    shown: Arc<Value>,
    /// `shown`, parsed; absent for kinds that are only written.
    typed: Option<Typed>,
}

/// Who writes whole objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Author {
    /// Manifests, and what stands in for manifests that nobody has to write.
    People,
    /// The Secrets of Certificates. People's Secrets go before these.
    Authority,
}

/// An object that is not what its kind says, so that an API server would refuse it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} cannot be stored, {field}: {message}")]
pub struct Refused {
    /// Which object.
    pub object: String,
    /// Which field.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl World {
    /// Nothing but the record of who was granted what.
    pub fn new(claims: Claims) -> Self {
        Self { entries: BTreeMap::new(), claims }
    }

    /// Makes the objects that people wrote exactly these.
    ///
    /// `is_complete` says whether an object that is absent is known to be gone: if not, what it was granted stays on
    /// record, so that a file that cannot be read costs nobody a name.
    pub fn rewrite(&mut self, objects: BTreeMap<ObjectRef, Arc<Value>>, is_complete: bool) -> Vec<Refused> {
        let changes = self.replace(Author::People, objects);
        if is_complete {
            let owners: BTreeSet<_> = self.entries.keys().map(ToString::to_string).collect();
            self.claims.retain(|owner, _| owners.contains(owner));
        }
        changes.into_iter().filter_map(Result::err).collect()
    }

    /// Makes the objects of one author exactly these; yields an item for each that changed.
    fn replace(&mut self, author: Author, mut objects: BTreeMap<ObjectRef, Arc<Value>>) -> Vec<Result<(), Refused>> {
        let before = self.entries.len();
        self.entries.retain(|object, entry| entry.author() != Some(author) || objects.contains_key(object));
        let removed = before - self.entries.len();
        objects.retain(|object, value| match self.entries.get(object).and_then(|entry| entry.written.as_ref()) {
            Some((Author::People, _)) if author != Author::People => false,
            Some((other, old)) => *other != author || old != value,
            None => true,
        });
        let changed = objects.into_iter().map(|(object, value)| {
            let remembered = self.claims.get(&object.to_string()).map(|claims| json!({ "claims": claims }));
            let entry = self.entries.entry(object.clone()).or_insert_with(|| Entry::new(remembered));
            entry.written = Some((author, value));
            entry.show(&object)
        });
        changed.chain(std::iter::repeat_with(|| Ok(())).take(removed)).collect()
    }

    /// What server-side apply does; returns whether that changed anything.
    pub fn apply(&mut self, apply: &Apply, now: Timestamp) -> Result<bool, Refused> {
        if owns_nothing(&apply.body) {
            return self.delete(&apply.object);
        }
        let entry = self.entries.entry(apply.object.clone()).or_insert_with(|| Entry::new(None));
        if entry.applied.as_ref() == Some(&apply.body) {
            return Ok(false);
        }
        entry.applied = Some(apply.body.clone());
        entry.made.get_or_insert(now);
        entry.show(&apply.object)?;
        Ok(true)
    }

    /// Removes an object, or from one that people wrote what was applied to it; returns whether there was anything.
    pub fn delete(&mut self, object: &ObjectRef) -> Result<bool, Refused> {
        let Some(entry) = self.entries.get_mut(object) else { return Ok(false) };
        if entry.written.is_none() {
            self.entries.remove(object);
            return Ok(true);
        }
        let was_applied = entry.applied.take().is_some();
        entry.show(object)?;
        Ok(was_applied)
    }

    /// Replaces a status; returns whether it differed. A status of an object that is gone is dropped.
    pub fn set_status(&mut self, object: &ObjectRef, status: Value) -> Result<bool, Refused> {
        let Some(entry) = self.entries.get_mut(object) else { return Ok(false) };
        if entry.status.as_ref() == Some(&status) {
            return Ok(false);
        }
        if matches!(object.kind.as_str(), "NebariApp" | "Tenant") {
            match status.get("claims").filter(|claims| **claims != json!([])) {
                Some(claims) => self.claims.insert(object.to_string(), claims.clone()),
                None => self.claims.remove(&object.to_string()),
            };
        }
        entry.status = Some(status);
        entry.show(object)?;
        Ok(true)
    }

    /// Who was granted what; write it down before it is served.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// An object as an API server would show it.
    pub fn get(&self, object: &ObjectRef) -> Option<&Arc<Value>> {
        self.entries.get(object).map(|entry| &entry.shown)
    }

    /// Whether people wrote this object, as opposed to Portreeve.
    pub fn is_written(&self, object: &ObjectRef) -> bool {
        self.entries.get(object).is_some_and(|entry| entry.author() == Some(Author::People))
    }

    /// An object as people wrote it, if they did.
    pub(crate) fn written(&self, object: &ObjectRef) -> Option<&Arc<Value>> {
        let (author, value) = self.entries.get(object)?.written.as_ref()?;
        (*author == Author::People).then_some(value)
    }

    /// Every object, in order.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectRef, &Arc<Value>)> {
        self.entries.iter().map(|(object, entry)| (object, &entry.shown))
    }

    /// The objects to which the plan has applied something, with what it applied.
    pub fn applied(&self) -> impl Iterator<Item = (&ObjectRef, &Value)> {
        self.entries.iter().filter_map(|(object, entry)| Some((object, entry.applied.as_ref()?)))
    }

    /// Every object of a kind that is read.
    pub fn typed(&self) -> impl Iterator<Item = &Typed> {
        self.entries.values().filter_map(|entry| entry.typed.as_ref())
    }

    /// What decides what a gateway serves.
    pub fn attach_objects(&self) -> portreeve_attach::Objects {
        attach_objects(self.typed())
    }

    /// Owners that are on record but are not there: the file that has them cannot be read.
    fn absent(&self) -> Vec<Absent> {
        let present: BTreeSet<_> = self.entries.keys().map(ToString::to_string).collect();
        let absent = self.claims.iter().filter(|(owner, _)| !present.contains(*owner));
        absent.filter_map(|(owner, grants)| absent_owner(owner, grants)).collect()
    }

    /// What a plan may depend on.
    pub fn plan_world(&self, now: jiff::Timestamp, config: &portreeve_plan::Config) -> portreeve_plan::World {
        let absent = self.absent();
        let mut world =
            portreeve_plan::World { now, config: config.clone(), absent, ..portreeve_plan::World::default() };
        for typed in self.typed() {
            match typed {
                Typed::NebariApp(object) => world.apps.push(object.clone()),
                Typed::Tenant(object) => world.tenants.push(object.clone()),
                Typed::Namespace(object) => world.namespaces.push(object.clone()),
                Typed::Service(object) => world.services.push(object.clone()),
                Typed::EndpointSlice(object) => world.endpoint_slices.push(object.clone()),
                Typed::Secret(object) => world.secrets.push(object.clone()),
                Typed::Gateway(object) => world.gateways.push(object.clone()),
                Typed::ListenerSet(object) => world.listener_sets.push(object.clone()),
                Typed::HttpRoute(object) => world.http_routes.push(object.clone()),
                Typed::TlsRoute(object) => world.tls_routes.push(object.clone()),
                Typed::ReferenceGrant(object) => world.reference_grants.push(object.clone()),
                Typed::Certificate(object) => world.certificates.push(object.clone()),
                Typed::SecurityPolicy(object) => world.security_policies.push(object.clone()),
                Typed::NetworkPolicy(object) => world.network_policies.push(object.clone()),
                Typed::IngressRouteTcp(object) => world.ingress_routes_tcp.push(object.clone()),
                Typed::ClusterNetworkPolicy(object) => world.cluster_network_policies.push(object.clone()),
                Typed::AdminNetworkPolicy(object) => world.admin_network_policies.push(object.clone()),
                Typed::GatewayClass(_) => {}
            }
        }
        world
    }
}

impl Entry {
    fn new(status: Option<Value>) -> Self {
        Self { written: None, applied: None, status, generation: 0, made: None, shown: Arc::default(), typed: None }
    }

    fn author(&self) -> Option<Author> {
        self.written.as_ref().map(|(author, _)| *author)
    }

    /// Puts `shown` and `typed` in line with the rest.
    fn show(&mut self, object: &ObjectRef) -> Result<(), Refused> {
        let written = self.written.as_ref().map(|(_, value)| &**value);
        let mut shown = match (written, &self.applied) {
            (written, Some(applied)) => merge::apply(written, applied),
            (Some(written), None) => written.clone(),
            (None, None) => Value::Null,
        };
        if without_bookkeeping(&shown) != without_bookkeeping(&self.shown) {
            self.generation += 1;
        }
        self.keep_books(object, &mut shown);
        self.typed = parse(object, &shown).map_err(|fault| Refused {
            object: object.to_string(),
            field: fault.path.to_string(),
            message: fault.message,
        })?;
        self.shown = Arc::new(shown);
        Ok(())
    }

    /// What an API server adds to an object.
    fn keep_books(&self, object: &ObjectRef, shown: &mut Value) {
        let metadata = &mut shown["metadata"];
        metadata["generation"] = self.generation.into();
        if metadata["uid"].is_null() {
            metadata["uid"] = stable_uid(object).into();
        }
        if let Some(made) = self.made.filter(|_| self.written.is_none()) {
            metadata["creationTimestamp"] = json!(Time(made));
        }
        if object.kind == "Namespace" {
            metadata["labels"][portreeve_api::names::labels::NAMESPACE_NAME] = object.name.as_str().into();
        }
        if let Some(applied) = &self.applied {
            metadata["managedFields"] = json!([merge::managed_fields(applied)]);
        }
        if let Some(status) = &self.status {
            shown["status"] = status.clone();
        }
    }
}

/// Those of these objects that decide what a gateway serves.
pub(crate) fn attach_objects<'t>(typed: impl IntoIterator<Item = &'t Typed>) -> portreeve_attach::Objects {
    let mut objects = portreeve_attach::Objects::default();
    for typed in typed {
        match typed {
            Typed::Namespace(object) => objects.namespaces.push(object.clone()),
            Typed::Service(object) => objects.services.push(object.clone()),
            Typed::EndpointSlice(object) => objects.endpoint_slices.push(object.clone()),
            Typed::Secret(object) => objects.secrets.push(object.clone()),
            Typed::GatewayClass(object) => objects.gateway_classes.push(object.clone()),
            Typed::Gateway(object) => objects.gateways.push(object.clone()),
            Typed::ListenerSet(object) => objects.listener_sets.push(object.clone()),
            Typed::HttpRoute(object) => objects.http_routes.push(object.clone()),
            Typed::TlsRoute(object) => objects.tls_routes.push(object.clone()),
            Typed::ReferenceGrant(object) => objects.reference_grants.push(object.clone()),
            Typed::SecurityPolicy(object) => objects.security_policies.push(security_policy(object)),
            Typed::NetworkPolicy(object) => objects.network_policies.push(object.clone()),
            Typed::ClusterNetworkPolicy(object) => {
                objects.admin_policies.extend(admin_policy("ClusterNetworkPolicy", &object.metadata, &object.spec));
            }
            Typed::AdminNetworkPolicy(object) => {
                objects.admin_policies.extend(admin_policy("AdminNetworkPolicy", &object.metadata, &object.spec));
            }
            Typed::NebariApp(_) | Typed::Tenant(_) | Typed::Certificate(_) | Typed::IngressRouteTcp(_) => {}
        }
    }
    objects
}

fn admin_policy(kind: &str, metadata: &ObjectMeta, spec: &impl Serialize) -> Option<AdminPolicy> {
    AdminPolicy::read(kind, metadata.name.as_deref()?, serde_json::to_value(spec).ok()?)
}

fn security_policy(policy: &SecurityPolicy) -> Arc<portreeve_attach::SecurityPolicy> {
    let SecurityPolicy { metadata, spec, status } = policy;
    let status = status.as_ref().map(|status| json!(status));
    Arc::new(portreeve_attach::SecurityPolicy {
        metadata: metadata.clone(),
        spec: json!(spec),
        status: status.and_then(|status| serde_json::from_value(status).ok()),
    })
}

/// An owner by the key of [`Claims`].
fn absent_owner(key: &str, grants: &Value) -> Option<Absent> {
    let (kind, name) = key.split_once('/')?;
    let (kind, namespace, name) = match kind {
        "NebariApp" => name.split_once('/').map(|(namespace, name)| (OwnerKind::NebariApp, namespace, name))?,
        "Tenant" => (OwnerKind::Tenant, "", name),
        _ => return None,
    };
    let owner = Owner { kind, namespace: namespace.into(), name: name.into(), created: None };
    Some(Absent { owner, uid: None, grants: serde_json::from_value(grants.clone()).ok()? })
}

/// Whether a body has no field to own: its applier lets go of the object.
fn owns_nothing(body: &Value) -> bool {
    let fields = &merge::managed_fields(body)["fieldsV1"];
    fields
        .as_object()
        .is_none_or(|fields| fields.iter().all(|(name, value)| name == "f:metadata" && *value == json!({})))
}

/// What `metadata.generation` counts the changes of.
fn without_bookkeeping(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(fields) = &mut object {
        fields.remove("metadata");
        fields.remove("status");
    }
    object
}

fn parse(object: &ObjectRef, shown: &Value) -> Result<Option<Typed>, ParseFault> {
    let (group, _) = split_api_version(&object.api_version);
    Kind::find(group, &object.kind).map(|kind| kind.parse(shown.clone())).transpose()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
