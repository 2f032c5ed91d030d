//! From decisions to the routing table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use portreeve_names::HostPattern;
use portreeve_table::{
    AddressBlock, Backends, HostMap, HttpFilters, HttpListener, HttpMatch, HttpRoute, HttpRoutes, PathMatch, Port,
    PortKey, Table, TcpRoute, TlsListener, TlsService,
};

use crate::annotations;
use crate::decisions::Decisions;
use crate::listener::{Family, Listener, Protocol};
use crate::owners::OwnerKind;
use crate::routes::{Route, Rule};

/// Everything that should be served, whether or not the data plane can.
pub(crate) fn table(decisions: &Decisions<'_>) -> Table {
    let attached = Attached::new(decisions);
    let mut table = Table::default();
    for (place, listener) in decisions.listeners.iter().enumerate().filter(|(_, listener)| listener.keeps_names()) {
        let gateway = Arc::clone(&decisions.owners[listener.owner].gateway_name);
        let port = table.ports.entry(PortKey { gateway, port: listener.port });
        match listener.protocol.family() {
            Some(Family::Http) => {
                let port = port.or_insert_with(|| Port::Http(HostMap::default()));
                add_http(port, listener, attached.http(place));
            }
            Some(Family::Tls) => {
                let port = port.or_insert_with(|| Port::Tls(HostMap::default()));
                add_tls(port, listener, service(listener, place, &attached));
            }
            Some(Family::Tcp) | None => {}
        }
    }
    table.proxies = proxies(decisions, &table);
    table
}

/// Of the ports that are served.
fn proxies(decisions: &Decisions<'_>, table: &Table) -> BTreeMap<PortKey, Arc<[AddressBlock]>> {
    let gateways = decisions.owners.iter().filter(|owner| owner.kind() == OwnerKind::Gateway);
    let by_port = gateways.flat_map(|owner| {
        let blocks = annotations::proxies(owner.metadata()).unwrap_or_default();
        blocks.into_iter().map(|(port, blocks)| (PortKey { gateway: Arc::clone(&owner.gateway_name), port }, blocks))
    });
    by_port.filter(|(port, _)| table.ports.contains_key(port)).collect()
}

/// Conflicts were settled before, so a port has one family and a name one listener.
fn add_http(port: &mut Port, listener: &Listener<'_>, routes: HttpRoutes) {
    if let Port::Http(listeners) = port {
        listeners.insert_first(listener.hosts.clone(), HttpListener { id: listener.id.clone(), routes });
    }
}

fn add_tls(port: &mut Port, listener: &Listener<'_>, service: TlsService) {
    if let Port::Tls(listeners) = port {
        let idle_timeout = listener.tls_options.and_then(|options| annotations::idle_timeout(options).ok().flatten());
        listeners.insert_first(listener.hosts.clone(), TlsListener { id: listener.id.clone(), service, idle_timeout });
    }
}

fn service(listener: &Listener<'_>, place: usize, attached: &Attached<'_, '_>) -> TlsService {
    match (listener.protocol, &listener.certificate) {
        _ if !listener.is_usable() => closed(),
        (Protocol::Https, Some(certificate)) => {
            TlsService::TerminateHttp { certificate: Arc::clone(certificate), routes: attached.http(place) }
        }
        (Protocol::TlsTerminate, Some(certificate)) => {
            TlsService::TerminateTcp { certificate: Arc::clone(certificate), routes: attached.tls(place) }
        }
        _ => TlsService::Passthrough(attached.tls(place)),
    }
}

/// A name that is held but cannot be served: a connection for it finds no route and is closed.
fn closed() -> TlsService {
    TlsService::Passthrough(HostMap::default())
}

/// What is attached to each listener, the oldest route first.
struct Attached<'d, 'a> {
    routes: HashMap<usize, Vec<(&'d Route<'a>, Vec<&'d HostPattern>)>>,
}

impl<'d, 'a> Attached<'d, 'a> {
    /// A route that names a listener twice is attached to it once.
    fn new(decisions: &'d Decisions<'a>) -> Self {
        let mut routes: HashMap<usize, Vec<(&Route<'a>, Vec<&HostPattern>)>> = HashMap::new();
        for route in &decisions.routes {
            for attachment in route.parents.iter().flat_map(|parent| parent.attachments.iter().flatten()) {
                let listed = routes.entry(attachment.listener).or_default();
                match listed.last_mut().filter(|(last, _)| last.id == route.id) {
                    Some((_, hosts)) => hosts.extend(&attachment.hosts),
                    None => listed.push((route, attachment.hosts.iter().collect())),
                }
            }
        }
        for (_, hosts) in routes.values_mut().flatten() {
            hosts.sort_unstable();
            hosts.dedup();
        }
        Self { routes }
    }

    fn of(&self, listener: usize) -> impl Iterator<Item = (&'d Route<'a>, &'d HostPattern)> {
        let routes = self.routes.get(&listener).into_iter().flatten();
        routes.flat_map(|(route, hosts)| hosts.iter().map(|hosts| (*route, *hosts)))
    }

    fn tls(&self, listener: usize) -> HostMap<TcpRoute> {
        let mut found = HostMap::default();
        for (route, hosts) in self.of(listener) {
            let backends = route.rules.first().map(backends).unwrap_or_default();
            found.insert_first(hosts.clone(), TcpRoute { id: route.id.clone(), backends });
        }
        found
    }

    fn http(&self, listener: usize) -> HttpRoutes {
        let mut found = HttpRoutes::default();
        for (route, hosts) in self.of(listener) {
            let rules = route.rules.iter().flat_map(|rule| http_routes(route, rule));
            for entry in rules.chain(sign_in_routes(route)) {
                found.insert(hosts.clone(), entry);
            }
        }
        found
    }
}

/// One entry for each match; a rule that asks for what is not supported answers 500 and changes nothing.
fn http_routes(route: &Route<'_>, rule: &Rule<'_>) -> Vec<HttpRoute> {
    let (filters, backends) = match rule.http.unsupported {
        None => (rule.http.filters.clone(), Arc::new(backends(rule))),
        Some(_) => (HttpFilters::default(), Arc::default()),
    };
    let entry = |matches: &_| HttpRoute {
        id: route.id.clone(),
        matches: Clone::clone(matches),
        filters: filters.clone(),
        backends: Arc::clone(&backends),
        login: route.login.clone(),
    };
    rule.http.matches.iter().map(entry).collect()
}

/// The paths by which visitors come back from the provider and sign out are the gateway's, whatever the rules take.
fn sign_in_routes(route: &Route<'_>) -> Vec<HttpRoute> {
    let paths = route.login.iter().flat_map(|login| [&login.callback.path, &login.logout_path]);
    let entry = |path: &String| HttpRoute {
        id: route.id.clone(),
        matches: HttpMatch {
            path: PathMatch::Exact(path.clone()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        filters: HttpFilters::default(),
        backends: Arc::default(),
        login: route.login.clone(),
    };
    paths.map(entry).collect()
}

fn backends(rule: &Rule<'_>) -> Backends {
    Backends { entries: rule.backends.iter().map(Into::into).collect() }
}
