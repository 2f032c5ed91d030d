//! From what is known to what decisions may depend on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use portreeve_api::conditions;
use portreeve_plan::claim::{Owner, OwnerKind};
use portreeve_plan::{Absent, Config, Served, World};

use crate::reflect::cache::Cache;
use crate::reflect::kind::{Kind, KindName};
use crate::reflect::{Object, Unreadable};

/// A snapshot of everything that is known. It shares the objects.
pub(crate) fn gather(cache: &Cache, config: &Config, served: Served, now: Timestamp) -> World {
    let mut world = World { now, config: config.clone(), served, ..World::default() };
    for (kind, store) in cache.stores() {
        for (_, entry) in store.entries() {
            match &entry.object {
                Object::Readable(typed) => typed.put_into(&mut world),
                Object::Unreadable(unreadable) => {
                    world.absent.extend(absent(kind, unreadable));
                    let metadata = unreadable.metadata.clone();
                    world
                        .unreadable
                        .push(portreeve_plan::Unreadable { kind: Kind::of(kind).kind.to_owned(), metadata });
                }
            }
        }
    }
    let named = cache.named_secrets().filter(|(key, _)| cache.get(KindName::Secret, key).is_none());
    for (_, entry) in named {
        if let Object::Readable(typed) = &entry.object {
            typed.put_into(&mut world);
        }
    }
    world
}

/// An owner that cannot be read keeps what it was granted.
fn absent(kind: KindName, unreadable: &Unreadable) -> Option<Absent> {
    let kind = match kind {
        KindName::NebariApp => OwnerKind::NebariApp,
        KindName::Tenant => OwnerKind::Tenant,
        _ => return None,
    };
    let metadata = &unreadable.metadata;
    let text = |field: &Option<String>| field.as_deref().unwrap_or_default().into();
    let created = metadata.creation_timestamp.as_ref().map(|Time(created)| *created);
    let owner = Owner { kind, namespace: text(&metadata.namespace), name: text(&metadata.name), created };
    Some(Absent { owner, uid: metadata.uid.clone(), grants: unreadable.grants.clone() })
}

/// How many owners are not ready, by kind and reason.
pub(crate) fn not_ready(world: &World) -> BTreeMap<(&'static str, &str), usize> {
    let apps = world.apps.iter().filter_map(|app| app.status.as_ref()).map(|status| &status.conditions);
    let tenants = world.tenants.iter().filter_map(|tenant| tenant.status.as_ref()).map(|status| &status.conditions);
    let apps = apps.map(|conditions| (KindName::NebariApp, conditions));
    let tenants = tenants.map(|conditions| (KindName::Tenant, conditions));
    let mut counts = BTreeMap::new();
    for (kind, conditions) in apps.chain(tenants) {
        if let Some(reason) = obstacle(conditions) {
            *counts.entry((Kind::of(kind).kind, reason)).or_insert(0) += 1;
        }
    }
    counts
}

/// Why an owner is not ready. Where `Ready` only sums up, the condition that it sums up says more.
fn obstacle(conditions: &[Condition]) -> Option<&str> {
    let ready = conditions.iter().find(|condition| condition.type_ == conditions::READY)?;
    let is_summed = |one: &&Condition| match ready.status.as_str() {
        "False" => !one.message.is_empty() && ready.message.ends_with(&one.message),
        _ => one.status == ready.status,
    };
    let summed = || conditions.iter().filter(|one| one.type_ != ready.type_).find(is_summed);
    (ready.status != "True").then(|| summed().unwrap_or(ready).reason.as_str())
}
