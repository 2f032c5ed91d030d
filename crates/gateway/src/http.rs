//! HTTP connections: HTTP/1.1 and HTTP/2 in, with or without TLS under them.

mod answer;
mod body;
mod exchange;
mod headers;
mod http2_pool;
mod pool;
mod target;
mod upgrade;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use portreeve_table::ListenerId;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::admission::Place;
use crate::connection::{Connection, LATE_TIME};
use crate::observe::Access;
use crate::shared::{Shared, Tasks};

pub(crate) use pool::Pool;

/// How large the head of a request may be, in bytes.
const MAX_HEAD_LEN: u32 = 64 * 1024;

/// How often the other side of HTTP/2 is asked whether it is still there, and how long it may take to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything that the requests of one HTTP connection have in common.
pub(crate) struct HttpConnection {
    shared: Arc<Shared>,
    /// What the record of each request starts from.
    access: Access,
    /// The listener whose certificate the client accepted; `None` without TLS.
    tls_listener: Option<ListenerId>,
    place: Arc<Place>,
}

impl HttpConnection {
    /// From here on `connection` is reported by its requests.
    pub(crate) fn new(connection: &mut Connection) -> Self {
        Self {
            shared: connection.shared.clone(),
            access: connection.access.leave_to_requests(),
            tls_listener: connection.access.record.listener.clone(),
            place: connection.place.clone(),
        }
    }
}

/// Serves requests until the connection ends, or until the last one that a shutdown lets through.
pub(crate) async fn serve<S>(connection: HttpConnection, stream: S, http2: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (settings, tasks) = (connection.shared.settings.clone(), connection.shared.tasks.clone());
    let connection = Arc::new(connection);
    let asked = Arc::new(Notify::new());
    let first = asked.clone();
    let service = service_fn(move |request| {
        asked.notify_one();
        connection.place.settle();
        exchange::exchange(connection.clone(), request)
    });
    let (stream, draining) = (TokioIo::new(stream), tasks.clone());
    let ended = if http2 {
        let mut server = http2::Builder::new(tasks);
        server.timer(TokioTimer::new()).max_header_list_size(MAX_HEAD_LEN);
        server.keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
        let serving = server.serve_connection(stream, service);
        until_drained(serving, &draining, &first, http2::Connection::graceful_shutdown).await
    } else {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(settings.request_head_timeout);
        server.max_header_size(MAX_HEAD_LEN as usize);
        let serving = server.serve_connection(stream, service).with_upgrades();
        until_drained(serving, &draining, &first, http1::UpgradeableConnection::graceful_shutdown).await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection broke off");
    }
}

/// A client that was accepted just before a shutdown has its first request answered.
async fn until_drained<C: Future>(connection: C, tasks: &Tasks, asked: &Notify, drain: fn(Pin<&mut C>)) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        () = tasks.draining.cancelled() => {}
    }
    tokio::select! {
        ended = &mut connection => return ended,
        () = asked.notified() => {}
        () = tasks.drained_for(LATE_TIME) => {}
    }
    drain(connection.as_mut());
    connection.await
}
