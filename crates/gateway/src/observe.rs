use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use portreeve_names::Hostname;
use portreeve_table::client_hello::InvalidHello;
use portreeve_table::proxy_protocol::InvalidProxyHeader;
use portreeve_table::{BackendFault, ListenerId, PortKey, RouteId};

use crate::load::Load;

/// Is told what becomes of every connection and request. Called on the byte path: it must be quick and never block.
pub trait Observer: Send + Sync + 'static {
    /// A tunnel is connected to its backend; `record` is what is known so far, and [`Observer::finished`] will follow.
    fn tunnel_opened(&self, record: &AccessRecord) {
        let _ = record;
    }

    /// Once for each connection that is not HTTP, and once for each HTTP request (an upgraded one when its tunnel
    /// ends). An HTTP connection on which nothing was asked is not reported.
    fn finished(&self, record: &AccessRecord);
}

/// What became of one connection or HTTP request.
#[derive(Clone, Debug)]
pub struct AccessRecord {
    /// The port on which it came.
    pub port: PortKey,
    /// The client: the other end of its connection, or what a trusted proxy says in a PROXY protocol header.
    pub peer: SocketAddr,
    /// The name in the ClientHello, if there was one.
    pub server_name: Option<Hostname>,
    /// What was asked, for HTTP.
    pub request: Option<RequestRecord>,
    /// The listener, once it was found.
    pub listener: Option<ListenerId>,
    /// The route, once it was found.
    pub route: Option<RouteId>,
    /// The Service that was chosen, as `namespace/name:port`.
    pub backend: Option<Arc<str>>,
    /// The endpoint to which it went, or the last one that was tried in vain.
    pub endpoint: Option<SocketAddr>,
    /// Served, or why not.
    pub outcome: Outcome,
    /// The bytes that were carried.
    pub traffic: Traffic,
    /// From the accept, or for HTTP from the head of the request, to the end.
    pub duration: Duration,
}

/// What an HTTP request asked, and the status of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The host that was asked for, if it is a name.
    pub host: Option<Hostname>,
    /// The method.
    pub method: Method,
    /// The path, without the query, which may hold secrets.
    pub path: String,
    /// The status of the answer; `None` if the client left before there was one.
    pub status: Option<StatusCode>,
}

/// Bytes carried: everything on a passthrough connection, what was inside TLS where it ends here, bodies of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the client to the backend.
    pub received: u64,
    /// From the backend to the client.
    pub sent: u64,
}

/// Served, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Carried to the end, or answered by a route's own filter.
    Served,
    /// Cut off before its end: one side broke off, or the gateway was shut down.
    Aborted,
    /// There was no place for it.
    Shed(Limit),
    /// What a trusted proxy sent is no PROXY protocol header.
    InvalidProxyHeader(InvalidProxyHeader),
    /// The client did not say what it wants in time.
    HelloTimeout,
    /// The client left before it said what it wants.
    HelloCutShort,
    /// What the client sent is not a usable ClientHello.
    InvalidHello(InvalidHello),
    /// The client named no server, and no listener takes that.
    NoServerName,
    /// No listener of this port has the server name or host.
    UnknownName,
    /// The TLS handshake with the client failed, or took too long.
    HandshakeFailed,
    /// The request breaks HTTP in a way that makes it unsafe to pass on.
    BadRequest,
    /// The request's host belongs to another listener than the one that the connection was opened for (GEP-3567).
    Misdirected,
    /// No route of the listener takes this name or request.
    NoRoute,
    /// Nobody has signed in: the client was told to, or refused.
    NotSignedIn,
    /// Who has signed in may not go on.
    Forbidden,
    /// Nobody can sign in, since the identity provider cannot be asked.
    ProviderAway,
    /// The route has no backend with a share.
    NoBackend,
    /// The backend cannot be dialled.
    Backend(BackendFault),
    /// No endpoint that was tried accepted a connection.
    Unreachable,
    /// The backend broke off before it answered.
    BackendFailed,
    /// The backend did not begin its answer in the time that the route gives it.
    BackendTimeout,
    /// No byte came either way for as long as the listener allows.
    IdleTimeout,
    /// The table lost the route or the listener, and the time for its tunnels to end was over.
    RouteRemoved,
}

