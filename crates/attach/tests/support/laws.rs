//! What holds for every input.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use portreeve_attach::{Attached, Objects, StatusOf};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::input::{Case, now};

/// Checks all laws; the error says which one is broken.
pub(crate) fn check(case: &Case) -> Result<(), String> {
    let attached = case.attach();
    order_does_not_matter(case, &attached)?;
    conditions_know_their_generation(case, &attached)?;
    strangers_stay_unknown(case, &attached)?;
    what_is_written_stays(case, &attached)
}

fn order_does_not_matter(case: &Case, attached: &Attached) -> Result<(), String> {
    for turn in 1..4 {
        let objects = shuffled(&case.objects, turn);
        let again = case.with(objects).attach();
        if again.table != attached.table {
            return Err(format!("the table depends on the order of the objects (turn {turn})"));
        }
        if statuses(&again) != statuses(attached) {
            return Err(format!("the statuses depend on the order of the objects (turn {turn})"));
        }
    }
    Ok(())
}

fn what_is_written_stays(case: &Case, attached: &Attached) -> Result<(), String> {
    let written = case.with(with_statuses(&case.objects, attached));
    let later = now() + jiff::SignedDuration::from_hours(1);
    let again = written.attach_at(later);
    let rest = statuses(&again);
    if again.table != attached.table {
        return Err("the table depends on statuses".to_owned());
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("written again:\n{}", rest.join("\n"))) }
}

fn conditions_know_their_generation(case: &Case, attached: &Attached) -> Result<(), String> {
    let objects = &case.objects;
    for status in &attached.gateways {
        let listeners = status.status.listeners.iter().flatten().flat_map(|listener| &listener.conditions);
        let conditions = status.status.conditions.iter().flatten().chain(listeners);
        generation(&metadata_of(&objects.gateways, status, |gateway| &gateway.metadata), conditions)?;
    }
    for status in &attached.listener_sets {
        let listeners = status.status.listeners.iter().flatten().flat_map(|listener| &listener.conditions);
        let conditions = status.status.conditions.iter().flatten().chain(listeners);
        generation(&metadata_of(&objects.listener_sets, status, |set| &set.metadata), conditions)?;
    }
    for status in &attached.http_routes {
        let ours = status.status.parents.iter().filter(|parent| parent.controller_name == super::input::CONTROLLER);
        let metadata = metadata_of(&objects.http_routes, status, |route| &route.metadata);
        generation(&metadata, ours.flat_map(|parent| &parent.conditions))?;
    }
    for status in &attached.tls_routes {
        let ours = status.status.parents.iter().filter(|parent| parent.controller_name == super::input::CONTROLLER);
        let metadata = metadata_of(&objects.tls_routes, status, |route| &route.metadata);
        generation(&metadata, ours.flat_map(|parent| &parent.conditions))?;
    }
    for status in &attached.security_policies {
        let all = status.status.ancestors.iter();
        let ours = all.filter(|ancestor| ancestor.controller_name == super::input::CONTROLLER);
        let metadata = metadata_of(&objects.security_policies, status, |policy| &policy.metadata);
        generation(&metadata, ours.flat_map(|ancestor| &ancestor.conditions))?;
    }
    Ok(())
}

/// Types that other controllers report; cases use them to show that they are kept.
fn is_foreign(condition: &Condition) -> bool {
    condition.type_.contains('/')
}

fn generation<'a>(metadata: &ObjectMeta, conditions: impl Iterator<Item = &'a Condition>) -> Result<(), String> {
    let mut stale =
        conditions.filter(|condition| !is_foreign(condition) && condition.observed_generation != metadata.generation);
    match stale.next() {
        Some(condition) => Err(format!("{:?}: {} has another generation", metadata.name, condition.type_)),
        None => Ok(()),
    }
}

