//! From what is known to what decisions may depend on.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
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
                Object::Unreadable(unreadable) => world.absent.extend(absent(kind, unreadable)),
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
    let mut counts = BTreeMap::new();
    let apps = world.apps.iter().filter_map(|app| app.status.as_ref()).map(|status| &status.conditions);
    let kind = Kind::of(KindName::NebariApp).kind;
    for reason in apps.filter_map(|conditions| refusal(conditions)) {
        *counts.entry((kind, reason)).or_insert(0) += 1;
    }
    counts
}

fn refusal(conditions: &[Condition]) -> Option<&str> {
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (ready.status == "False").then_some(ready.reason.as_str())
}