/// Which limit of [`Settings`](crate::Settings) was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Of all connections.
    Connections,
    /// Of the connections of which it is not known yet what they want.
    Waiting,
    /// Of one peer's connections.
    PeerConnections,
    /// Of one peer's connections of which it is not known yet what they want.
    PeerWaiting,
}

/// How many connections there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Open ones, with those that wait.
    pub open: usize,
    /// Those of which it is not known yet what they want.
    pub waiting: usize,
}

impl Outcome {
    /// One word, for metrics and machines.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Served => "Served",
            Self::Aborted => "Aborted",
            Self::Shed(Limit::Connections) => "TooManyConnections",
            Self::Shed(Limit::Waiting) => "TooManyWaiting",
            Self::Shed(Limit::PeerConnections) => "TooManyConnectionsOfPeer",
            Self::Shed(Limit::PeerWaiting) => "TooManyWaitingOfPeer",
            Self::InvalidProxyHeader(InvalidProxyHeader::Missing) => "NoProxyHeader",
            Self::InvalidProxyHeader(InvalidProxyHeader::Malformed | InvalidProxyHeader::TooLarge) => "BadProxyHeader",
            Self::HelloTimeout => "HelloTimeout",
            Self::HelloCutShort => "HelloCutShort",
            Self::InvalidHello(InvalidHello::NotTls) => "NotTls",
            Self::InvalidHello(InvalidHello::NotClientHello) => "NotClientHello",
            Self::InvalidHello(InvalidHello::TooLarge) => "HelloTooLarge",
            Self::InvalidHello(InvalidHello::Malformed) => "HelloMalformed",
            Self::InvalidHello(InvalidHello::BadServerName) => "BadServerName",
            Self::NoServerName => "NoServerName",
            Self::UnknownName => "UnknownName",
            Self::HandshakeFailed => "HandshakeFailed",
            Self::BadRequest => "BadRequest",
            Self::Misdirected => "Misdirected",
            Self::NoRoute => "NoRoute",
            Self::NotSignedIn => "NotSignedIn",
            Self::Forbidden => "Forbidden",
            Self::ProviderAway => "ProviderAway",
            Self::NoBackend => "NoBackend",
            Self::Backend(BackendFault::Unresolved) => "BackendUnresolved",
            Self::Backend(BackendFault::NoEndpoint) => "NoEndpoint",
            Self::Unreachable => "BackendUnreachable",
            Self::BackendFailed => "BackendFailed",
            Self::BackendTimeout => "BackendTimeout",
            Self::IdleTimeout => "IdleTimeout",
            Self::RouteRemoved => "RouteRemoved",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// A record that is reported when it is dropped, so that no way out can forget it.
pub(crate) struct Access {
    pub(crate) record: AccessRecord,
    observer: Arc<dyn Observer>,
    started: Instant,
    reported: bool,
    /// Counted at its endpoint for as long as this lasts.
    pub(crate) load: Option<Box<Load>>,
}

impl Access {
    /// Starts the clock; until something else is known, it will have been [`Outcome::Aborted`].
    pub(crate) fn start(observer: Arc<dyn Observer>, port: PortKey, peer: SocketAddr) -> Self {
        let record = AccessRecord {
            port,
            peer,
            server_name: None,
            request: None,
            listener: None,
            route: None,
            backend: None,
            endpoint: None,
            outcome: Outcome::Aborted,
            traffic: Traffic::default(),
            duration: Duration::ZERO,
        };
        Self { record, observer, started: Instant::now(), reported: true, load: None }
    }

    /// From here on its requests are what is reported, not the connection; this is what their records start from.
    pub(crate) fn leave_to_requests(&mut self) -> Self {
        self.forget();
        let (record, observer, started) = (self.record.clone(), self.observer.clone(), self.started);
        Self { record, observer, started, reported: false, load: None }
    }

    /// Nothing came of it that anybody should know.
    pub(crate) fn forget(&mut self) {
        self.reported = false;
    }

    /// A record of its own for a request on the same connection.
    pub(crate) fn for_request(&self, request: RequestRecord) -> Self {
        let record = AccessRecord { request: Some(request), ..self.record.clone() };
        Self { record, observer: self.observer.clone(), started: Instant::now(), reported: true, load: None }
    }

    pub(crate) fn tunnel_opened(&mut self) {
        self.record.duration = self.started.elapsed();
        self.observer.tunnel_opened(&self.record);
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if self.reported {
            self.record.duration = self.started.elapsed();
            self.observer.finished(&self.record);
        }
    }
}
