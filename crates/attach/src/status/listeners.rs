use std::collections::HashMap;
use std::sync::Arc;

use gateway_api::gateways::{GatewayStatusListeners, GatewayStatusListenersSupportedKinds};
use gateway_api::listenersets::{ListenerSetStatusListeners, ListenerSetStatusListenersSupportedKinds};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portreeve_table::PortKey;

use crate::conditions::{self, Finding, Kind, Stamp, State};
use crate::decisions::Decisions;
use crate::index::GATEWAY_GROUP;
use crate::listener::{Listener, ListenerFault, RouteKind};
use crate::owners::OwnerKind;
use crate::routes::Route;
use crate::{DataPlane, SocketState};

/// What is to be said about a listener.
pub(super) struct ListenerReport<'d> {
    pub listener: &'d Listener<'d>,
    pub attached_routes: i32,
    pub findings: Vec<Finding>,
    /// The value of its `Programmed`.
    pub programmed: State,
    /// The message of its `Programmed`.
    pub message: String,
    accepted: bool,
}

impl ListenerReport<'_> {
    /// Whether it counts as a valid listener of its Gateway or ListenerSet.
    pub(super) fn is_valid(&self) -> bool {
        self.accepted && self.listener.is_usable()
    }

    /// Whether it is right as written, whatever the data plane could do with it.
    pub(super) fn is_sound(&self) -> bool {
        self.listener.is_usable()
    }
}

/// One report for each listener.
pub(super) fn report<'d>(decisions: &'d Decisions<'d>, data_plane: &DataPlane) -> Vec<ListenerReport<'d>> {
    let attached = attached_routes(&decisions.routes);
    let report = |(place, listener): (usize, &'d Listener<'d>)| {
        let owner = &decisions.owners[listener.owner];
        let key = PortKey { gateway: Arc::clone(&owner.gateway_name), port: listener.port };
        let attached_routes = attached.get(&place).copied().unwrap_or_default();
        one(listener, owner.kind(), data_plane.sockets.get(&key), attached_routes)
    };
    decisions.listeners.iter().enumerate().map(report).collect()
}

/// How many accepted routes each listener has; a route that names it twice counts once.
fn attached_routes(routes: &[Route<'_>]) -> HashMap<usize, i32> {
    let mut attached = HashMap::new();
    for route in routes {
        let attachments = route.parents.iter().flat_map(|parent| parent.attachments.iter().flatten());
        let mut places: Vec<_> = attachments.map(|attachment| attachment.listener).collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            *attached.entry(place).or_default() += 1;
        }
    }
    attached
}

fn one<'d>(
    listener: &'d Listener<'d>,
    owner: OwnerKind,
    socket: Option<&SocketState>,
    attached_routes: i32,
) -> ListenerReport<'d> {
    let accepted = accepted(listener, socket);
    let programmed = programmed(listener, owner, socket);
    let (state, message) = (programmed.state, programmed.message.clone());
    let is_accepted = accepted.state == State::True;
    let mut findings = vec![accepted, programmed, resolved(listener), conflicted(listener)];
    if listener.overlaps {
        let message = "another TLS listener of this port has host names in common with this one";
        findings.push(Finding::new(Kind::OverlappingTlsConfig, State::True, "OverlappingHostnames", message));
    }
    ListenerReport { listener, attached_routes, findings, programmed: state, message, accepted: is_accepted }
}

fn accepted(listener: &Listener<'_>, socket: Option<&SocketState>) -> Finding {
    match (&listener.fault, socket) {
        (Some(fault), _) => Finding::new(Kind::Accepted, State::False, fault.reason(), fault.to_string()),
        (None, Some(SocketState::Failed(problem))) => {
            Finding::new(Kind::Accepted, State::False, "PortUnavailable", problem)
        }
        (None, _) => Finding::new(Kind::Accepted, State::True, "Accepted", ""),
    }
}

fn programmed(listener: &Listener<'_>, owner: OwnerKind, socket: Option<&SocketState>) -> Finding {
    let finding = |state, reason, message: &str| Finding::new(Kind::Programmed, state, reason, message);
    if let Some(hindrance) = listener.hindrance() {
        let reason = match &listener.fault {
            Some(ListenerFault::Conflicted(conflict)) => conflict.reason(),
            _ => "Invalid",
        };
        return finding(State::False, reason, &hindrance);
    }
    match socket {
        Some(SocketState::Bound) => finding(State::True, "Programmed", ""),
        // `Programmed` of a Gateway's listener has no reason for a port; there `Accepted` carries it.
        Some(SocketState::Failed(problem)) if owner == OwnerKind::Gateway => finding(State::False, "Pending", problem),
        Some(SocketState::Failed(problem)) => finding(State::False, "PortUnavailable", problem),
        None => finding(State::Unknown, "Pending", "waiting for the data plane"),
    }
}

fn resolved(listener: &Listener<'_>) -> Finding {
    if let Some(problem) = &listener.certificate_problem {
        return Finding::new(Kind::ResolvedRefs, State::False, problem.reason(), problem.to_string());
    }
    if listener.invalid_kinds.is_empty() {
        return Finding::new(Kind::ResolvedRefs, State::True, "ResolvedRefs", "");
    }
    let (protocol, invalid) = (listener.protocol.name(), listener.invalid_kinds.join(", "));
    let message = format!("a listener of protocol {protocol} cannot have routes of kind {invalid}");
    Finding::new(Kind::ResolvedRefs, State::False, "InvalidRouteKinds", message)
}

fn conflicted(listener: &Listener<'_>) -> Finding {
    match &listener.fault {
        Some(ListenerFault::Conflicted(conflict)) => {
            Finding::new(Kind::Conflicted, State::True, conflict.reason(), conflict.to_string())
        }
        _ => Finding::new(Kind::Conflicted, State::False, "NoConflicts", ""),
    }
}

/// The entry for one listener in a status.
pub(super) trait EntryStatus: Sized {
    fn name(&self) -> &str;
    fn conditions(&self) -> &Vec<Condition>;
    fn new(report: &ListenerReport<'_>, conditions: Vec<Condition>) -> Self;

    /// One entry for each listener, in their order.
    fn all(present: &[Self], reports: &[ListenerReport<'_>], stamp: Stamp) -> Vec<Self> {
        let entry = |report: &ListenerReport<'_>| {
            let entry = present.iter().find(|entry| entry.name() == report.listener.name);
            let present = super::conditions_of(entry, Self::conditions);
            Self::new(report, conditions::merge(present, &report.findings, stamp))
        };
        reports.iter().map(entry).collect()
    }
}

macro_rules! entry_status {
    ($($entry:ident, $kind:ident);*) => {$(
        impl EntryStatus for $entry {
            fn name(&self) -> &str {
                &self.name
            }

            fn conditions(&self) -> &Vec<Condition> {
                &self.conditions
            }

            fn new(report: &ListenerReport<'_>, conditions: Vec<Condition>) -> Self {
                let kind = |kind: &RouteKind| $kind {
                    group: Some(GATEWAY_GROUP.to_owned()),
                    kind: kind.as_str().to_owned(),
                };
                Self {
                    name: report.listener.name.to_owned(),
                    attached_routes: report.attached_routes,
                    supported_kinds: Some(report.listener.kinds.iter().map(kind).collect()),
                    conditions,
                }
            }
        }
    )*};
}

entry_status!(
    GatewayStatusListeners, GatewayStatusListenersSupportedKinds;
    ListenerSetStatusListeners, ListenerSetStatusListenersSupportedKinds
);
