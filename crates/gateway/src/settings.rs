use std::time::Duration;

use crate::login::SessionSecret;

/// The gateway's limits and deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many client connections may be open at once, over all ports; the next one is accepted and closed.
    ///
    /// Each takes one or two file descriptors. Default 100,000.
    pub max_connections: usize,
    /// How many of them one peer may have: an IPv4 address, or the /64 of an IPv6 address. Default: all, as many clients may
    /// be behind one address.
    pub max_connections_per_peer: usize,
    /// How many connections may be open of which it is not known yet what they want. Default: half of all, so that whoever
    /// says nothing can never keep more than that from others.
    pub max_waiting: usize,
    /// How many of these one peer may have. Default: an eighth of all.
    pub max_waiting_per_peer: usize,
    /// How long a client may take, from the first moment, to say which server and protocol it wants: its ClientHello,
    /// or on plain HTTP the first bytes. Default 10 s.
    pub hello_timeout: Duration,
    /// How long a TLS handshake that ends here may take after the ClientHello. Default 10 s.
    pub handshake_timeout: Duration,
    /// How long an HTTP/1.1 client may take for the head of a request; it is also how long an idle connection is kept.
    /// Default 60 s.
    pub request_head_timeout: Duration,
    /// How long one attempt to connect to an endpoint may take. Default 5 s.
    pub connect_timeout: Duration,
    /// How long tunnels go on whose route or listener the table no longer has. Default: to their end.
    pub removed_route_drain: Option<Duration>,
    /// What visitors' sessions are sealed with. Absent: a new one, so nobody stays signed in over a restart.
    pub session_secret: Option<SessionSecret>,
}

impl Settings {
    /// The defaults, with places for so many connections.
    pub fn with_connections(max_connections: usize) -> Self {
        Self {
            max_connections,
            max_connections_per_peer: max_connections,
            max_waiting: (max_connections / 2).max(1),
            max_waiting_per_peer: (max_connections / 8).max(1),
            hello_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            request_head_timeout: Duration::from_mins(1),
            connect_timeout: Duration::from_secs(5),
            removed_route_drain: None,
            session_secret: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::with_connections(100_000)
    }
}
