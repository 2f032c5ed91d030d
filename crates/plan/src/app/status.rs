use std::sync::LazyLock;

use portreeve_api::Time;
use portreeve_api::conditions::{self, events};
use portreeve_api::names::{GATEWAY_API_GROUP, nebari_app as derived};
use portreeve_api::nebari_app::{
    HttpsStatus, ListenerReference, NebariAppStatus, RouteManagement, ServiceDiscovery, TcpStatus,
};

use super::entry_status::EntryReport;
use super::login::{ClientsRecord, SignInMade};
use super::{App, AppCase, Rendered, Section};
use crate::condition::{Conditions, Finding, Reason};
use crate::gateway::SharedGateway;
use crate::object::{Key, Kind};
use crate::output::{Event, ObjectRef, StatusWrite};
use crate::settled::{Alarm, Settled};
use crate::text::list;

/// Puts together what one app's status has to say.
pub(super) struct AppReport<'s, 'a> {
    pub(super) settled: &'s Settled<'s, 'a>,
    pub(super) case: &'s AppCase<'a>,
    pub(super) rendered: &'s Rendered,
    pub(super) before: &'s NebariAppStatus,
}

/// The status of an app, if it has to be written, and the events that go with it.
pub(crate) fn status(
    settled: &Settled<'_, '_>,
    case: &AppCase<'_>,
    rendered: &Rendered,
    alarm: &mut Alarm,
) -> (Option<StatusWrite>, Vec<Event>) {
    let report = AppReport::new(settled, case, rendered);
    let before = report.before;
    let about = case.app.identity().object_ref();
    let entries = if case.refusal.is_some() { Vec::new() } else { report.entries(alarm) };
    if let Some(at) = rendered.alarm.0 {
        alarm.set(at);
    }
    let conditions = report.conditions(&entries, alarm);
    let mut events = conditions.events(&about);
    events.extend(report.sign_in_events(&about));
    events.extend(report.public_routes_ignored(&about));
    let tcp: Vec<TcpStatus> = entries.into_iter().map(|entry| entry.status).collect();
    events.extend(super::import::events(before, &tcp, &about));
    let clients = report.sign_in().map_or_else(|| ClientsRecord::of(before), |made| made.record.clone());
    let after = NebariAppStatus {
        conditions: conditions.finish(),
        observed_generation: case.app.metadata().generation,
        hostname: Some(case.app.source.spec.hostname.clone()),
        service_discovery: Some(report.service_discovery()),
        tcp,
        https: report.https(),
        claims: report.claims(),
        // Of these others decide.
        gateway_ref: before.gateway_ref.clone(),
        client_secret_ref: before.client_secret_ref.clone(),
        auth_config_hash: clients.config_hash,
        auth_clients_hash: clients.clients_hash,
        auth_clients: clients.clients,
        auth_switching_on: rendered.stays_open,
    };
    let write = (after != *before)
        .then(|| StatusWrite { object: about, status: serde_json::to_value(&after).unwrap_or_default() });
    (write, events)
}

impl<'s, 'a> AppReport<'s, 'a> {
    pub(super) fn new(settled: &'s Settled<'s, 'a>, case: &'s AppCase<'a>, rendered: &'s Rendered) -> Self {
        static NOTHING: LazyLock<NebariAppStatus> = LazyLock::new(NebariAppStatus::default);
        let before = case.app.status().unwrap_or(&NOTHING);
        Self { settled, case, rendered, before }
    }
}

