//! Listening sockets and their accept loops.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portreeve_table::PortKey;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::backend;
use crate::connection::Connection;
use crate::observe::{Access, Outcome};
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
        let stop = shared.tasks.draining.child_token();
        let accepting = accept_all(listener, port, shared.clone());
        let accepting = shared.tasks.spawn(stop.clone().run_until_cancelled_owned(accepting));
        OpenPort { requested, local, stop, accepting }
    }
}

impl OpenPort {
    /// Returns once the socket is closed, so that its address is free; what was accepted stays open.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        if let Err(error) = self.accepting.await {
            tracing::error!(address = %self.local, %error, "an accept loop broke");
        }
    }
}

async fn accept_all(listener: TcpListener, port: PortKey, shared: Arc<Shared>) {
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
    let Ok(permit) = shared.connections.clone().try_acquire_owned() else {
        access.record.outcome = Outcome::TooManyConnections;
        return;
    };
    backend::tune(&stream);
    let connection = Connection { shared: shared.clone(), access, permit: Arc::new(permit) };
    shared.tasks.spawn(connection.serve(stream));
}
