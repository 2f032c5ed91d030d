use std::collections::BTreeSet;

use portreeve_api::names::{self, MAX_LISTENERS, MAX_OBJECT_NAME, nebari_app as derived};
use portreeve_api::nebari_app::RouteManagement;
use portreeve_names::HostPattern;

use super::migration::{Migration, migration};
use super::{App, Auth, CertificateSource, Entry, Web, legacy};
use crate::claim::{Claim, Incumbency, Seat, Usage};
use crate::condition::{Finding, Reason, foremost};
use crate::docket::{Docket, Record, zone_refusal};
use crate::gateway::{HTTP_PORT, HTTPS_PORT, SharedGateway};
use crate::view::View;

/// An app and what it claims.
pub(crate) struct AppCase<'a> {
    pub(crate) app: App<'a>,
    /// The app is not served at all.
    pub(crate) refusal: Option<Finding>,
    pub(crate) web: Option<WebCase<'a>>,
    /// One of each entry of the app.
    pub(crate) entries: Vec<EntryCase>,
}

/// The app's host name, and where it is to be served.
pub(crate) struct WebCase<'a> {
    /// Absent where nothing may be claimed.
    pub(crate) claim: Option<usize>,
    pub(crate) refusal: Option<Finding>,
    pub(crate) port: u16,
    pub(crate) section: Section<'a>,
}

/// A listener by name.
pub(crate) enum Section<'a> {
    /// Of the app's ListenerSet.
    Own(String),
    /// Of the Gateway, where the former operator put it for the app.
    Legacy(Box<Migration<'a>>),
    /// Of the Gateway.
    Borrowed(&'static str),
}

/// One entry of `routing.tcp`.
pub(crate) struct EntryCase {
    /// Nothing of the entry is made.
    pub(crate) refusal: Option<Finding>,
    pub(crate) listeners: Vec<EntryListener>,
}

/// One listener of an entry.
pub(crate) struct EntryListener {
    pub(crate) claim: usize,
    pub(crate) hosts: HostPattern,
    pub(crate) name: String,
}

/// What an app claims. Names that it held stay claimed while what it asks for is refused.
pub(crate) fn lower<'a>(view: &View<'a>, app: App<'a>, docket: &mut Docket) -> AppCase<'a> {
    let refusal = validate(view, &app);
    if app.is_leaving() {
        return AppCase { app, refusal, web: None, entries: Vec::new() };
    }
    let record = Record::of(app.status().map(|status| &*status.claims));
    let mut lowering = Lowering { view, app: &app, record, refused: refusal.is_some(), docket };
    let web = app.web.as_ref().map(|web| lowering.web(web));
    let entries = lowering.entries();
    AppCase { app, refusal, web, entries }
}

/// In the order of the contract. A missing Service is no reason to take anything away, so it is not among these.
fn validate(view: &View<'_>, app: &App<'_>) -> Option<Finding> {
    if !view.is_opted_in(app.namespace) {
        return Some(Reason::NamespaceNotOptedIn.because(format!(
            "namespace {} is not opted-in to Nebari management (missing label: nebari.dev/managed=true)",
            app.namespace
        )));
    }
    let names = [
        ("HTTPRoute", derived::http_route(app.name)),
        ("public HTTPRoute", derived::public_http_route(app.name)),
        ("SecurityPolicy", derived::security_policy(app.name)),
        ("Certificate", derived::certificate(app.name, app.namespace)),
        ("certificate Secret", derived::certificate_secret(app.name, app.namespace)),
        ("Gateway listener", derived::https_listener(app.name, app.namespace)),
        ("OIDC client Secret", derived::oidc_client_secret(app.name)),
        ("ListenerSet", derived::listener_set(app.name)),
    ];
    names.into_iter().find(|(_, name)| name.len() > MAX_OBJECT_NAME).map(|(what, _)| too_long(what))
}

fn too_long(what: &str) -> Finding {
    Reason::ResourceNameTooLong
        .because(format!("the name of its {what} would be longer than {MAX_OBJECT_NAME} characters"))
}

struct Lowering<'l, 'a> {
    view: &'l View<'a>,
    app: &'l App<'a>,
    record: Record<'l>,
    /// The app as a whole.
    refused: bool,
    docket: &'l mut Docket,
}

impl<'a> Section<'a> {
    /// How the app stands that the former operator's listener serves.
    pub(crate) fn migration(&self) -> Option<&Migration<'a>> {
        match self {
            Self::Legacy(migration) => Some(migration),
            Self::Own(_) | Self::Borrowed(_) => None,
        }
    }
}

