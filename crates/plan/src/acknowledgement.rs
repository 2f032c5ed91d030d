//! What gateways say about listeners and routes, read entry by entry.

use gateway_api::httproutes::HttpRoute;
use gateway_api::listenersets::ListenerSet;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portreeve_api::names;

use crate::condition::{Finding, Reason};
use crate::gateway::SharedGateway;

/// One entry of a listener list's status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryStatus<'a> {
    conditions: &'a [Condition],
    pub(crate) attached_routes: i32,
}

/// A parent of a route, as the route names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Absent: all listeners.
    pub(crate) section: Option<String>,
}

/// What one controller says about one parent of a route.
#[derive(Clone, Debug)]
pub(crate) struct ParentStatus<'a> {
    /// Kind, namespace, name, section.
    parent: (&'a str, &'a str, &'a str, Option<&'a str>),
    conditions: &'a [Condition],
}

/// The entry of a ListenerSet's status.
pub(crate) fn set_entry<'a>(set: &'a ListenerSet, section: &str) -> Option<EntryStatus<'a>> {
    let entries = set.status.as_ref()?.listeners.as_ref()?;
    let entry = entries.iter().find(|entry| entry.name == section)?;
    Some(EntryStatus { conditions: &entry.conditions, attached_routes: entry.attached_routes })
}

/// The entry of a Gateway's status.
pub(crate) fn gateway_entry<'a>(gateway: SharedGateway<'a>, section: &str) -> Option<EntryStatus<'a>> {
    let entries = gateway.object.status.as_ref()?.listeners.as_ref()?;
    let entry = entries.iter().find(|entry| entry.name == section)?;
    Some(EntryStatus { conditions: &entry.conditions, attached_routes: entry.attached_routes })
}

/// Whether a controller has said anything about a ListenerSet. What the schema fills in says nothing.
pub(crate) fn is_answered(set: &ListenerSet) -> bool {
    let Some(status) = &set.status else { return false };
    let answered = |condition: &Condition| condition.status != "Unknown";
    status.conditions.iter().flatten().any(answered) || status.listeners.iter().flatten().next().is_some()
}

/// Whether the gateway has refused a ListenerSet as a whole, and why.
pub(crate) fn set_refusal(set: &ListenerSet) -> Option<&Condition> {
    let conditions = set.status.as_ref()?.conditions.as_ref()?;
    let refused = conditions.iter().find(|condition| condition.type_ == "Accepted" && condition.status == "False")?;
    is_current(refused, set.metadata.generation.unwrap_or_default()).then_some(refused)
}

/// What is wrong with a listener, or that it is not known yet; `None` when it serves.
///
/// `since` is the generation in which the entry last changed. What was observed before says nothing about it, and what
/// was observed later does, whatever else changed (law 6).
pub(crate) fn listener(entry: Option<EntryStatus<'_>>, section: &str, since: i64) -> Option<Finding> {
    let Some(entry) = entry else { return Some(pending(section)) };
    let current = |type_: &str| {
        let found = entry.conditions.iter().find(|condition| condition.type_ == type_);
        found.filter(|condition| is_current(condition, since))
    };
    let said = |condition: &Condition| format!("the gateway refuses listener {section}: {}", say(condition));
    if let Some(conflict) = current("Conflicted").filter(|condition| condition.status == "True") {
        // Without the gateway's words: they name the other listener, which may be in a namespace that is nobody's business.
        let why = format!("the gateway refuses listener {section}: {}", conflict.reason);
        return Some(Reason::ListenerConflicted.because(why));
    }
    let failed = ["Accepted", "Programmed", "ResolvedRefs"].into_iter().filter_map(current);
    if let Some(failure) =
        failed.filter(|condition| condition.status == "False").min_by_key(|failure| reason_of(failure))
    {
        // A controller that has not come to it yet may say so as False (Gateway API, ListenerReasonPending).
        return Some(if failure.reason == "Pending" {
            pending(section)
        } else {
            reason_of(failure).because(said(failure))
        });
    }
    let programmed = current("Programmed").is_some_and(|condition| condition.status == "True");
    (!programmed).then(|| pending(section))
}

/// A listener that is not served yet.
pub(crate) fn pending(section: &str) -> Finding {
    Reason::Pending.because(format!("waiting for the gateway to serve listener {section}"))
}

/// How a listener stands that is to take another's place.
pub(crate) enum Standing {
    /// It serves.
    Serves,
    /// It would serve if another listener did not have its port and name; nothing else is wrong with it.
    HostnameConflict,
    /// The gateway refuses it.
    Refused(Finding),
    /// The gateway has not answered yet.
    Unknown(Finding),
}

