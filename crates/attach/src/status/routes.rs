use gateway_api::httproutes::{HttpRouteStatus, HttpRouteStatusParents};
use gateway_api::tlsroutes::{TlsRouteStatus, TlsRouteStatusParents};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};

use crate::conditions::{self, Finding, Kind, Stamp, State};
use crate::decisions::Decisions;
use crate::index::name_of;
use crate::listener::RouteKind;
use crate::references::ParentRef;
use crate::routes::{Attachment, Parent, Route, Rule, few};
use crate::{Objects, StatusOf};

/// The statuses of the routes.
pub(crate) struct RouteStatuses {
    pub http: Vec<StatusOf<HttpRouteStatus>>,
    pub tls: Vec<StatusOf<TlsRouteStatus>>,
}

/// What each route has to say about its parents that are served here; entries of other controllers stay.
pub(crate) fn route_statuses(
    objects: &Objects,
    decisions: &Decisions<'_>,
    controller: &str,
    now: jiff::Timestamp,
) -> RouteStatuses {
    let reporter = Reporter { decisions, controller, now };
    let http = objects.http_routes.iter();
    let tls = objects.tls_routes.iter();
    RouteStatuses {
        http: reporter.statuses(RouteKind::Http, http.map(|route| (&route.metadata, route.status.as_ref()))),
        tls: reporter.statuses(RouteKind::Tls, tls.map(|route| (&route.metadata, route.status.as_ref()))),
    }
}

struct Reporter<'r> {
    decisions: &'r Decisions<'r>,
    controller: &'r str,
    now: jiff::Timestamp,
}