/// What a ListenerSet is told does not name the ListenerSets of other namespaces.
fn strangers_stay_unknown(case: &Case, attached: &Attached) -> Result<(), String> {
    for status in &attached.listener_sets {
        let listeners = status.status.listeners.iter().flatten().flat_map(|listener| &listener.conditions);
        for condition in status.status.conditions.iter().flatten().chain(listeners) {
            for stranger in case.objects.listener_sets.iter().filter(|set| set.metadata.namespace != status.namespace) {
                let namespace = stranger.metadata.namespace.as_deref().unwrap();
                let name = stranger.metadata.name.as_deref().unwrap();
                if condition.message.contains(namespace) || condition.message.contains(name) {
                    return Err(format!("{} learns of {namespace}/{name}: {}", status.name, condition.message));
                }
            }
        }
    }
    Ok(())
}

/// Every status, as text.
fn statuses(attached: &Attached) -> Vec<String> {
    let mut all: Vec<_> = attached.gateway_classes.iter().map(|status| format!("{status:?}")).collect();
    all.extend(attached.gateways.iter().map(|status| format!("{status:?}")));
    all.extend(attached.listener_sets.iter().map(|status| format!("{status:?}")));
    all.extend(attached.http_routes.iter().map(|status| format!("{status:?}")));
    all.extend(attached.tls_routes.iter().map(|status| format!("{status:?}")));
    all.extend(attached.security_policies.iter().map(|status| format!("{status:?}")));
    all
}

fn metadata_of<T, S>(objects: &[Arc<T>], status: &StatusOf<S>, metadata: fn(&T) -> &ObjectMeta) -> ObjectMeta {
    let found = objects.iter().map(|object| metadata(object)).find(|metadata| is_of(metadata, status));
    found.unwrap().clone()
}

fn is_of<S>(metadata: &ObjectMeta, status: &StatusOf<S>) -> bool {
    metadata.namespace == status.namespace && metadata.name.as_ref() == Some(&status.name)
}

fn shuffled(objects: &Objects, turn: usize) -> Objects {
    fn turned<T: Clone>(list: &[T], turn: usize) -> Vec<T> {
        let mut list = list.to_vec();
        list.reverse();
        let by = turn.checked_rem(list.len()).unwrap_or_default();
        list.rotate_left(by);
        list
    }
    Objects {
        gateway_classes: turned(&objects.gateway_classes, turn),
        gateways: turned(&objects.gateways, turn),
        listener_sets: turned(&objects.listener_sets, turn),
        http_routes: turned(&objects.http_routes, turn),
        tls_routes: turned(&objects.tls_routes, turn),
        reference_grants: turned(&objects.reference_grants, turn),
        namespaces: turned(&objects.namespaces, turn),
        services: turned(&objects.services, turn),
        endpoint_slices: turned(&objects.endpoint_slices, turn),
        secrets: turned(&objects.secrets, turn),
        network_policies: turned(&objects.network_policies, turn),
        admin_policies: turned(&objects.admin_policies, turn),
        security_policies: turned(&objects.security_policies, turn),
    }
}

/// The objects as an API server would hold them once the statuses have been written.
fn with_statuses(objects: &Objects, attached: &Attached) -> Objects {
    macro_rules! written {
        ($objects:expr, $statuses:expr) => {
            $objects
                .iter()
                .map(|object| {
                    let mut object = (**object).clone();
                    if let Some(status) = $statuses.iter().find(|status| is_of(&object.metadata, status)) {
                        object.status = Some(status.status.clone());
                    }
                    stored(&object)
                })
                .collect()
        };
    }
    Objects {
        gateway_classes: written!(objects.gateway_classes, attached.gateway_classes),
        gateways: written!(objects.gateways, attached.gateways),
        listener_sets: written!(objects.listener_sets, attached.listener_sets),
        http_routes: written!(objects.http_routes, attached.http_routes),
        tls_routes: written!(objects.tls_routes, attached.tls_routes),
        security_policies: written!(objects.security_policies, attached.security_policies),
        ..objects.clone()
    }
}

fn stored<T: Serialize + DeserializeOwned>(object: &T) -> Arc<T> {
    Arc::new(serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap())
}
