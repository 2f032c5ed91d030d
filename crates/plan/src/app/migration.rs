//! Moving an app from the listener that the former operator put on the Gateway to one of its own, while it is served.
//!
//! No step is remembered: where an app stands follows from what is there, so an interruption costs nothing, and what is
//! put back by hand is taken as it is. Without the flag every step leads back to the first.
//!
//! 1. [`Step::Stay`]: the old listener serves; nothing is made before everything that only people can do is done.
//! 2. [`Step::Copy`]: the Secret goes to the app's namespace, so that the issuer finds it there and keeps it.
//! 3. [`Step::Issue`]: there is none to copy; the issuer makes one.
//! 4. [`Step::Attach`]: the new listener is made, and the routes have both parents.
//! 5. [`farewell`]: the new listener serves, or waits for nothing but the old one. The old one goes.
//! 6. Without the old one an app is as any other; what is left of the old layout goes once the new listener serves
//!    (also [`farewell`]).

use portreeve_api::conditions::{self, events};
use portreeve_api::names::{self, nebari_app as derived};
use portreeve_names::Hostname;

use super::conditions::is_tls;
use super::legacy::{self, LegacyEntry};
use super::status::AppReport;
use super::{App, AppCase, CertificateSource, Rendered};
use crate::acknowledgement::{Standing, http_route_statuses, route, set_entry, standing};
use crate::condition::{Finding, Reason, foremost};
use crate::gateway::SharedGateway;
use crate::object::{Key, Kind, Live};
use crate::output::{Event, SecretCopy};
use crate::settled::{Alarm, Settled, WatchedListener};
use crate::view::View;
use crate::world::{EnvoyGatewayVersion, LegacyListeners};

/// An app that the former operator's listener serves.
pub(crate) struct Migration<'a> {
    pub(crate) entry: LegacyEntry<'a>,
    pub(crate) hostname: Hostname,
    pub(crate) step: Step,
}

/// How far an app is on its way.
pub(crate) enum Step {
    /// It stays where it is, for this reason.
    Stay(Finding),
    /// Its Secret has to be in its namespace before anything else is made.
    Copy(SecretCopy),
    /// Its certificate has to be issued anew.
    Issue,
    /// It is served by the old listener, and by the new one as soon as that can serve.
    Attach,
}

/// How the app stands, if the former operator's listener serves its host name.
pub(crate) fn migration<'a>(view: &View<'a>, app: &App<'a>) -> Option<Migration<'a>> {
    let web = app.web.as_ref().filter(|web| web.is_tls())?;
    let hostname = web.hostname.as_ref().ok()?.clone();
    let entry = legacy::entry(view, app, &app.gateway).filter(|entry| entry.serves(&hostname))?;
    let gateway = view.gateway(&app.gateway)?;
    let at = Crossing { view, app, gateway, entry: &entry, hostname: &hostname, source: web.certificate };
    let step = at.step();
    Some(Migration { entry, hostname, step })
}

struct Crossing<'c, 'a> {
    view: &'c View<'a>,
    app: &'c App<'a>,
    gateway: SharedGateway<'a>,
    entry: &'c LegacyEntry<'a>,
    hostname: &'c Hostname,
    source: CertificateSource<'a>,
}

impl Crossing<'_, '_> {
    fn step(&self) -> Step {
        let served = format!("served by listener {} of Gateway {}", self.entry.listener.name, self.entry.gateway);
        if self.view.world.config.legacy_listeners == LegacyListeners::Keep {
            // One that was put back by hand does not serve at once, and until then the present one is needed.
            let comes_back = !self.entry.is_programmed(self.view) && self.has_own_listener();
            return if comes_back { Step::Attach } else { Step::Stay(Reason::LegacyListener.because(served)) };
        }
        if let Some(obstacle) = self.obstacle() {
            return Step::Stay(
                Reason::MigrationBlocked.because(format!("{served}; before it can have its own: {obstacle}")),
            );
        }
        let CertificateSource::Issuer(_) = self.source else { return Step::Attach };
        let secret = derived::certificate_secret(self.app.name, self.app.namespace);
        if self.view.secret(self.app.namespace, &secret).is_some() {
            return Step::Attach;
        }
        copy_of(self.view, self.app).map_or(Step::Issue, Step::Copy)
    }

    fn has_own_listener(&self) -> bool {
        let set = self.view.listener_set(self.app.namespace, &derived::listener_set(self.app.name));
        let own = set.filter(|set| Live::ListenerSet(set).maker().is(self.app.identity()));
        own.is_some_and(|set| set.spec.listeners.iter().any(|listener| listener.name == self.entry.listener.name))
    }