impl Reporter<'_> {
    fn statuses<'o, S: RouteStatus + 'o>(
        &self,
        kind: RouteKind,
        objects: impl Iterator<Item = (&'o ObjectMeta, Option<&'o S>)>,
    ) -> Vec<StatusOf<S>> {
        let routes = self.decisions.routes.iter().filter(|route| route.kind == kind);
        let routes: std::collections::HashMap<_, _> = routes.map(|route| (name_of(route.metadata), route)).collect();
        let mut statuses: Vec<_> = objects
            .filter_map(|(metadata, present)| self.status(metadata, present, routes.get(&name_of(metadata)).copied()))
            .collect();
        statuses.sort_by(|left, right| (&left.namespace, &left.name).cmp(&(&right.namespace, &right.name)));
        statuses
    }

    /// `route` is absent when no parent is ours: then only what was said here before has to go.
    fn status<S: RouteStatus>(
        &self,
        metadata: &ObjectMeta,
        present: Option<&S>,
        route: Option<&Route<'_>>,
    ) -> Option<StatusOf<S>> {
        let stamp = super::stamp(metadata, self.now);
        let parents = route.map(|route| route.parents.as_slice()).unwrap_or_default();
        let findings = parents
            .iter()
            .zip(route.into_iter().cycle())
            .map(|(parent, route)| (parent.reference, self.findings(route, parent)));
        let status = S::new(self.entries(name_of(metadata).0, present, &findings.collect::<Vec<_>>(), stamp));
        if present.is_none() && status.parents().is_empty() {
            return None;
        }
        super::changed(metadata, present, status)
    }

    /// The entries of other controllers stay as they are and where they are.
    fn entries<S: RouteStatus>(
        &self,
        home: &str,
        present: Option<&S>,
        findings: &[(ParentRef<'_>, Vec<Finding>)],
        stamp: Stamp,
    ) -> Vec<S::Parent> {
        let present = present.map(S::parents).unwrap_or_default();
        let is_for = |entry: &S::Parent, reference: &ParentRef<'_>| {
            let is_ours = S::controller(entry) == self.controller;
            is_ours && S::reference(entry).within(home) == reference.within(home)
        };
        let new = |(reference, findings): &(ParentRef<'_>, Vec<Finding>), present: &[Condition]| {
            S::parent(*reference, self.controller, conditions::merge(present, findings, stamp))
        };
        let kept = present.iter().filter_map(|entry| {
            let found = findings.iter().find(|(reference, _)| is_for(entry, reference));
            let foreign = || (S::controller(entry) != self.controller).then(|| entry.clone());
            found.map(|found| new(found, S::conditions(entry))).or_else(foreign)
        });
        let is_new =
            |(reference, _): &&(ParentRef<'_>, Vec<Finding>)| present.iter().all(|entry| !is_for(entry, reference));
        kept.chain(findings.iter().filter(is_new).map(|found| new(found, &[]))).collect()
    }

    fn findings(&self, route: &Route<'_>, parent: &Parent<'_>) -> Vec<Finding> {
        let mut findings = vec![self.accepted(route, parent), resolved(&route.rules)];
        if parent.attachments.is_ok() {
            findings.extend(partially_invalid(&route.rules));
        }
        findings
    }

    fn accepted(&self, route: &Route<'_>, parent: &Parent<'_>) -> Finding {
        match &parent.attachments {
            Err(refusal) => Finding::new(Kind::Accepted, State::False, refusal.reason(), refusal.to_string()),
            Ok(attachments) => {
                let notes = [self.not_usable(attachments), self.unused_names(route, attachments)];
                let message = notes.into_iter().flatten().collect::<Vec<_>>().join("; ");
                Finding::new(Kind::Accepted, State::True, "Accepted", message)
            }
        }
    }

    /// Attachment does not depend on the state of a listener, but whoever reads the status of the route wants to know.
    fn not_usable(&self, attachments: &[Attachment]) -> Option<String> {
        let listeners = attachments.iter().map(|attachment| &self.decisions.listeners[attachment.listener]);
        let hindrances: Option<Vec<_>> = listeners
            .map(|listener| listener.hindrance().map(|hindrance| format!("listener '{}': {hindrance}", listener.name)))
            .collect();
        hindrances.map(|hindrances| format!("not served for now: {}", few(hindrances.into_iter(), "; ")))
    }

    /// Host names of the route that no listener of this parent has.
    fn unused_names(&self, route: &Route<'_>, attachments: &[Attachment]) -> Option<String> {
        let listeners = attachments.iter().map(|attachment| &self.decisions.listeners[attachment.listener]);
        let listeners: Vec<_> = listeners.collect();
        let hosts = route.hosts.iter().flatten();
        let unused: Vec<_> = hosts
            .filter(|hosts| listeners.iter().all(|listener| listener.common_names(hosts).is_none()))
            .map(|hosts| format!("'{hosts}'"))
            .collect();
        (!unused.is_empty())
            .then(|| format!("host names that do not belong to this parent: {}", few(unused.into_iter(), ", ")))
    }
}

/// The first reference that leads nowhere gives the reason.
fn resolved(rules: &[Rule<'_>]) -> Finding {
    let backends = rules.iter().flat_map(|rule| &rule.backends);
    let problems: Vec<_> = backends
        .filter_map(|backend| {
            let problem = backend.endpoints.as_ref().err()?;
            Some((problem.reason()?, format!("{} '{}': {problem}", backend.kind, backend.service())))
        })
        .collect();
    match problems.first() {
        None => Finding::new(Kind::ResolvedRefs, State::True, "ResolvedRefs", ""),
        Some((reason, _)) => {
            let message = few(problems.iter().map(|(_, message)| message.clone()), "; ");
            Finding::new(Kind::ResolvedRefs, State::False, reason, message)
        }
    }
}

/// "The message for this condition MUST start with the prefix 'Dropped Rule'."
fn partially_invalid(rules: &[Rule<'_>]) -> Option<Finding> {
    let dropped = rules.iter().enumerate().filter_map(|(place, rule)| {
        let problem = rule.http.unsupported.as_ref()?;
        let name = rule.name.map_or_else(|| (place + 1).to_string(), |name| format!("'{name}'"));
        Some(format!("Dropped Rule {name}: {problem}"))
    });
    let dropped = dropped.collect::<Vec<_>>().join("; ");
    let message = || format!("{dropped}; requests that it would take are answered with 500");
    (!dropped.is_empty()).then(|| Finding::new(Kind::PartiallyInvalid, State::True, "UnsupportedValue", message()))
}

/// The status of a route, of either kind.
trait RouteStatus: PartialEq {
    type Parent: Clone;

    fn new(parents: Vec<Self::Parent>) -> Self;
    fn parents(&self) -> &[Self::Parent];
    fn parent(reference: ParentRef<'_>, controller: &str, conditions: Vec<Condition>) -> Self::Parent;
    fn controller(parent: &Self::Parent) -> &str;
    fn reference(parent: &Self::Parent) -> ParentRef<'_>;
    fn conditions(parent: &Self::Parent) -> &[Condition];
}

macro_rules! route_status {
    ($($status:ident, $parent:ident);*) => {$(
        impl RouteStatus for $status {
            type Parent = $parent;

            fn new(parents: Vec<$parent>) -> Self {
                Self { parents }
            }

            fn parents(&self) -> &[$parent] {
                &self.parents
            }

            fn parent(reference: ParentRef<'_>, controller: &str, conditions: Vec<Condition>) -> $parent {
                $parent { parent_ref: reference.into(), controller_name: controller.to_owned(), conditions }
            }

            fn controller(parent: &$parent) -> &str {
                &parent.controller_name
            }

            fn reference(parent: &$parent) -> ParentRef<'_> {
                (&parent.parent_ref).into()
            }

            fn conditions(parent: &$parent) -> &[Condition] {
                &parent.conditions
            }
        }
    )*};
}

route_status!(HttpRouteStatus, HttpRouteStatusParents; TlsRouteStatus, TlsRouteStatusParents);
