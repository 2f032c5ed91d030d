//! What Portreeve made and no longer wants.

use std::collections::BTreeSet;

use portreeve_api::names::labels;

use crate::object::{Key, Kind, Live, Maker, OwnerIdentity};
use crate::view::View;
use crate::wanted::Wanted;
use crate::world::Absent;

/// An object to delete, and who it was made for.
pub(crate) type Gone<'a> = (Key, Maker<'a>);

/// Objects that were made for an owner and that no owner wants any more. Routes come first, so that no request meets
/// half of what is going.
///
/// What was made for an owner that cannot be read stays: nobody knows what it wants now.
///
/// `staying` are the uids of the owners that exist and are not being deleted. A Namespace takes everything in it along,
/// so it goes only with the Tenant that it was made for.
pub(crate) fn prune<'a>(view: &View<'a>, wanted: &Wanted<'_, '_>, staying: &BTreeSet<&str>) -> Vec<Gone<'a>> {
    let is_made = |kind: Kind, live: Live<'_>| match live.maker() {
        maker if is_of_absent(view, &maker) => false,
        Maker::Uid(_, uid) if kind == Kind::Namespace => !staying.contains(uid),
        Maker::AppLabel(..) | Maker::TenantLabel(_) if kind == Kind::Namespace => false,
        _ => live.is_made(),
    };
    let mut gone: Vec<Gone<'a>> = view
        .all_live()
        .filter(|(kind, live)| is_made(*kind, *live))
        .map(|(kind, live)| (key_of(kind, live), live.maker()))
        .filter(|(key, _)| !wanted.is_wanted(key) && !wanted.kept.contains(key))
        .collect();
    gone.sort_by(|(left, _), (right, _)| right.kind.cmp(&left.kind).then_with(|| left.cmp(right)));
    gone
}

/// Those of `gone` that can be deleted now; `is_held` says whose namespaces have to wait.
///
/// What is in a namespace that goes is left to it, so that the tenant stays locked in to the end. It goes once nothing else
/// of its owner is left, and nothing of Flux, which has to do its own work there first.
pub(crate) fn due<'g, 'a>(
    view: &View<'a>,
    gone: &'g [Gone<'a>],
    is_held: impl Fn(&Maker<'a>) -> bool,
) -> impl Iterator<Item = &'g Key> {
    let is_namespace = |(key, _): &&Gone<'a>| key.kind == Kind::Namespace;
    let going: BTreeSet<&str> = gone.iter().filter(is_namespace).map(|(key, _)| key.name.as_str()).collect();
    let is_first = move |key: &Key| key.kind == Kind::HelmRelease || !going.contains(key.namespace.as_str());
    let has_more = {
        let is_first = is_first.clone();
        move |(key, maker): &Gone<'a>| {
            let tenant = view.namespace_label(&key.name, labels::TENANT);
            let is_same = |other: &Maker<'a>| match other {
                Maker::TenantLabel(name) => Some(*name) == tenant,
                other => other == maker,
            };
            gone.iter().any(|(other, of)| other.kind != Kind::Namespace && is_first(other) && is_same(of))
        }
    };
    let can_go = move |one: &&Gone<'a>| {
        let (key, maker) = one;
        let is_leaving = view.live(key).is_some_and(|live| live.metadata().deletion_timestamp.is_some());
        let can_go = if key.kind == Kind::Namespace { !is_held(maker) && !has_more(one) } else { is_first(key) };
        can_go && !is_leaving
    };
    gone.iter().filter(can_go).map(|(key, _)| key).collect::<Vec<_>>().into_iter()
}

fn is_of_absent(view: &View<'_>, maker: &Maker<'_>) -> bool {
    view.world.absent.iter().any(|Absent { owner, uid, .. }| {
        let uid = uid.as_deref().unwrap_or_default();
        maker.is(OwnerIdentity { kind: owner.kind, namespace: &owner.namespace, name: &owner.name, uid })
    })
}

/// Those of `leaving` of which nothing has to be deleted any more.
pub(crate) fn released<'l, 'a>(gone: &[Gone<'_>], leaving: &'l [OwnerIdentity<'a>]) -> Vec<&'l OwnerIdentity<'a>> {
    let is_left = |owner: &OwnerIdentity<'_>| gone.iter().any(|(_, maker)| maker.is(*owner));
    leaving.iter().filter(|owner| !is_left(owner)).collect()
}

/// Its name.
pub(crate) fn key_of(kind: Kind, live: Live<'_>) -> Key {
    let metadata = live.metadata();
    Key::new(kind, metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use crate::claim::{Owner, OwnerKind};
    use crate::{Absent, World, plan};

    #[test]
    fn what_was_made_for_an_owner_that_cannot_be_read_stays() {
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {
                "name": "web-route", "namespace": "shop", "uid": "2",
                "labels": {
                    "app.kubernetes.io/name": "nebariapp", "app.kubernetes.io/instance": "web",
                    "app.kubernetes.io/managed-by": "nebari-operator",
                },
                "ownerReferences": [{
                    "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp", "name": "web", "uid": "1",
                    "controller": true,
                }],
            },
            "spec": {},
        });
        let route = Arc::new(serde_json::from_value(route).unwrap());
        let mut world = World { http_routes: vec![route], ..World::default() };
        assert_eq!(plan(&world).delete.len(), 1, "its owner is gone");
        let owner = Owner { kind: OwnerKind::NebariApp, namespace: "shop".into(), name: "web".into(), created: None };
        world.absent.push(Absent { owner, uid: Some("1".to_owned()), grants: Vec::new() });
        assert!(plan(&world).is_empty());
    }
}
