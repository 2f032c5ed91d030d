//! Listening sockets and their accept loops.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use portreeve_table::PortKey;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::admission::Place;
use crate::backend;
use crate::connection::Connection;
use crate::observe::{Access, Limit, Outcome};
use crate::shared::Shared;

/// How many connections may wait to be accepted; the kernel may lower it (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// How long to wait when the process or the machine is out of descriptors or memory: spinning would not free any.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a port cannot listen on its address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket listens there.
    #[error("{0} is in use: stop what listens there, or give this port another address")]
    InUse(SocketAddr),
    /// The process lacks the right.
    #[error("{0} may not be bound by this user: grant CAP_NET_BIND_SERVICE, or choose a port from 1024 up")]
    NotPermitted(SocketAddr),
    /// No interface has the address.
    #[error("{0} is not an address of this machine: add it to an interface, or choose another")]
    NoSuchAddress(SocketAddr),
    /// Anything else.
    #[error("failed to listen on {address}")]
    Failed {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// A socket that is bound, and accepts once it is started.
pub(crate) struct Bound {
    listener: TcpListener,
    requested: SocketAddr,
    local: SocketAddr,
}

/// A port that accepts connections.
pub(crate) struct OpenPort {
    /// The address that was asked for, where port 0 means any.
    pub(crate) requested: SocketAddr,
    /// The address that was bound.
    pub(crate) local: SocketAddr,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    listener: Arc<TcpListener>,
}

impl Bound {
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Self::try_bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(address),
            io::ErrorKind::PermissionDenied => BindError::NotPermitted(address),
            io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress(address),
            _ => BindError::Failed { address, source },
        })
    }

    /// Takes a socket over that listens on this address already.
    pub(crate) fn adopt(listener: std::net::TcpListener, requested: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError::Failed { address: requested, source };
        listener.set_nonblocking(true).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        Ok(Self { listener: TcpListener::from_std(listener).map_err(failed)?, requested, local })
    }

    fn try_bind(requested: SocketAddr) -> io::Result<Self> {
        let socket = if requested.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Connections of an earlier process that linger in TIME_WAIT must not keep the port.
        socket.set_reuseaddr(true)?;
        socket.bind(requested)?;
        let listener = socket.listen(BACKLOG)?;
        let local = listener.local_addr()?;
        Ok(Self { listener, requested, local })
    }

    /// Starts to accept.
    pub(crate) fn open(self, port: PortKey, shared: &Arc<Shared>) -> OpenPort {
        let Self { listener, requested, local } = self;
        let (stop, listener) = (shared.tasks.draining.child_token(), Arc::new(listener));
        let accepting = accept_all(listener.clone(), port, shared.clone());
        let accepting = shared.tasks.spawn(stop.clone().run_until_cancelled_owned(accepting));
        OpenPort { requested, local, stop, accepting, listener }
    }
}

impl OpenPort {
    /// The same socket once more, for another process.
    pub(crate) fn duplicate(&self) -> io::Result<std::net::TcpListener> {
        self.listener.as_fd().try_clone_to_owned().map(Into::into)
    }

    /// Returns once the socket is closed, so that its address is free; what was accepted stays open.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        if let Err(error) = self.accepting.await {
            tracing::error!(address = %self.local, %error, "an accept loop broke");
        }
    }
}

async fn accept_all(listener: Arc<TcpListener>, port: PortKey, shared: Arc<Shared>) {
    let mut is_said = false;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                is_said = false;
                start(&shared, &port, stream, peer);
            }
            Err(error) if is_of_one_connection(&error) => {
                tracing::debug!(%port, %error, "a client left before it was accepted");
            }
            Err(error) => {
                // Once is enough for as long as it lasts.
                if !std::mem::replace(&mut is_said, true) {
                    tracing::warn!(%port, %error, "failed to accept; trying again every {ACCEPT_PAUSE:?}");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether the next accept may well succeed (`accept(2)`, "Error handling").
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn start(shared: &Arc<Shared>, port: &PortKey, stream: TcpStream, peer: SocketAddr) {
    let mut access = Access::start(shared.observer.clone(), port.clone(), peer);
    let by_proxy = shared.installed.borrow().table.is_proxy(port, peer.ip());
    match enter(shared, peer, by_proxy) {
        Ok(place) => {
            backend::tune(&stream);
            let connection = Connection { shared: shared.clone(), access, place: Arc::new(place), by_proxy };
            shared.tasks.spawn(connection.serve(stream));
        }
        Err(limit) => access.record.outcome = Outcome::Shed(limit),
    }
}

/// A proxy is no peer: those whose connections it brings are.
fn enter(shared: &Shared, peer: SocketAddr, by_proxy: bool) -> Result<Place, Limit> {
    let place = shared.admission.enter()?;
    if !by_proxy {
        place.count_for(peer.ip())?;
    }
    Ok(place)
}
