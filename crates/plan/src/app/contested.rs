//! Whether somebody else claims the app's host name with a route of their own.

use portreeve_api::names::nebari_app as derived;
use portreeve_api::nebari_app::RouteManagement;
use portreeve_names::{HostPattern, Hostname};

use super::Section;
use super::status::AppReport;
use crate::condition::{Finding, Reason};
use crate::contest::{Contest, names};
use crate::text::list;

impl AppReport<'_, '_> {
    /// `HostnameExclusive`, where it is not so.
    pub(super) fn contested(&self) -> Option<Finding> {
        let name = self.held_name()?;
        let contests = names(self.contests(name).map(|(_, contest)| contest));
        (!contests.is_empty()).then(|| {
            Reason::HostnameContested.because(format!(
                "{name} is claimed by routes that Portreeve did not make, on listeners of shared Gateways: HTTPRoute {}; \
                 delete them, or have the platform admit only routes of certain namespaces there",
                list(&contests)
            ))
        })
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
        (!taken.is_empty()).then(|| {
            Reason::HostnameContested.because(format!(
                "requests for {name} go to an older route on listener {section}: HTTPRoute {}",
                list(&taken)
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
