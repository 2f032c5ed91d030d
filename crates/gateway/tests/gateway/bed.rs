//! A gateway under test, and short ways to say what it serves.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use portreeve_gateway::{AccessRecord, BindError, Gateway, Observer, Settings};
use portreeve_names::{HostPattern, Hostname};
use portreeve_table::{
    AddressBlock, Backend, BackendFault, BackendOptions, Backends, HostMap, HttpFilters, HttpListener, HttpMatch,
    HttpRoute, HttpRoutes, ListenerId, PathMatch, Port, PortKey, RouteId, Table, TcpRoute, TlsListener, TlsService,
};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::identity::Identity;

/// Longer than anything here takes: it only keeps a broken gateway from hanging the tests.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Awaits what must happen soon.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    timeout(PATIENCE, what).await.unwrap_or_else(|_| panic!("nothing happened for {PATIENCE:?}"))
}

/// A gateway, and the records that it writes.
pub(crate) struct Bed {
    pub(crate) gateway: Gateway,
    pub(crate) records: Records,
    /// The table that was applied last, for as long as anything keeps it alive.
    pub(crate) table: Weak<Table>,
    /// Who must send PROXY protocol headers, on every port.
    pub(crate) proxies: Vec<AddressBlock>,
}

pub(crate) struct Records {
    opened: Mutex<UnboundedReceiver<AccessRecord>>,
    finished: Mutex<UnboundedReceiver<AccessRecord>>,
}

struct Recorder {
    opened: UnboundedSender<AccessRecord>,
    finished: UnboundedSender<AccessRecord>,
}

impl Observer for Recorder {
    fn tunnel_opened(&self, record: &AccessRecord) {
        let _ = self.opened.send(record.clone());
    }

    fn finished(&self, record: &AccessRecord) {
        let _ = self.finished.send(record.clone());
    }
}

impl Records {
    /// The next tunnel that opens.
    pub(crate) async fn opened(&self) -> AccessRecord {
        soon(async { self.opened.lock().await.recv().await }).await.unwrap()
    }

    /// The next connection or request that ends.
    pub(crate) async fn finished(&self) -> AccessRecord {
        soon(async { self.finished.lock().await.recv().await }).await.unwrap()
    }
}

impl Bed {
    pub(crate) fn new(settings: Settings) -> Self {
        let (opened, opened_rx) = unbounded_channel();
        let (finished, finished_rx) = unbounded_channel();
        let gateway = Gateway::new(settings, Arc::new(Recorder { opened, finished }));
        let records = Records { opened: Mutex::new(opened_rx), finished: Mutex::new(finished_rx) };
        Self { gateway, records, table: Weak::new(), proxies: Vec::new() }
    }

    /// A gateway that serves this on one port, and the address of the port.
    pub(crate) async fn serving(port: Port) -> (Self, SocketAddr) {
        let mut bed = Self::new(Settings::default());
        let address = bed.serve(port).await;
        (bed, address)
    }

    /// Serves this on the one port from now on.
    pub(crate) async fn serve(&mut self, port: Port) -> SocketAddr {
        let mut bound = self.apply([(443, port, ANY_PORT)]).await;
        bound.remove(&443).unwrap().unwrap()
    }

    /// Serves exactly these ports.
    pub(crate) async fn apply<const N: usize>(
        &mut self,
        ports: [(u16, Port, SocketAddr); N],
    ) -> BTreeMap<u16, Result<SocketAddr, BindError>> {
        let (mut table, mut addresses) = (Table::default(), BTreeMap::new());
        for (number, port, address) in ports {
            let key = PortKey { gateway: "gateways/test".into(), port: number };
            table.ports.insert(key.clone(), port);
            if !self.proxies.is_empty() {
                table.proxies.insert(key.clone(), self.proxies.as_slice().into());
            }
            addresses.insert(key, address);
        }
        let table = Arc::new(table);
        self.table = Arc::downgrade(&table);
        let bound = soon(self.gateway.apply(table, &addresses)).await;
        bound.into_iter().map(|(key, result)| (key.port, result)).collect()
    }
}

// === What is served ===

pub(crate) fn name(text: &str) -> Hostname {
    Hostname::parse(text).unwrap()
}

fn pattern(text: &str) -> HostPattern {
    if text == "*" { HostPattern::Any } else { HostPattern::parse(text).unwrap() }
}