impl AppReport<'_, '_> {
    fn conditions(&self, entries: &[EntryReport], alarm: &mut Alarm) -> Conditions<'_> {
        let app = &self.case.app;
        let parts = match &self.case.refusal {
            Some(refusal) => {
                let tcp = (!app.entries.is_empty()).then(|| refusal.clone());
                [Some(refusal.clone()), Some(refusal.clone()), Some(refusal.clone()), tcp]
            }
            None => [Some(self.tls(alarm)), Some(self.routing()), Some(self.auth()), summary(entries)],
        };
        let mut conditions = Conditions::new(&self.before.conditions, app.metadata().generation, self.settled.view.now);
        conditions.add(conditions::READY, self.ready(&parts));
        let [tls, routing, auth, tcp] = parts;
        for (type_, part) in [
            (conditions::ROUTING_READY, routing),
            (conditions::TLS_READY, tls),
            (conditions::AUTH_READY, auth),
            (conditions::TCP_ROUTING_READY, tcp),
        ] {
            if let Some(part) = part {
                conditions.add(type_, part);
            }
        }
        if let Some(contested) = self.contested() {
            conditions.add(conditions::HOSTNAME_EXCLUSIVE, contested);
        }
        conditions
    }

    /// The sum of all parts, in the contract's order and words.
    fn ready(&self, parts: &[Option<Finding>; 4]) -> Finding {
        if let Some(refusal) = self.case.refusal.clone().or_else(|| self.backend()) {
            return refusal;
        }
        let titles = ["TLS", "Routing", "Auth", "TCP routing"];
        let parts = || titles.iter().zip(parts).filter_map(|(title, part)| Some((title, part.as_ref()?)));
        if let Some((title, part)) = parts().find(|(_, part)| part.reason.is_false() && !part.reason.is_choice()) {
            return Reason::Failed.because(format!("{title} reconciliation failed: {}", part.message));
        }
        if parts().any(|(_, part)| part.reason.is_unknown()) {
            return Reason::Reconciling.because("Reconciliation in progress");
        }
        Reason::ReconcileSuccess.because("NebariApp reconciled successfully")
    }

    /// Why the app's own Service cannot be had; it is not looked up when the app makes its own routes.
    fn backend(&self) -> Option<Finding> {
        let app = &self.case.app;
        if app.web.as_ref().is_some_and(|web| web.management == RouteManagement::App) {
            return None;
        }
        self.settled.service(&app.source.spec.service, app.namespace)
    }

    /// Nothing where the app asks for no sign-in, or the platform has none.
    pub(super) fn sign_in(&self) -> Option<&SignInMade> {
        self.rendered.sign_in.as_ref().filter(|_| self.case.app.auth != super::Auth::Disabled)
    }

    /// What to tell once the provider has done what it was asked for.
    fn sign_in_events(&self, about: &ObjectRef) -> Vec<Event> {
        let Some(made) = self.sign_in().filter(|made| made.record.clients_hash != self.before.auth_clients_hash) else {
            return Vec::new();
        };
        let event = |warning: bool, reason: &str, message: String| Event {
            about: about.clone(),
            warning,
            reason: reason.to_owned(),
            message,
        };
        let Some(groups) = &made.done else { return Vec::new() };
        let mut told = vec![event(false, events::PROVISIONED, "OIDC client provisioned successfully".to_owned())];
        if !groups.is_empty() {
            let message = format!(
                "nobody was added to groups that were not made for this app: {}; an administrator of the identity provider \
                 adds members, or the platform shares the groups",
                list(groups)
            );
            told.push(event(true, events::GROUP_NOT_OWN, message));
        }
        told
    }

    /// Once for each generation of the spec that has them.
    fn public_routes_ignored(&self, about: &ObjectRef) -> Option<Event> {
        let app = &self.case.app;
        let news =
            self.before.observed_generation.is_none() || self.before.observed_generation != app.metadata().generation;
        (news && app.ignores_public_routes()).then(|| Event {
            about: about.clone(),
            warning: true,
            reason: events::PUBLIC_ROUTES_IGNORED.to_owned(),
            message: PUBLIC_ROUTES_IGNORED.to_owned(),
        })
    }

    /// Where the app's host name is served over HTTPS, by an own listener or a borrowed one.
    fn https(&self) -> Option<HttpsStatus> {
        let (app, web_case) = (&self.case.app, self.case.web.as_ref()?);
        let web = app.web.as_ref().filter(|web| web.is_tls())?;
        web_case.claim.filter(|claim| self.settled.judgement.is_granted(*claim))?;
        let gateway = || reference(&Key::new(Kind::Gateway, &app.gateway.namespace, &*app.gateway.name));
        let (listener_ref, section_name, generation) = match &web_case.section {
            Section::Own(section) => {
                let set = self.listener_set()?;
                let generation = self.settled.entry_generation(&set, section, self.recorded_https(section));
                (reference(&set), section.clone(), Some(generation))
            }
            // An app that makes its own routes has to know the new listener before the former one goes.
            Section::Legacy(migration) if migration.has_own_listener() && web.management == RouteManagement::App => {
                let section = &migration.entry.listener.name;
                let set = self.listener_set()?;
                let generation = self.settled.entry_generation(&set, section, self.recorded_https(section));
                (reference(&set), section.clone(), Some(generation))
            }
            Section::Legacy(migration) => (gateway(), migration.entry.listener.name.clone(), None),
            Section::Borrowed(section) => (gateway(), (*section).to_owned(), None),
        };
        Some(HttpsStatus {
            listener_ref,
            section_name,
            hostname: web.hostname.as_ref().ok()?.to_string(),
            port: web_case.port,
            addresses: self.addresses(),
            generation,
        })
    }

    /// The app's ListenerSet, if it is wanted.
    pub(super) fn listener_set(&self) -> Option<Key> {
        let key = Key::new(Kind::ListenerSet, self.case.app.namespace, derived::listener_set(self.case.app.name));
        self.settled.wanted.is_wanted(&key).then_some(key)
    }

    pub(super) fn recorded_https(&self, section: &str) -> Option<i64> {
        self.before.https.as_ref().filter(|https| https.section_name == section)?.generation
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.settled.view.gateway(&self.case.app.gateway).map(SharedGateway::addresses).unwrap_or_default()
    }

    /// What the landing page reads. It does not list an app that is not served, nor under a name that is another's; one
    /// that is only not ready yet stays listed, as does one that leads elsewhere.
    fn service_discovery(&self) -> ServiceDiscovery {
        let found = self.case.app.service_discovery();
        let leads_elsewhere =
            self.case.app.source.spec.landing_page.as_ref().is_some_and(|page| page.external_url.is_some());
        let refused = self
            .case
            .web
            .as_ref()
            .is_some_and(|web| web.claim.is_none_or(|claim| !self.settled.judgement.is_granted(claim)));
        if self.case.refusal.is_some() || refused && !leads_elsewhere { ServiceDiscovery::default() } else { found }
    }

    fn claims(&self) -> Vec<portreeve_api::Claim> {
        let web = self.case.web.iter().filter_map(|web| web.claim);
        let entries = self.case.entries.iter().flat_map(|entry| &entry.listeners).map(|listener| listener.claim);
        self.settled.judgement.record(&web.chain(entries).collect::<Vec<_>>(), &Time(self.settled.view.now))
    }
}

