use std::collections::HashMap;

use serde_json::{Value, json};

use crate::StatusOf;
use crate::conditions::{self, Finding, Kind, State};
use crate::decisions::Decisions;
use crate::index::{GATEWAY_GROUP, Name, name_of};
use crate::listener::RouteKind;
use crate::owners::{Owner, OwnerKind};
use crate::policies::{Policy, PolicyAncestor, PolicyStatus, Target};
use crate::routes::Route;

/// What each policy has to say about the parents of its routes that are served here; entries of other controllers stay.
pub(crate) fn policy_statuses(
    decisions: &Decisions<'_>,
    controller: &str,
    now: jiff::Timestamp,
) -> Vec<StatusOf<PolicyStatus>> {
    let http = decisions.routes.iter().filter(|route| route.kind == RouteKind::Http);
    let routes: HashMap<Name<'_>, &Route<'_>> = http.map(|route| (name_of(route.metadata), route)).collect();
    let status = |policy: &Policy<'_>| {
        let object = policy.object;
        let parents = parents(policy, decisions, &routes);
        let finding = finding(policy);
        let stamp = super::stamp(&object.metadata, now);
        let present = object.status.as_ref().map(|status| status.ancestors.as_slice()).unwrap_or_default();
        let is_ours = |entry: &&PolicyAncestor| entry.controller_name == controller;
        let foreign = present.iter().filter(|entry| !is_ours(entry)).cloned();
        let own = parents.into_iter().map(|parent| {
            let before = present.iter().find(|entry| is_ours(entry) && entry.ancestor_ref == parent);
            let before = before.map(|entry| entry.conditions.as_slice()).unwrap_or_default();
            PolicyAncestor {
                conditions: conditions::merge(before, std::slice::from_ref(&finding), stamp),
                ancestor_ref: parent,
                controller_name: controller.to_owned(),
            }
        });
        let status = PolicyStatus { ancestors: foreign.chain(own).collect() };
        if object.status.is_none() && status.ancestors.is_empty() {
            return None;
        }
        super::changed(&object.metadata, object.status.as_ref(), status)
    };
    let mut statuses: Vec<_> = decisions.policies.iter().filter_map(status).collect();
    statuses.sort_by(|left, right| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
    statuses
}

fn finding(policy: &Policy<'_>) -> Finding {
    match &policy.login {
        Ok(_) => Finding::new(Kind::Accepted, State::True, "Accepted", ""),
        Err(fault) => Finding::new(Kind::Accepted, State::False, fault.reason(), fault.to_string()),
    }
}

/// The parents of what a policy protects, each once.
fn parents(policy: &Policy<'_>, decisions: &Decisions<'_>, routes: &HashMap<Name<'_>, &Route<'_>>) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for target in &policy.targets {
        let owners: Vec<&Owner<'_>> = match target {
            Target::Route(name) => {
                let parents = routes.get(name).into_iter().flat_map(|route| &route.parents);
                parents.map(|parent| &decisions.owners[parent.owner]).collect()
            }
            Target::Parent(kind, name) => {
                decisions.owners.iter().filter(|owner| (owner.kind(), owner.name()) == (*kind, *name)).collect()
            }
        };
        for parent in owners.into_iter().map(reference) {
            if !found.contains(&parent) {
                found.push(parent);
            }
        }
    }
    found
}

fn reference(owner: &Owner<'_>) -> Value {
    let (namespace, name) = owner.name();
    let kind = match owner.kind() {
        OwnerKind::Gateway => "Gateway",
        OwnerKind::ListenerSet => "ListenerSet",
    };
    json!({ "group": GATEWAY_GROUP, "kind": kind, "namespace": namespace, "name": name })
}