pub(crate) fn host_map<T, const N: usize>(entries: [(&str, T); N]) -> HostMap<T> {
    let mut map = HostMap::default();
    for (hosts, value) in entries {
        assert!(map.insert_first(pattern(hosts), value), "{hosts} is there twice");
    }
    map
}

/// A TLS port whose listeners are named after their hosts.
pub(crate) fn tls_port<const N: usize>(listeners: [(&str, TlsService); N]) -> Port {
    Port::Tls(host_map(
        listeners.map(|(hosts, service)| (hosts, TlsListener { id: listener_id(hosts), service, idle_timeout: None })),
    ))
}

/// A plain HTTP port whose listeners are named after their hosts.
pub(crate) fn http_port<const N: usize>(listeners: [(&str, HttpRoutes); N]) -> Port {
    Port::Http(host_map(listeners.map(|(hosts, routes)| (hosts, HttpListener { id: listener_id(hosts), routes }))))
}

pub(crate) fn listener_id(hosts: &str) -> ListenerId {
    ListenerId(format!("Gateway/gateways/test/{hosts}").into())
}

/// A TLS port with one listener for any name, which closes tunnels that are idle for so long.
pub(crate) fn idle_port(idle_timeout: Duration, service: TlsService) -> Port {
    Port::Tls(host_map([("*", TlsListener { id: listener_id("*"), service, idle_timeout: Some(idle_timeout) })]))
}

/// Passthrough with one route for each name.
pub(crate) fn passthrough<const N: usize>(routes: [(&str, Backends); N]) -> TlsService {
    TlsService::Passthrough(tcp_routes(routes))
}

pub(crate) fn terminate_tcp<const N: usize>(identity: &Identity, routes: [(&str, Backends); N]) -> TlsService {
    TlsService::TerminateTcp { certificate: identity.key_pair.clone(), routes: tcp_routes(routes) }
}

pub(crate) fn terminate_http(identity: &Identity, routes: HttpRoutes) -> TlsService {
    TlsService::TerminateHttp { certificate: identity.key_pair.clone(), routes }
}

fn tcp_routes<const N: usize>(routes: [(&str, Backends); N]) -> HostMap<TcpRoute> {
    host_map(routes.map(|(hosts, backends)| (hosts, TcpRoute { id: route_id(hosts), backends })))
}

/// HTTP routes by path prefix, for any host, named after their paths.
pub(crate) fn http_routes<const N: usize>(routes: [(&str, Backends); N]) -> HttpRoutes {
    filtered_routes(routes.map(|(path, backends)| (path, HttpFilters::default(), backends)))
}

pub(crate) fn filtered_routes<const N: usize>(routes: [(&str, HttpFilters, Backends); N]) -> HttpRoutes {
    let mut all = HttpRoutes::default();
    for (path, filters, backends) in routes {
        let path_match = PathMatch::Prefix(path.to_owned());
        let matches = HttpMatch { path: path_match, method: None, headers: Vec::new(), query: Vec::new() };
        let backends = Arc::new(backends);
        all.insert(HostPattern::Any, HttpRoute { id: route_id(path), matches, filters, backends, login: None });
    }
    all
}

pub(crate) fn route_id(text: &str) -> RouteId {
    RouteId(format!("Route/tenant/{text}").into())
}

/// One Service with these endpoints.
pub(crate) fn to(endpoints: &[SocketAddr]) -> Backends {
    to_with(BackendOptions::default(), endpoints)
}

/// One Service with these endpoints that wants to be spoken to like this.
pub(crate) fn to_with(options: BackendOptions, endpoints: &[SocketAddr]) -> Backends {
    Backends {
        entries: vec![Backend {
            service: "tenant/service:8786".into(),
            weight: 1,
            endpoints: Ok(endpoints.into()),
            options,
        }],
    }
}

pub(crate) fn to_nobody(fault: BackendFault) -> Backends {
    Backends {
        entries: vec![Backend {
            service: "tenant/service:8786".into(),
            weight: 1,
            endpoints: Err(fault),
            options: BackendOptions::default(),
        }],
    }
}

/// An address on which nobody listens.
pub(crate) fn dead_endpoint() -> SocketAddr {
    // Bound and never listened on: refused for as long as it is held, and held until the process ends.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&ANY_PORT.into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}