/// What the first failing entry says; else the first that is pending.
fn summary(entries: &[EntryReport]) -> Option<Finding> {
    let first = |wanted: fn(Reason) -> bool| entries.iter().find(|entry| wanted(entry.finding.reason));
    let entry = first(Reason::is_false).or_else(|| first(Reason::is_unknown)).or(entries.first())?;
    let EntryReport { finding, status: TcpStatus { name, .. } } = entry;
    Some(match finding.reason {
        Reason::ListenersProgrammed => finding.clone(),
        reason => reason.because(format!("entry {name}: {}", finding.message)),
    })
}

pub(super) fn reference(key: &Key) -> ListenerReference {
    ListenerReference {
        group: GATEWAY_API_GROUP.to_owned(),
        kind: key.kind.as_str().to_owned(),
        name: key.name.clone(),
        namespace: key.namespace.clone(),
    }
}

/// What is said where `publicRoutes` have no effect.
pub(super) const PUBLIC_ROUTES_IGNORED: &str = "publicRoutes are ignored, since authentication is not enabled";

impl App<'_> {
    pub(super) fn ignores_public_routes(&self) -> bool {
        self.auth == super::Auth::Disabled && self.web.as_ref().is_some_and(|web| !web.routing.public_routes.is_empty())
    }

    /// What the landing page reads of an app that it may list.
    fn service_discovery(&self) -> ServiceDiscovery {
        let Some(page) = self.source.spec.landing_page.as_ref().filter(|page| page.enabled) else {
            return ServiceDiscovery::default();
        };
        let plain = self.web.as_ref().is_some_and(|web| !web.is_tls());
        let scheme = if plain { "http" } else { "https" };
        let auth = self.source.spec.auth.as_ref().filter(|auth| auth.enabled);
        ServiceDiscovery {
            enabled: true,
            display_name: page.display_name.clone(),
            description: page.description.clone(),
            url: Some(page.external_url.clone().unwrap_or_else(|| format!("{scheme}://{}", self.source.spec.hostname))),
            icon: page.icon.clone(),
            icon_light: page.icon_light.clone(),
            icon_dark: page.icon_dark.clone(),
            category: page.category.clone(),
            priority: Some(page.priority),
            visibility: Some(if auth.is_some() { "private" } else { "public" }.to_owned()),
            required_groups: auth.map(|auth| auth.groups.clone()).unwrap_or_default(),
        }
    }
}
