//! From a route's backends to a connected socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use portreeve_table::{BackendOptions, Backends, Balance};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::observe::{Access, AccessRecord, Outcome};
use crate::shared::Shared;

/// How many endpoints of a Service are tried for one connection or request.
///
/// More would keep a client waiting behind a Service that is down as a whole.
const MAX_ATTEMPTS: usize = 3;

/// How long a connection is silent before its peer is asked whether it is still there, and how often it is asked again.
///
/// Middleboxes forget silent connections after 60 s and more, and a dead peer is found within a minute.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
pub(crate) const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent bytes may stay unacknowledged before the peer counts as dead.
pub(crate) const USER_TIMEOUT: Duration = Duration::from_mins(1);

/// Where a connection or request goes.
pub(crate) struct Chosen {
    /// In the order in which to try them.
    pub(crate) endpoints: Vec<SocketAddr>,
    pub(crate) options: BackendOptions,
}

/// Chooses a backend by weight, and its endpoints by its balance; notes the choice in the record.
pub(crate) fn choose(shared: &Shared, backends: &Backends, record: &mut AccessRecord) -> Result<Chosen, Outcome> {
    let choice = backends.choose(shared.turns.next()).ok_or(Outcome::NoBackend)?;
    record.backend = Some(choice.backend.service.clone());
    let endpoints = choice.endpoints().map_err(Outcome::Backend)?;
    let endpoints = match choice.backend.options.balance {
        Balance::Even => endpoints.take(MAX_ATTEMPTS).collect(),
        Balance::LeastConnections => {
            let mut endpoints: Vec<_> = endpoints.collect();
            shared.loads.sort(&mut endpoints);
            endpoints.truncate(MAX_ATTEMPTS);
            endpoints
        }
    };
    Ok(Chosen { endpoints, options: choice.backend.options.clone() })
}

/// Connects to the first endpoint that accepts; notes the last that was tried in the record.
///
/// The source port is left to `connect`, which shares ports between destinations: one endpoint can have as many
/// connections as there are ephemeral ports, and where those are used up the next endpoint is tried.
pub(crate) async fn connect(
    shared: &Shared,
    endpoints: &[SocketAddr],
    access: &mut Access,
) -> Result<TcpStream, Outcome> {
    for endpoint in endpoints {
        access.record.endpoint = Some(*endpoint);
        access.load = Some(Box::new(shared.loads.add(*endpoint)));
        match timeout(shared.settings.connect_timeout, TcpStream::connect(endpoint)).await {
            Ok(Ok(stream)) => {
                tune(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => tracing::debug!(%endpoint, %error, "the endpoint cannot be reached"),
            Err(_) => tracing::debug!(%endpoint, "the endpoint does not answer"),
        }
    }
    Err(Outcome::Unreachable)
}

/// Sets a socket up for long-lived, interactive bytes.
pub(crate) fn tune(stream: &TcpStream) {
    if let Err(error) = try_tune(stream) {
        tracing::debug!(%error, "failed to set socket options; the peer has probably left");
    }
}

fn try_tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Origin: pains row 8.
    #[tokio::test]
    async fn a_silent_connection_is_kept_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        try_tune(&stream).unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_keepalive_time().unwrap() < Duration::from_mins(1));
        assert!(stream.nodelay().unwrap());
    }
}
