//! Whether somebody else claims the app's host name with a route of their own.

use std::collections::BTreeSet;

use portreeve_api::names::nebari_app as derived;
use portreeve_api::nebari_app::RouteManagement;
use portreeve_names::{HostPattern, Hostname};

use super::Section;
use super::status::AppReport;
use crate::condition::{Finding, Reason};
use crate::contest::{Contest, ForeignListener, names};
use crate::text::list;

impl AppReport<'_, '_> {
    /// `HostnameExclusive`, where it is not so.
    pub(super) fn contested(&self) -> Option<Finding> {
        let name = self.held_name()?;
        let contests = names(self.contests(name).map(|(_, contest)| contest));
        let routes = (!contests.is_empty()).then(|| {
            Reason::HostnameContested.because(format!(
                "{name} is claimed by routes that Portreeve did not make, on listeners of shared Gateways: HTTPRoute {}; \
                 delete them, or have the platform admit only routes of certain namespaces there",
                list(&contests)
            ))
        });
        routes.or_else(|| {
            let sets: BTreeSet<String> = self.foreign_listeners(name).map(ForeignListener::name).collect();
            (!sets.is_empty()).then(|| {
                Reason::HostnameContested.because(format!(
                    "{name} is claimed by listeners that Portreeve did not make: ListenerSet {}; delete them, or have the \
                     Gateway admit only ListenerSets of namespaces that are trusted (spec.allowedListeners)",
                    list(&sets)
                ))
            })
        })
    }

    fn foreign_listeners<'r>(&'r self, name: &Hostname) -> impl Iterator<Item = &'r ForeignListener<'r>> {
        let namespace = self.case.app.namespace;
        self.settled.contests.listeners_over(name).filter(move |listener| !listener.is_in(namespace))
    }

    /// A listener of somebody else on the port of a section that is borrowed, with a more specific host name than that has.
    fn hidden_by(&self, name: &Hostname, section: &str) -> BTreeSet<String> {
        let gateway = &self.case.app.gateway;
        let Some(borrowed) = self.settled.view.gateway(gateway).and_then(|gateway| gateway.section(section)) else {
            return BTreeSet::new();
        };
        let own = HostPattern::parse_optional(borrowed.hostname.as_deref()).unwrap_or(HostPattern::Any);
        let hides = |other: &&ForeignListener<'_>| {
            other.gateway == *gateway && other.port == borrowed.port && own.covers(&other.hosts) && own != other.hosts
        };
        self.foreign_listeners(name).filter(hides).map(ForeignListener::name).collect()
    }

    /// Why requests for the name go to somebody else: an older route for just this name, on the very listener.
    pub(super) fn taken_over(&self) -> Option<Finding> {
        let name = self.held_name()?;
        let Section::Borrowed(section) = self.case.web.as_ref()?.section else { return None };
        let app = &self.case.app;
        let own = self.settled.view.http_route(app.namespace, &derived::http_route(app.name));
        let own = own.map(|route| &route.metadata);
        let taken = self.contests(name).filter(|(hosts, contest)| {
            matches!(hosts, HostPattern::Exact(_))
                && !contest.is_in(app.namespace)
                && contest.goes_before(&app.gateway, section, own)
        });
        let taken = names(taken.map(|(_, contest)| contest));
        if !taken.is_empty() {
            return Some(Reason::HostnameContested.because(format!(
                "requests for {name} go to an older route on listener {section}: HTTPRoute {}",
                list(&taken)
            )));
        }
        let sets = self.hidden_by(name, section);
        (!sets.is_empty()).then(|| {
            Reason::HostnameContested.because(format!(
                "requests for {name} go to a listener that has a more specific host name than {section}: ListenerSet {}",
                list(&sets)
            ))
        })
    }

    fn held_name(&self) -> Option<&Hostname> {
        self.case.web.as_ref()?.claim.filter(|claim| self.settled.judgement.is_granted(*claim))?;
        self.case.app.web.as_ref()?.hostname.as_ref().ok()
    }

    /// An app that makes its own routes may have any in its namespace.
    fn contests<'r>(&'r self, name: &Hostname) -> impl Iterator<Item = (&'r HostPattern, &'r Contest<'r>)> {
        let app = &self.case.app;
        let makes_routes = app.web.as_ref().is_some_and(|web| web.management == RouteManagement::App);
        self.settled
            .contests
            .over(name)
            .filter(move |(_, contest)| !contest.is_in(app.namespace) || !(makes_routes || contest.is_of_app()))
    }
}