    /// The first thing that somebody has to do before the app can move.
    fn obstacle(&self) -> Option<String> {
        let general = self.version().or_else(|| self.port()).or_else(|| self.twin());
        if self.source == CertificateSource::Shared {
            return general.or_else(|| self.shared_listener());
        }
        let gateway = || Kind::ListenerSet.unserved(&self.view.world.served).or_else(|| self.admission());
        general.or_else(gateway).or_else(|| self.name_taken()).or_else(|| self.secret()).or_else(|| self.solver())
    }

    /// Envoy Gateway before 1.9.1 drops the routes of both listeners while they conflict.
    fn version(&self) -> Option<String> {
        let wanted = EnvoyGatewayVersion::KEEPS_ROUTES;
        let told = self.view.world.config.legacy_listeners == LegacyListeners::Force;
        let consent = "or set --migrate-legacy-listeners=force";
        match self.view.world.envoy_gateway() {
            _ if told => None,
            Some(version) if version >= wanted => None,
            Some(version) => Some(format!(
                "Envoy Gateway {version} drops the routes of listeners that conflict: upgrade it to {wanted} or later, {consent}"
            )),
            None => Some(format!(
                "the version of the Gateway's controller is not known, and Envoy Gateway before {wanted} drops the routes \
                 of listeners that conflict: make sure that it does not, and set --migrate-legacy-listeners=force"
            )),
        }
    }

    /// The port must not change under clients.
    fn port(&self) -> Option<String> {
        let (old, new) = (self.entry.listener.port, i32::from(self.gateway.https_port()?));
        (old != new).then(|| {
            format!("it is on port {old}, its own would be on port {new} as the Gateway's HTTPS listener: put both on one port")
        })
    }

    /// Whoever has the same port and name would be served in the app's place.
    fn twin(&self) -> Option<String> {
        let port = self.entry.listener.port;
        let rival = legacy::rival(self.view, self.app, &self.entry.gateway, port, self.hostname)?;
        Some(format!("{rival} has the same port {port} and host name: remove it there"))
    }

    fn shared_listener(&self) -> Option<String> {
        let section = names::HTTPS_LISTENER;
        self.gateway.section(section).is_none().then(|| {
            format!("the Gateway needs a listener {section}, or the platform a ClusterIssuer, or the app routing.tls.secretName")
        })
    }

    fn admission(&self) -> Option<String> {
        let namespace = self.app.namespace;
        let admitted = self.gateway.admits_listener_sets_of(self.view, namespace);
        (!admitted).then(|| crate::settled::admission_needed(&self.entry.gateway, namespace))
    }

    /// Names in the app's namespace that somebody else's objects have.
    fn name_taken(&self) -> Option<String> {
        let certificate = derived::certificate(self.app.name, self.app.namespace);
        let wanted = [(Kind::ListenerSet, derived::listener_set(self.app.name)), (Kind::Certificate, certificate)];
        let issued = matches!(self.source, CertificateSource::Issuer(_));
        let keys = wanted.into_iter().filter(|(kind, _)| issued || *kind != Kind::Certificate);
        let foreign = keys
            .map(|(kind, name)| Key::new(kind, self.app.namespace, name))
            .find(|key| self.view.live(key).is_some_and(|live| !live.maker().is(self.app.identity())))?;
        Some(format!("{} is there and was not made for this app; rename or delete it", foreign.describe()))
    }

    /// The app's own Secret is its owner's to move. One that stands where the issuer's is to be has to be of its type.
    fn secret(&self) -> Option<String> {
        let namespace = self.app.namespace;
        match self.source {
            CertificateSource::Secret(name) => {
                let there = self.view.secret(namespace, name).is_some_and(is_tls);
                let old = &self.entry.gateway.namespace;
                (!there).then(|| {
                    format!("TLS secret {name} has to be in namespace {namespace} with tls.crt and tls.key: copy it there from {old}")
                })
            }
            CertificateSource::Issuer(issuer) => {
                if let Some(why) = Kind::Certificate.unserved(&self.view.world.served) {
                    return Some(why);
                }
                let name = derived::certificate_secret(self.app.name, namespace);
                let wrong = self.view.secret(namespace, &name).is_some_and(|secret| !is_tls(secret));
                let missing = self.view.cluster_issuer(issuer).is_none();
                if wrong {
                    return Some(format!("Secret {namespace}/{name} is not of type kubernetes.io/tls: delete it"));
                }
                missing.then(|| format!("ClusterIssuer {issuer} is not there: create it"))
            }
            CertificateSource::Disabled | CertificateSource::Shared => None,
        }
    }

    /// A solver's route is made beside the Certificate: without a namespace its parent would be sought there.
    fn solver(&self) -> Option<String> {
        let CertificateSource::Issuer(issuer) = self.source else { return None };
        let found = self.view.cluster_issuer(issuer)?;
        let parent = found.spec.http01_parents().find(|parent| parent.namespace.is_none())?;
        Some(format!(
            "the HTTP-01 solver of ClusterIssuer {issuer} would look for Gateway {} in namespace {}, and renewals would \
             fail: set namespace on its gatewayHTTPRoute.parentRefs",
            parent.name, self.app.namespace
        ))
    }
}