/// How a listener stands, by what its entry says since this generation.
pub(crate) fn standing(entry: Option<EntryStatus<'_>>, section: &str, since: i64) -> Standing {
    let Some(finding) = listener(entry, section, since) else { return Standing::Serves };
    if finding.reason == Reason::Pending {
        return Standing::Unknown(finding);
    }
    let current = || entry.iter().flat_map(|entry| entry.conditions).filter(|condition| is_current(condition, since));
    let unresolved = current().find(|condition| condition.type_ == "ResolvedRefs" && condition.status == "False");
    if let Some(unresolved) = unresolved {
        let why = format!("the gateway refuses listener {section}: {}", say(unresolved));
        return Standing::Refused(Reason::ListenerNotProgrammed.because(why));
    }
    let says = |reason: &str| current().any(|condition| condition.reason == reason);
    if says("HostnameConflict") && !says("ProtocolConflict") && !says("ListenerConflict") {
        Standing::HostnameConflict
    } else {
        Standing::Refused(finding)
    }
}

/// Both vocabularies for a listener that lost against another: its own reasons, and those of the conflict.
fn reason_of(failure: &Condition) -> Reason {
    match failure.reason.as_str() {
        "HostnameConflict" | "ProtocolConflict" | "ListenerConflict" => Reason::ListenerConflicted,
        "PortUnavailable" => Reason::PortUnavailable,
        "TooManyListeners" => Reason::TooManyListeners,
        _ => Reason::ListenerNotProgrammed,
    }
}

/// What is wrong with a route, or that it is not known yet; `None` when every parent has accepted it and resolved what
/// it refers to.
pub(crate) fn route(statuses: &[ParentStatus<'_>], parents: &[Parent], generation: i64) -> Option<Finding> {
    let found = parents.iter().filter_map(|parent| route_at(statuses, parent, generation));
    found.min_by_key(|finding| finding.reason)
}

fn route_at(statuses: &[ParentStatus<'_>], parent: &Parent, generation: i64) -> Option<Finding> {
    let wanted = (parent.kind, parent.namespace.as_str(), parent.name.as_str(), parent.section.as_deref());
    let conditions = || statuses.iter().filter(|status| status.parent == wanted).flat_map(|status| status.conditions);
    let current =
        |type_: &str| conditions().find(|condition| condition.type_ == type_ && is_current(condition, generation));
    for (type_, reason) in [("Accepted", Reason::RouteNotAccepted), ("ResolvedRefs", Reason::RouteRefsNotResolved)] {
        match current(type_) {
            Some(condition) if condition.status == "True" => {}
            Some(condition) if condition.status == "False" => {
                return Some(reason.because(format!("the gateway refuses the route: {}", say(condition))));
            }
            _ => return Some(Reason::Pending.because("waiting for the gateway to accept the route")),
        }
    }
    None
}

/// What the controllers say about an HTTPRoute.
pub(crate) fn http_route_statuses(route: &HttpRoute) -> Vec<ParentStatus<'_>> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    let parents = route.status.iter().flat_map(|status| &status.parents);
    let status = parents.map(|status| {
        let parent = &status.parent_ref;
        ParentStatus {
            parent: (
                parent.kind.as_deref().unwrap_or("Gateway"),
                parent.namespace.as_deref().unwrap_or(namespace),
                &parent.name,
                parent.section_name.as_deref(),
            ),
            conditions: &status.conditions,
        }
    });
    status.collect()
}

/// What the controllers say about a TLSRoute.
pub(crate) fn tls_route_statuses(route: &TlsRoute) -> Vec<ParentStatus<'_>> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    let parents = route.status.iter().flat_map(|status| &status.parents);
    let status = parents.map(|status| {
        let parent = &status.parent_ref;
        ParentStatus {
            parent: (
                parent.kind.as_deref().unwrap_or("Gateway"),
                parent.namespace.as_deref().unwrap_or(namespace),
                &parent.name,
                parent.section_name.as_deref(),
            ),
            conditions: &status.conditions,
        }
    });
    status.collect()
}

impl EntryStatus<'_> {
    /// Whether the gateway cannot use, or has not found, a certificate of the listener.
    pub(crate) fn misses_certificate(self) -> bool {
        let misses = |condition: &Condition| {
            condition.type_ == "ResolvedRefs"
                && condition.status == "False"
                && condition.reason == "InvalidCertificateRef"
        };
        self.conditions.iter().any(misses)
    }
}

impl Parent {
    /// As a route names it, with every default written out.
    pub(crate) fn to_value(&self) -> serde_json::Value {
        let mut value = serde_json::json!({
            "group": names::GATEWAY_API_GROUP,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
        });
        if let Some(section) = &self.section {
            value["sectionName"] = section.as_str().into();
        }
        value
    }
}

fn is_current(condition: &Condition, generation: i64) -> bool {
    condition.observed_generation.unwrap_or_default() >= generation
}

/// A controller's words, without the full stop that its sentence may end in.
fn say(condition: &Condition) -> String {
    match condition.message.trim_end_matches('.') {
        "" => condition.reason.clone(),
        message => format!("{} ({message})", condition.reason),
    }
}
