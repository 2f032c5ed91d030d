use portreeve_api::conditions;
use portreeve_api::names::nebari_app as derived;
use portreeve_api::nebari_app::{TcpListenerStatus, TcpStatus, TlsMode};
use portreeve_names::HostPattern;

use super::Entry;
use super::clients::is_attached;
use super::import::Imports;
use super::lower::{EntryCase, EntryListener};
use super::render::RenderedEntry;
use super::status::{AppReport, reference};
use crate::acknowledgement::{route, set_entry, tls_route_statuses};
use crate::condition::{Conditions, Finding, Reason, foremost};
use crate::gateway::SharedGateway;
use crate::object::{Key, Kind, Live};
use crate::settled::{Alarm, WatchedListener, not_found};

/// What became of one entry.
pub(super) struct EntryReport {
    pub(super) finding: Finding,
    pub(super) status: TcpStatus,
}

impl AppReport<'_, '_> {
    /// What became of each entry, in the order of the spec.
    pub(super) fn entries(&self, alarm: &mut Alarm) -> Vec<EntryReport> {
        let entries = self.case.app.entries.iter().zip(&self.case.entries).zip(&self.rendered.entries);
        entries.map(|((entry, case), made)| self.entry(entry, case, made, alarm)).collect()
    }

    fn entry(&self, entry: &Entry<'_>, case: &EntryCase, made: &RenderedEntry, alarm: &mut Alarm) -> EntryReport {
        let before = self.before.tcp.iter().find(|before| before.name == entry.name);
        let findings = match &case.refusal {
            Some(refusal) => vec![refusal.clone()],
            None => self.entry_findings(entry, case, before, alarm),
        };
        let programmed =
            || Reason::ListenersProgrammed.because("every listener is programmed and every route is accepted");
        let finding = foremost(findings).unwrap_or_else(programmed);
        let previous = before.map_or(&[][..], |before| &before.conditions);
        let generation = self.case.app.metadata().generation;
        let mut conditions = Conditions::new(previous, generation, self.settled.view.now);
        conditions.add(conditions::READY, finding.clone());
        if let Some(imports) = &made.imports {
            conditions.add(conditions::ROUTES_IMPORTED, self.imported(imports));
        }
        if let Some(clients) = &made.clients {
            conditions.add(conditions::CLIENTS_READY, clients.finding(self.rendered));
        }
        let not_imported = made.imports.as_ref().map(Imports::told).unwrap_or_default();
        let status =
            TcpStatus { conditions: conditions.finish(), not_imported, ..self.entry_status(entry, case, before) };
        EntryReport { finding, status }
    }

    /// Where the entry is served; only what was granted.
    fn entry_status(&self, entry: &Entry<'_>, case: &EntryCase, before: Option<&TcpStatus>) -> TcpStatus {
        let set = self.listener_set();
        let granted = || case.listeners.iter().filter(|listener| self.settled.judgement.is_granted(listener.claim));
        let listeners: Vec<TcpListenerStatus> = set
            .iter()
            .flat_map(|set| granted().map(move |listener| self.listener_status(set, listener, before)))
            .collect();
        let served = !listeners.is_empty();
        let gateway = self.settled.view.gateway(&self.case.app.gateway).filter(|_| served);
        TcpStatus {
            name: entry.name.to_owned(),
            port: entry.port,
            mode: TlsMode::Passthrough,
            route_management: entry.management(),
            listener_ref: set.as_ref().filter(|_| served).map(reference),
            listeners,
            addresses: gateway.map(SharedGateway::addresses).unwrap_or_default(),
            in_cluster_address: gateway.and_then(|gateway| gateway.in_cluster_address(self.settled.view)),
            not_imported: Vec::new(),
            conditions: Vec::new(),
        }
    }

    fn listener_status(&self, set: &Key, listener: &EntryListener, before: Option<&TcpStatus>) -> TcpListenerStatus {
        let live = self.settled.view.listener_set(&set.namespace, &set.name);
        let entry = live.and_then(|live| set_entry(live, &listener.name));
        TcpListenerStatus {
            name: listener.name.clone(),
            hostname: listener.hosts.to_field(),
            attached_routes: entry.map(|entry| entry.attached_routes),
            generation: Some(self.settled.entry_generation(set, &listener.name, recorded(before, &listener.name))),
        }
    }

