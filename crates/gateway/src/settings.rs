use std::time::Duration;

/// The gateway's limits and deadlines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many client connections may be open at once, over all ports; the next one is accepted and closed.
    ///
    /// Each takes one or two file descriptors. Default 100,000.
    pub max_connections: usize,
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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_connections: 100_000,
            hello_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            request_head_timeout: Duration::from_mins(1),
            connect_timeout: Duration::from_secs(5),
        }
    }
}
