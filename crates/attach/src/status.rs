//! From decisions to statuses.

mod listeners;
mod policies;
mod routes;

use std::collections::HashMap;

use gateway_api::gatewayclasses::{GatewayClass, GatewayClassStatus, GatewayClassStatusSupportedFeatures};
use gateway_api::gateways::{Gateway, GatewayStatus, GatewayStatusAddresses};
use gateway_api::listenersets::{ListenerSet, ListenerSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
pub(crate) use policies::policy_statuses;
pub(crate) use routes::route_statuses;

use crate::conditions::{self, Finding, Kind, Stamp, State};
use crate::decisions::Decisions;
use crate::owners::{Owner, OwnerKind, OwnerObject, class_refusal};
use crate::status::listeners::{EntryStatus, ListenerReport};
use crate::{Classes, DataPlane, Objects, Settings, StatusOf};

/// What is claimed in `GatewayClass.status.supportedFeatures`, in alphabetical order as the field demands.
const SUPPORTED_FEATURES: [&str; 21] = [
    "Gateway",
    "GatewayHTTPListenerIsolation",
    "GatewayPort8080",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
];

/// The status of each `GatewayClass` that names this controller, where classes matter at all.
pub(crate) fn class_statuses(
    objects: &Objects,
    settings: &Settings,
    now: jiff::Timestamp,
) -> Vec<StatusOf<GatewayClassStatus>> {
    if !matches!(settings.classes, Classes::OfController) {
        return Vec::new();
    }
    let ours = objects.gateway_classes.iter().filter(|class| class.spec.controller_name == settings.controller_name);
    let mut statuses: Vec<_> = ours.filter_map(|class| class_status(class, now)).collect();
    statuses.sort_by(|left, right| left.name.cmp(&right.name));
    statuses
}

fn class_status(class: &GatewayClass, now: jiff::Timestamp) -> Option<StatusOf<GatewayClassStatus>> {
    let finding = match class_refusal(class) {
        None => Finding::new(Kind::Accepted, State::True, "Accepted", ""),
        Some(problem) => Finding::new(Kind::Accepted, State::False, "InvalidParameters", problem),
    };
    let present = class.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let feature = |name: &&str| GatewayClassStatusSupportedFeatures { name: (*name).to_owned() };
    let status = GatewayClassStatus {
        conditions: Some(conditions::merge(present, &[finding], stamp(&class.metadata, now))),
        supported_features: Some(SUPPORTED_FEATURES.iter().map(feature).collect()),
    };
    changed(&class.metadata, class.status.as_ref(), status)
}

/// The statuses of Gateways and ListenerSets.
pub(crate) struct OwnerStatuses {
    pub gateways: Vec<StatusOf<GatewayStatus>>,
    pub listener_sets: Vec<StatusOf<ListenerSetStatus>>,
}

/// What each Gateway and ListenerSet has to say; in their order of precedence.
pub(crate) fn owner_statuses(decisions: &Decisions<'_>, data_plane: &DataPlane, now: jiff::Timestamp) -> OwnerStatuses {
    let reports = listeners::report(decisions, data_plane);
    let summaries: Vec<_> =
        decisions.owners.iter().map(|owner| summary(owner, &reports[owner.listeners.clone()], data_plane)).collect();
    let mut attached_sets: HashMap<&str, i32> = HashMap::new();
    for (owner, [accepted, _]) in decisions.owners.iter().zip(&summaries) {
        let counts = owner.kind() == OwnerKind::ListenerSet && accepted.state == State::True;
        *attached_sets.entry(&owner.gateway_name).or_default() += i32::from(counts);
    }
    let mut statuses = OwnerStatuses { gateways: Vec::new(), listener_sets: Vec::new() };
    for (owner, summary) in decisions.owners.iter().zip(&summaries) {
        let reports = &reports[owner.listeners.clone()];
        match owner.object {
            OwnerObject::Gateway(gateway) => {
                let sets = attached_sets.get(&*owner.gateway_name).copied().unwrap_or_default();
                let status = gateway_status(gateway, reports, summary, sets, addresses(owner, data_plane), now);
                statuses.gateways.extend(changed(&gateway.metadata, gateway.status.as_ref(), status));
            }
            OwnerObject::ListenerSet(set) => {
                let status = set_status(set, reports, summary, now);
                statuses.listener_sets.extend(changed(&set.metadata, set.status.as_ref(), status));
            }
        }
    }
    statuses
}

fn gateway_status(
    gateway: &Gateway,
    reports: &[ListenerReport<'_>],
    summary: &[Finding],
    attached_listener_sets: i32,
    addresses: Option<Vec<GatewayStatusAddresses>>,
    now: jiff::Timestamp,
) -> GatewayStatus {
    let present = gateway.status.as_ref();
    let present_conditions = present.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let present_listeners = present.and_then(|status| status.listeners.as_deref()).unwrap_or_default();
    let stamp = stamp(&gateway.metadata, now);
    GatewayStatus {
        addresses,
        attached_listener_sets: Some(attached_listener_sets),
        conditions: Some(conditions::merge(present_conditions, summary, stamp)),
        listeners: Some(EntryStatus::all(present_listeners, reports, stamp)),
    }
}

fn set_status(
    set: &ListenerSet,
    reports: &[ListenerReport<'_>],
    summary: &[Finding],
    now: jiff::Timestamp,
) -> ListenerSetStatus {
    let present = set.status.as_ref();
    let present_conditions = present.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let present_listeners = present.and_then(|status| status.listeners.as_deref()).unwrap_or_default();
    let stamp = stamp(&set.metadata, now);
    ListenerSetStatus {
        conditions: Some(conditions::merge(present_conditions, summary, stamp)),
        listeners: Some(EntryStatus::all(present_listeners, reports, stamp)),
    }
}

fn addresses(owner: &Owner<'_>, data_plane: &DataPlane) -> Option<Vec<GatewayStatusAddresses>> {
    let addresses = data_plane.addresses.get(&owner.gateway_name)?;
    let address = |address: &std::net::IpAddr| GatewayStatusAddresses {
        r#type: Some("IPAddress".to_owned()),
        value: address.to_string(),
    };
    Some(addresses.iter().map(address).collect())
}

/// `Accepted` and `Programmed` of a Gateway or a ListenerSet.
fn summary(owner: &Owner<'_>, reports: &[ListenerReport<'_>], data_plane: &DataPlane) -> [Finding; 2] {
    if let Some(refusal) = &owner.refusal {
        let (reason, message) = (refusal.reason(), refusal.to_string());
        let programmed = match (owner.kind(), reason) {
            (OwnerKind::Gateway, _) => "Invalid",
            (OwnerKind::ListenerSet, "ParentNotAccepted") => "ParentNotProgrammed",
            (OwnerKind::ListenerSet, reason) => reason,
        };
        return [
            Finding::new(Kind::Accepted, State::False, reason, message.clone()),
            Finding::new(Kind::Programmed, State::False, programmed, message),
        ];
    }
    let accepted = accepted_summary(reports);
    let programmed = match address_problem(owner, data_plane) {
        Some(problem) => Finding::new(Kind::Programmed, State::False, "AddressNotUsable", problem),
        None => programmed_summary(owner.kind(), &accepted, reports),
    };
    [accepted, programmed]
}

/// True while one listener is good; the message names those that are not.
fn accepted_summary(reports: &[ListenerReport<'_>]) -> Finding {
    let bad: Vec<_> = reports.iter().filter(|report| !report.is_valid()).map(|report| report.listener.name).collect();
    if bad.is_empty() {
        return Finding::new(Kind::Accepted, State::True, "Accepted", "");
    }
    let state = if bad.len() < reports.len() { State::True } else { State::False };
    let message = format!("listeners that are not valid: {}", bad.join(", "));
    Finding::new(Kind::Accepted, state, "ListenersNotValid", message)
}

fn programmed_summary(kind: OwnerKind, accepted: &Finding, reports: &[ListenerReport<'_>]) -> Finding {
    let first = |state| reports.iter().filter(|report| report.is_sound()).find(|report| report.programmed == state);
    let finding = |state, reason, message: &str| Finding::new(Kind::Programmed, state, reason, message);
    if first(State::True).is_some() {
        return finding(State::True, "Programmed", "");
    }
    if first(State::Unknown).is_some() {
        return finding(State::Unknown, "Pending", "waiting for the data plane");
    }
    match (first(State::False), kind) {
        (Some(report), OwnerKind::ListenerSet) => finding(State::False, "PortUnavailable", &report.message),
        (Some(report), OwnerKind::Gateway) => finding(State::False, "Pending", &report.message),
        (None, OwnerKind::ListenerSet) => finding(State::False, "ListenersNotValid", &accepted.message),
        (None, OwnerKind::Gateway) => finding(State::False, "Invalid", &accepted.message),
    }
}

/// An address that the Gateway asks for and does not have.
fn address_problem(owner: &Owner<'_>, data_plane: &DataPlane) -> Option<String> {
    if owner.kind() == OwnerKind::ListenerSet {
        return None;
    }
    let given = data_plane.addresses.get(&owner.gateway_name)?;
    let mut asked = owner.gateway.spec.addresses.iter().flatten().filter_map(|address| address.value.as_deref());
    let missing = asked.find(|asked| given.iter().all(|given| given.to_string() != *asked))?;
    Some(format!("address {missing} cannot be used by this Gateway; leave spec.addresses out to be given one"))
}

fn stamp(metadata: &ObjectMeta, now: jiff::Timestamp) -> Stamp {
    Stamp { generation: metadata.generation, now }
}

/// A status to write, unless the object has it already.
fn changed<S: PartialEq>(metadata: &ObjectMeta, present: Option<&S>, status: S) -> Option<StatusOf<S>> {
    (present != Some(&status)).then(|| StatusOf {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
        status,
    })
}

/// Conditions that an object carries now, for entries found by name.
fn conditions_of<'a, E>(entry: Option<&'a E>, conditions: impl FnOnce(&'a E) -> &'a Vec<Condition>) -> &'a [Condition] {
    entry.map(conditions).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::SUPPORTED_FEATURES;

    /// "It MUST be sorted in ascending alphabetical order by the Name key."
    #[test]
    fn features_are_in_alphabetical_order() {
        assert!(SUPPORTED_FEATURES.is_sorted());
    }
}
