//! What a running gateway is doing, as `/status` tells it and `portreeve top` shows it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use portreeve_gateway::{Monitor, OpenTunnel};
use portreeve_table::{HostMap, HttpRoutes, Port, PortKey, TcpRoute, TlsService};
use serde::{Deserialize, Serialize};

use crate::report::SocketStates;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Open client connections, with those that have not said yet what they want.
    pub connections: usize,
    /// Those that have not.
    pub waiting: usize,
    /// Whether it ends, and takes no more connections.
    pub is_draining: bool,
    /// In order of Gateway, port and name.
    pub listeners: Vec<ListenerStatus>,
    /// The oldest first.
    pub tunnels: Vec<TunnelStatus>,
}

/// A listener and its routes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// As `namespace/name`.
    pub gateway: String,
    /// The port that it names.
    pub port: u16,
    /// Where it listens.
    pub address: Option<SocketAddr>,
    /// Why it does not.
    pub problem: Option<String>,
    /// As `Kind/namespace/name/section`.
    pub listener: String,
    /// Whose connections it takes.
    pub hosts: String,
    /// What it does with them.
    pub mode: String,
    /// What is attached to it.
    pub routes: Vec<RouteStatus>,
    /// How many tunnels are open.
    pub tunnels: usize,
}

/// A route of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// As `Kind/namespace/name`.
    pub route: String,
    /// For these hosts.
    pub hosts: String,
}

/// An open tunnel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelStatus {
    /// As `namespace/name` of the Gateway.
    pub gateway: String,
    /// The port that its listener names.
    pub port: u16,
    /// Whose it is.
    pub peer: SocketAddr,
    /// The name in the ClientHello.
    pub server_name: Option<String>,
    /// As `Kind/namespace/name/section`.
    pub listener: Option<String>,
    /// As `Kind/namespace/name`.
    pub route: Option<String>,
    /// As `namespace/name:port`.
    pub backend: Option<String>,
    /// Where it leads.
    pub endpoint: Option<SocketAddr>,
    /// How old it is.
    pub age_seconds: f64,
    /// Bytes from the client.
    pub received: u64,
    /// Bytes to the client.
    pub sent: u64,
}

impl Status {
    /// How a gateway stands, whose sockets stand like this.
    pub fn of(monitor: &Monitor, sockets: &SocketStates) -> Self {
        let tunnels: Vec<_> = monitor.tunnels().iter().map(TunnelStatus::from).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for listener in tunnels.iter().filter_map(|tunnel| tunnel.listener.as_deref()) {
            *counts.entry(listener).or_default() += 1;
        }
        let mut listeners = Vec::new();
        for (key, port) in &monitor.table().ports {
            listeners.extend(listeners_of(key, port, sockets.get(key)));
        }
        for listener in &mut listeners {
            listener.tunnels = counts.get(&*listener.listener).copied().unwrap_or_default();
        }
        let places = monitor.connections();
        let is_draining = monitor.is_draining();
        Self { connections: places.open, waiting: places.waiting, is_draining, listeners, tunnels }
    }
}

impl From<&OpenTunnel> for TunnelStatus {
    fn from(tunnel: &OpenTunnel) -> Self {
        Self {
            gateway: tunnel.port.gateway.to_string(),
            port: tunnel.port.port,
            peer: tunnel.peer,
            server_name: tunnel.server_name.as_ref().map(ToString::to_string),
            listener: tunnel.listener.as_ref().map(ToString::to_string),
            route: tunnel.route.as_ref().map(ToString::to_string),
            backend: tunnel.backend.as_ref().map(ToString::to_string),
            endpoint: tunnel.endpoint,
            age_seconds: tunnel.age.as_secs_f64(),
            received: tunnel.traffic.received,
            sent: tunnel.traffic.sent,
        }
    }
}

fn listeners_of(key: &PortKey, port: &Port, socket: Option<&Result<SocketAddr, String>>) -> Vec<ListenerStatus> {
    let one = |listener: &dyn ToString, hosts: &dyn ToString, mode: &str, routes: Vec<RouteStatus>| ListenerStatus {
        gateway: key.gateway.to_string(),
        port: key.port,
        address: socket.and_then(|socket| socket.as_ref().ok().copied()),
        problem: socket.and_then(|socket| socket.as_ref().err().cloned()),
        listener: listener.to_string(),
        hosts: hosts.to_string(),
        mode: mode.to_owned(),
        routes,
        tunnels: 0,
    };
    match port {
        Port::Http(listeners) => {
            listeners.iter().map(|(hosts, own)| one(&own.id, &hosts, "HTTP", http_routes(&own.routes))).collect()
        }
        Port::Tls(listeners) => listeners
            .iter()
            .map(|(hosts, own)| {
                let (mode, routes) = match &own.service {
                    TlsService::Passthrough(routes) => ("TLS passthrough", tcp_routes(routes)),
                    TlsService::TerminateTcp { routes, .. } => ("TLS", tcp_routes(routes)),
                    TlsService::TerminateHttp { routes, .. } => ("HTTPS", http_routes(routes)),
                };
                one(&own.id, &hosts, mode, routes)
            })
            .collect(),
    }
}

fn tcp_routes(routes: &HostMap<TcpRoute>) -> Vec<RouteStatus> {
    let one = |(hosts, route): (_, &TcpRoute)| route_status(&route.id, &hosts);
    routes.iter().map(one).collect()
}

/// A route with several rules is one.
fn http_routes(routes: &HttpRoutes) -> Vec<RouteStatus> {
    let mut all: Vec<_> = routes.iter().map(|(hosts, route)| route_status(&route.id, &hosts)).collect();
    all.dedup();
    all
}

fn route_status(route: &dyn ToString, hosts: &dyn ToString) -> RouteStatus {
    RouteStatus { route: route.to_string(), hosts: hosts.to_string() }
}