    fn entry_findings(
        &self,
        entry: &Entry<'_>,
        case: &EntryCase,
        before: Option<&TcpStatus>,
        alarm: &mut Alarm,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for listener in &case.listeners {
            match self.settled.judgement.refusal(listener.claim) {
                Some(refusal) => findings.push(refusal),
                None => findings.extend(self.listener_findings(entry, listener, before, alarm)),
            }
        }
        findings.extend(self.route_findings(entry));
        findings.extend(self.outside_pattern(entry, case));
        findings
    }

    fn listener_findings(
        &self,
        entry: &Entry<'_>,
        listener: &EntryListener,
        before: Option<&TcpStatus>,
        alarm: &mut Alarm,
    ) -> Vec<Finding> {
        let Some(set) = self.listener_set() else {
            let gateway = &self.case.app.gateway;
            let missing = self.settled.view.gateway(gateway).is_none().then(|| not_found(self.settled.view, gateway));
            return missing.into_iter().chain(self.no_listener_set()).collect();
        };
        let watched = WatchedListener {
            set: &set,
            section: &listener.name,
            gateway: &self.case.app.gateway,
            port: entry.port,
            recorded: recorded(before, &listener.name),
        };
        self.settled.listener(&watched, alarm)
    }

    /// What is wrong with the route that Portreeve makes for an entry.
    fn route_findings(&self, entry: &Entry<'_>) -> Vec<Finding> {
        let Some(service) = entry.service else { return Vec::new() };
        if let Some(unsupported) = self.no_tls_routes() {
            return vec![unsupported];
        }
        let app = &self.case.app;
        let name = derived::tls_route(app.name, entry.name);
        let key = Key::new(Kind::TlsRoute, app.namespace, name.as_str());
        let foreign = self.rendered.blocked(Kind::TlsRoute, &name);
        let acknowledged = self.rendered.parents.get(&key).and_then(|parents| {
            let live = self.settled.view.tls_route(app.namespace, &name);
            route(&live.map(tls_route_statuses).unwrap_or_default(), parents, self.settled.generation(&key))
        });
        let backend = self.settled.service(service, app.namespace);
        let permission = self.permission(Kind::TlsRoute, service);
        [foreign, backend, permission, acknowledged].into_iter().flatten().collect()
    }

    fn no_tls_routes(&self) -> Option<Finding> {
        let why = Kind::TlsRoute.unserved(&self.settled.view.world.served)?;
        Some(Reason::TlsRouteUnsupported.because(why))
    }

    /// `RoutesImported`. A route that the gateway has yet to look at counts as imported.
    fn imported(&self, imports: &Imports) -> Finding {
        let refused = imports.routes.iter().find_map(|key| {
            let live = self.settled.view.tls_route(&key.namespace, &key.name)?;
            let parents = self.rendered.parents.get(key)?;
            let finding = route(&tls_route_statuses(live), parents, self.settled.generation(key))?;
            let told = || Reason::RouteNotImported.because(format!("TLSRoute {}: {}", key.name, finding.message));
            finding.reason.is_false().then(told)
        });
        let unserved = (!self.settled.view.world.served.ingress_routes_tcp).then(|| {
            Reason::RouteNotImported
                .because("the cluster lacks the CRD ingressroutetcps.traefik.io: install the CRDs of Traefik")
        });
        self.no_tls_routes().or(unserved).unwrap_or_else(|| imports.finding(refused))
    }

    /// A route of the app that asks for a name outside the entry's pattern.
    fn outside_pattern(&self, entry: &Entry<'_>, case: &EntryCase) -> Option<Finding> {
        let pattern = entry.pattern()?;
        let set = self.listener_set()?;
        let section = &case.listeners.first()?.name;
        let routes = self.settled.view.tls_routes_in(self.case.app.namespace).iter();
        // Those that Portreeve makes are right, or about to go.
        routes.filter(|route| !Live::TlsRoute(route).is_made()).find_map(|route| {
            let attached = is_attached(route, &set, section);
            let outside = |hostname: &&String| HostPattern::parse(hostname).is_ok_and(|hosts| !pattern.covers(&hosts));
            let hostname = route.spec.hostnames.iter().filter(|_| attached).find(outside)?;
            let name = route.metadata.name.as_deref().unwrap_or_default();
            Some(
                Reason::RouteHostnameOutsidePattern
                    .because(format!("TLSRoute {name} asks for {hostname}, which is outside the pattern {pattern}")),
            )
        })
    }
}

fn recorded(before: Option<&TcpStatus>, section: &str) -> Option<i64> {
    before?.listeners.iter().find(|listener| listener.name == section)?.generation
}
