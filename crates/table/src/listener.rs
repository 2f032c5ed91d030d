use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::address_block::AddressBlock;
use crate::backend::Backends;
use crate::certificate::KeyPair;
use crate::host_map::HostMap;
use crate::http_route::HttpRoutes;

/// Everything that is served, by socket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// One entry for each port on which a Gateway has at least one usable listener.
    pub ports: BTreeMap<PortKey, Port>,
    /// Who, on which port, must say with a PROXY protocol header whose connection it is; nobody else is asked or believed.
    pub proxies: BTreeMap<PortKey, Arc<[AddressBlock]>>,
}

/// One port of one Gateway, before it is mapped to a socket address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// Which Gateway, as `namespace/name`.
    pub gateway: Arc<str>,
    /// The port that the listeners name.
    pub port: u16,
}

/// What is spoken on a port; listeners are told apart by host name.
#[derive(Clone, Debug, PartialEq)]
pub enum Port {
    /// Plain HTTP; the listener is found by the `Host` of each request.
    Http(HostMap<HttpListener>),
    /// TLS; the listener is found by the server name of the ClientHello, whatever the listener then does with TLS.
    Tls(HostMap<TlsListener>),
}

/// A listener that speaks HTTP, with or without TLS under it.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpListener {
    /// Who this is, for logs and explanations.
    pub id: ListenerId,
    /// The routes that are attached to this listener and to no other: a request never falls through to another's.
    pub routes: HttpRoutes,
}

/// A listener that is found by server name.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsListener {
    /// Who this is, for logs and explanations.
    pub id: ListenerId,
    /// What becomes of the connection.
    pub service: TlsService,
    /// After how long without a byte either way a tunnel is closed; `None`: never.
    pub idle_timeout: Option<Duration>,
}

impl Table {
    /// Whether whoever connects from `peer` must send a PROXY protocol header.
    pub fn is_proxy(&self, port: &PortKey, peer: IpAddr) -> bool {
        self.proxies.get(port).is_some_and(|blocks| blocks.iter().any(|block| block.contains(peer)))
    }
}

/// What becomes of a TLS connection once its listener is known.
#[derive(Clone, Debug, PartialEq)]
pub enum TlsService {
    /// The bytes go on untouched to the route that matches the server name (`protocol: TLS`, `mode: Passthrough`).
    Passthrough(HostMap<TcpRoute>),
    /// TLS ends here, and what is inside goes on as plain bytes (`protocol: TLS`, `mode: Terminate`).
    TerminateTcp {
        /// What is shown to the client.
        certificate: Arc<KeyPair>,
        /// Found by the server name.
        routes: HostMap<TcpRoute>,
    },
    /// TLS ends here, and HTTP is inside (`protocol: HTTPS`).
    TerminateHttp {
        /// What is shown to the client.
        certificate: Arc<KeyPair>,
        /// Found by host and request.
        routes: HttpRoutes,
    },
}

/// A TLSRoute's single rule.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpRoute {
    /// Who this is, for logs and explanations.
    pub id: RouteId,
    /// Where the bytes go.
    pub backends: Backends,
}

/// Names a listener in logs and explanations, as `Kind/namespace/name/section`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub Arc<str>);

/// Names a route in logs and explanations, as `Kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub Arc<str>);

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.gateway, self.port)
    }
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RouteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
