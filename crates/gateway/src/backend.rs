//! From a route's backends to a connected socket.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use portreeve_table::Backends;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::observe::{AccessRecord, Outcome};
use crate::shared::Turns;

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

/// Chooses a backend by weight, and its endpoints in the order in which to try them; notes the choice in the record.
pub(crate) fn choose(
    turns: &Turns,
    backends: &Backends,
    record: &mut AccessRecord,
) -> Result<Vec<SocketAddr>, Outcome> {
    let choice = backends.choose(turns.next()).ok_or(Outcome::NoBackend)?;
    record.backend = Some(choice.backend.service.clone());
    let endpoints = choice.endpoints().map_err(Outcome::Backend)?;
    Ok(endpoints.take(MAX_ATTEMPTS).collect())
}

/// Connects to the first endpoint that accepts; notes the last that was tried in the record.
pub(crate) async fn connect(
    endpoints: &[SocketAddr],
    attempt_timeout: Duration,
    record: &mut AccessRecord,
) -> Result<TcpStream, Outcome> {
    for endpoint in endpoints {
        record.endpoint = Some(*endpoint);
        match timeout(attempt_timeout, TcpStream::connect(endpoint)).await {
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