impl<'a> Lowering<'_, 'a> {
    fn web(&mut self, web: &Web<'_>) -> WebCase<'a> {
        let (section, port) = self.section(web);
        let hosts = match &web.hostname {
            Ok(hostname) => HostPattern::Exact(hostname.clone()),
            Err(error) => {
                let refusal = Some(Reason::BuildFailed.because(format!("spec.hostname: {error}")));
                return WebCase { claim: None, refusal, port, section };
            }
        };
        let usage = if matches!(section, Section::Borrowed(_)) { Usage::Borrowed } else { Usage::Shared };
        let unprotected = web.management == RouteManagement::App && self.app.auth == Auth::Gateway;
        let refusal = zone_refusal(&self.view.world.config.zones, self.app.namespace, &hosts).or_else(|| {
            unprotected.then(|| {
                Reason::AuthNeedsOperatorRoutes.because(
                    "sign-in at the gateway cannot be put in front of routes that the app makes itself: \
                     set auth.enforceAtGateway to false, or routing.routeManagement to Operator",
                )
            })
        });
        let claim = self.claim(0, hosts, (port, usage), refusal.is_some());
        WebCase { claim, refusal, port, section }
    }

    /// Where the app is to be served. An own listener takes the port of the Gateway's HTTPS listener.
    fn section(&self, web: &Web<'_>) -> (Section<'a>, u16) {
        if let Some(migration) = migration(self.view, self.app) {
            let port = u16::try_from(migration.entry.listener.port).unwrap_or(HTTPS_PORT);
            return (Section::Legacy(Box::new(migration)), port);
        }
        let gateway = self.view.gateway(&self.app.gateway);
        let port_of = |section: &str, default: u16| {
            let listener = gateway.and_then(|gateway| gateway.section(section));
            listener.and_then(|listener| u16::try_from(listener.port).ok()).unwrap_or(default)
        };
        match web.certificate {
            CertificateSource::Disabled => {
                (Section::Borrowed(names::HTTP_LISTENER), port_of(names::HTTP_LISTENER, HTTP_PORT))
            }
            CertificateSource::Shared => {
                (Section::Borrowed(names::HTTPS_LISTENER), port_of(names::HTTPS_LISTENER, HTTPS_PORT))
            }
            CertificateSource::Secret(_) | CertificateSource::Issuer(_) => {
                let port = gateway.and_then(SharedGateway::https_port).unwrap_or(HTTPS_PORT);
                (Section::Own(derived::https_listener(self.app.name, self.app.namespace)), port)
            }
        }
    }

    fn entries(&mut self) -> Vec<EntryCase> {
        let app = self.app;
        // The HTTPS listener has the first place of the ListenerSet, whether or not there is one now.
        let mut position = 1;
        let mut names_taken = BTreeSet::new();
        let mut cases = Vec::new();
        for entry in &app.entries {
            let case = self.entry(entry, position, &mut names_taken);
            position += entry.names.as_ref().map_or(0, |names| names.listeners(entry.name).len());
            cases.push(case);
        }
        cases
    }

    fn entry(&mut self, entry: &Entry<'_>, position: usize, names_taken: &mut BTreeSet<String>) -> EntryCase {
        let names = match &entry.names {
            Ok(names) => names,
            Err(finding) => return EntryCase { refusal: Some(finding.clone()), listeners: Vec::new() },
        };
        let listeners = names.listeners(entry.name);
        let refusal = self.entry_refusal(entry, &listeners, position, names_taken);
        let usage = match (listeners.first(), entry.management()) {
            (Some((HostPattern::Any, _)), _) | (_, RouteManagement::App) => Usage::Exclusive,
            _ => Usage::Shared,
        };
        let mut filed = Vec::new();
        for (offset, (hosts, name)) in listeners.into_iter().enumerate() {
            let claim = self.claim(position + offset, hosts.clone(), (entry.port, usage), refusal.is_some());
            filed.extend(claim.map(|claim| EntryListener { claim, hosts, name }));
        }
        EntryCase { refusal, listeners: filed }
    }

    fn entry_refusal(
        &self,
        entry: &Entry<'_>,
        listeners: &[(HostPattern, String)],
        position: usize,
        names_taken: &mut BTreeSet<String>,
    ) -> Option<Finding> {
        let twin = listeners.iter().find(|(_, name)| names_taken.contains(name)).map(|(_, name)| {
            Reason::InvalidSni.because(format!("listener {name} is another entry's already: rename the entry"))
        });
        let zones = &self.view.world.config.zones;
        let not_allowed = listeners.iter().find_map(|(hosts, _)| zone_refusal(zones, self.app.namespace, hosts));
        let too_many = (position + listeners.len() > MAX_LISTENERS).then(|| {
            Reason::TooManyListeners
                .because(format!("a ListenerSet has at most {MAX_LISTENERS} listeners, and one is kept for HTTPS"))
        });
        let route = derived::tls_route(self.app.name, entry.name);
        let long = (route.len() > MAX_OBJECT_NAME).then(|| too_long("TLSRoute"));
        let findings = [twin, self.port_reserved(entry.port), not_allowed, too_many, long];
        let refusal = foremost(findings.into_iter().flatten());
        if refusal.is_none() {
            names_taken.extend(listeners.iter().map(|(_, name)| name.clone()));
        }
        refusal
    }

    /// Why no passthrough listener can have this port. Somebody else's ListenerSet does not drive a holder out.
    fn port_reserved(&self, port: u16) -> Option<Finding> {
        let gateway = &self.app.gateway;
        let common = port == HTTP_PORT || port == HTTPS_PORT;
        let own = self.view.gateway(gateway).is_some_and(|gateway| gateway.serves_http_on(port));
        let foreign = || !self.record.holds_port(gateway, port) && self.view.is_foreign_http_port(gateway, port);
        (common || own || foreign()).then(|| {
            Reason::PortReserved
                .because(format!("port {port} serves HTTP or HTTPS on Gateway {gateway}; choose another"))
        })
    }

    /// Files a claim. Of what is refused, only names that are held are claimed, and no place.
    fn claim(
        &mut self,
        position: usize,
        hosts: HostPattern,
        (port, usage): (u16, Usage),
        refused: bool,
    ) -> Option<usize> {
        let refused = refused || self.refused;
        let gateway = self.app.gateway.clone();
        let name_held = self.record.name_held(&hosts).min(self.legacy(&hosts));
        let seat = (!refused).then(|| {
            let port_held = self.record.port_held(&gateway, port, &hosts);
            Seat { gateway, port, usage, port_held }
        });
        if refused && name_held.recorded().is_none() {
            return None;
        }
        Some(self.docket.file(Claim { owner: self.app.owner.clone(), position, hosts, name_held, seat }))
    }

    /// The former operator's listener for this app and name, which the platform has on the Gateway.
    fn legacy(&self, hosts: &HostPattern) -> Incumbency {
        let HostPattern::Exact(hostname) = hosts else { return Incumbency::None };
        let entry = legacy::entry(self.view, self.app, &self.app.gateway);
        if entry.is_some_and(|entry| entry.serves(hostname)) { Incumbency::Legacy } else { Incumbency::None }
    }
}