/// The copy of the Secret that the former operator had issued for the app, if it is there.
fn copy_of(view: &View<'_>, app: &App<'_>) -> Option<SecretCopy> {
    let certificate = legacy::certificate(view, app)?;
    let name = derived::certificate_secret(app.name, app.namespace);
    let found = view.certificate(&certificate.namespace, &certificate.name)?;
    let is_tls = view.secret(&certificate.namespace, &name).is_some_and(is_tls);
    (found.spec.secret_name == name && is_tls).then(|| SecretCopy::of(&certificate.namespace, app.namespace, &name))
}

/// What goes of the old layout of one app.
#[derive(Default)]
pub(crate) struct Farewell<'a> {
    pub(crate) entries: Vec<LegacyEntry<'a>>,
    pub(crate) certificate: Option<Key>,
}

/// What of an app's old layout nothing depends on any more.
pub(crate) fn farewell<'a>(settled: &Settled<'_, 'a>, case: &AppCase<'a>, rendered: &Rendered) -> Farewell<'a> {
    let (view, app) = (settled.view, &case.app);
    let config = &view.world.config;
    let keeps_entries = config.legacy_listeners == LegacyListeners::Keep;
    if app.is_leaving() {
        // Where nobody holds owners back, nobody writes to Gateways either.
        let entries = if keeps_entries { Vec::new() } else { legacy::entries(view, app) };
        let all = || Farewell { entries, certificate: legacy::certificate(view, app) };
        return if config.guard_deletion { all() } else { Farewell::default() };
    }
    if keeps_entries || case.refusal.is_some() {
        return Farewell::default();
    }
    let report = AppReport::new(settled, case, rendered);
    let serving = case.web.as_ref().and_then(|web| web.section.migration());
    let goes = |entry: &LegacyEntry<'_>| match serving.filter(|serving| serving.entry.gateway == entry.gateway) {
        Some(serving) => matches!(serving.step, Step::Attach) && report.outlook(serving, &mut Alarm::default()).is_ok(),
        None => entry.is_unused(view, app),
    };
    let entries = legacy::entries(view, app).into_iter().filter(goes).collect();
    let certificate = legacy::certificate(view, app).filter(|_| serving.is_none() && report.is_served());
    Farewell { entries, certificate }
}

/// What a deleted app leaves on Gateways that are not to be written.
pub(crate) fn left_behind(view: &View<'_>, app: &App<'_>) -> Option<Event> {
    let entries = legacy::entries(view, app);
    let first = entries.first().filter(|_| view.world.config.legacy_listeners == LegacyListeners::Keep)?;
    let message = format!(
        "listener {} of Gateway {} stays, since --migrate-legacy-listeners is off: remove it from spec.listeners",
        first.listener.name, first.gateway
    );
    let reason = events::LEGACY_LISTENER_LEFT.to_owned();
    Some(Event { about: app.identity().object_ref(), warning: true, reason, message })
}

impl Farewell<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.certificate.is_none()
    }
}

impl Migration<'_> {
    /// The Secret that has to be in the app's namespace first.
    pub(crate) fn copy(&self) -> Option<&SecretCopy> {
        match &self.step {
            Step::Copy(copy) => Some(copy),
            Step::Stay(_) | Step::Issue | Step::Attach => None,
        }
    }

    /// Whether the app's own listener is made.
    pub(crate) fn has_own_listener(&self) -> bool {
        matches!(self.step, Step::Attach)
    }

    /// Whether the app's own certificate is made.
    pub(crate) fn has_own_certificate(&self) -> bool {
        matches!(self.step, Step::Issue | Step::Attach)
    }
}

impl AppReport<'_, '_> {
    /// `TLSReady` of an app that the former operator's listener serves.
    pub(super) fn on_legacy(&self, migration: &Migration<'_>, alarm: &mut Alarm) -> Finding {
        let section = &migration.entry.listener.name;
        migration.entry.broken(self.settled.view).unwrap_or_else(|| match &migration.step {
            Step::Stay(why) => why.clone(),
            Step::Copy(copy) => {
                migrating(format!("Secret {} is copied to namespace {}", copy.to.name, self.case.app.namespace))
            }
            Step::Issue => migrating("waiting for cert-manager Certificate to become ready"),
            Step::Attach => {
                let gone = || migrating(format!("listener {section} of Gateway {} goes", migration.entry.gateway));
                self.outlook(migration, alarm).err().unwrap_or_else(gone)
            }
        })
    }

    /// Whether the former listener can go, since nothing that it serves would be served less; else what it waits for.
    ///
    /// Nothing counts that was said before the last change, or before one that is about to be written.
    fn outlook(&self, migration: &Migration<'_>, alarm: &mut Alarm) -> Result<(), Finding> {
        let app = &self.case.app;
        if let Some(CertificateSource::Issuer(_)) = app.web.as_ref().map(|web| web.certificate) {
            let certificate = derived::certificate(app.name, app.namespace);
            let waiting = self.settled.certificate(app.namespace, &certificate);
            waiting.map_or(Ok(()), |waiting| Err(migrating(waiting.message)))?;
        }
        if let Some(withheld) = &self.rendered.withheld {
            return Err(or_blocked(withheld.clone()));
        }
        let serves = self.new_listener_serves(migration, alarm)?;
        self.routes_follow(migration, serves)?;
        match legacy::dependent_route(self.settled.view, app, &migration.entry, Some(&migration.hostname)) {
            Some(route) => Err(blocked(format!(
                "HTTPRoute {route} is served by the former listener only: give it a parentRef to ListenerSet {}",
                derived::listener_set(app.name)
            ))),
            None => Ok(()),
        }
    }

    /// Whether the new listener serves already; if it does not, it waits for nothing but the former one.
    fn new_listener_serves(&self, migration: &Migration<'_>, alarm: &mut Alarm) -> Result<bool, Finding> {
        let Some(set) = self.listener_set() else { return Ok(true) };
        let section = &migration.entry.listener.name;
        let recorded = self.recorded_https(section);
        let since = self.settled.entry_generation(&set, section, recorded);
        let live = self.settled.view.listener_set(&set.namespace, &set.name);
        match standing(live.and_then(|live| set_entry(live, section)), section, since) {
            Standing::Serves => Ok(true),
            Standing::HostnameConflict => Ok(false),
            Standing::Refused(finding) => Err(blocked(finding.message)),
            Standing::Unknown(waiting) => {
                let port = self.case.web.as_ref().map_or(0, |web| web.port);
                let gateway = &migration.entry.gateway;
                let watched = WatchedListener { set: &set, section, gateway, port, recorded };
                let finding = foremost(self.settled.listener(&watched, alarm)).unwrap_or(waiting);
                Err(or_blocked(finding))
            }
        }
    }

    /// The gateway has seen the routes with both parents; each counts as far as its listener serves.
    fn routes_follow(&self, migration: &Migration<'_>, new_serves: bool) -> Result<(), Finding> {
        for (key, serving) in self.rendered.parents.iter().filter(|(key, _)| key.kind == Kind::HttpRoute) {
            let live = self.settled.view.http_route(&key.namespace, &key.name);
            let statuses = live.map(http_route_statuses).unwrap_or_default();
            let generation = self.settled.generation(key);
            let serving = if migration.entry.is_programmed(self.settled.view) { &serving[..] } else { &[] };
            let coming = self.rendered.coming.get(key).filter(|_| new_serves).map_or(&[][..], Vec::as_slice);
            let waits = route(&statuses, serving, generation).or_else(|| route(&statuses, coming, generation));
            waits.map_or(Ok(()), |finding| Err(or_blocked(finding)))?;
        }
        Ok(())
    }

    /// Of an app that has just left the former listener, a conflict that no other listener explains: the gateway spoke of
    /// the one that is gone.
    pub(super) fn unless_just_moved(&self, conflict: Finding) -> Finding {
        let waits = Reason::Moved.because("the former listener is gone: waiting for the gateway to serve the new one");
        let before = self.before.conditions.iter().find(|condition| condition.type_ == conditions::TLS_READY);
        let moving = [Reason::Migrating, Reason::Moved].map(Reason::as_str);
        let just_moved = before.is_some_and(|before| moving.contains(&&*before.reason));
        let has_rival = || {
            let (web, case) = (self.case.app.web.as_ref()?, self.case.web.as_ref()?);
            let hostname = web.hostname.as_ref().ok()?;
            legacy::rival(self.settled.view, &self.case.app, &self.case.app.gateway, case.port.into(), hostname)
        };
        if just_moved && has_rival().is_none() { waits } else { conflict }
    }

    /// Whether the app is served as it asks, by what it has now.
    fn is_served(&self) -> bool {
        let well = |finding: Finding| finding.reason.is_choice() || finding.reason.status() == "True";
        well(self.tls(&mut Alarm::default())) && well(self.routing())
    }
}

fn migrating(message: impl Into<String>) -> Finding {
    Reason::Migrating.because(message)
}

fn blocked(message: impl Into<String>) -> Finding {
    Reason::MigrationBlocked.because(message)
}

/// What nobody has refused yet is on its way.
fn or_blocked(finding: Finding) -> Finding {
    if finding.reason == Reason::Pending { migrating(finding.message) } else { blocked(finding.message) }
}
