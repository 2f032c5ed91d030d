use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portreeve_table::{PortKey, Table};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::DropGuard;

use crate::http::Pool;
use crate::listener::{BindError, Bound, OpenPort};
use crate::observe::Observer;
use crate::settings::Settings;
use crate::shared::{Installed, Shared, Tasks, Turns};

/// The running gateway, and the only writer of what it serves.
///
/// Dropping it closes every socket and connection at once; [`Gateway::shutdown`] does it gently.
pub struct Gateway {
    shared: Arc<Shared>,
    installed: watch::Sender<Arc<Installed>>,
    ports: BTreeMap<PortKey, OpenPort>,
    /// Ends what is open when the gateway is dropped.
    _cut: DropGuard,
}

impl Gateway {
    /// A gateway that serves nothing yet. It runs on the tokio runtime in which it is used.
    pub fn new(mut settings: Settings, observer: Arc<dyn Observer>) -> Self {
        settings.max_connections = settings.max_connections.min(Semaphore::MAX_PERMITS);
        let (sender, installed) = watch::channel(Arc::default());
        let tasks = Tasks::default();
        let connections = Arc::new(Semaphore::new(settings.max_connections));
        let pool = Pool::new(&settings);
        let cut = tasks.cut.clone().drop_guard();
        let shared = Shared { settings, observer, installed, turns: Turns::default(), pool, connections, tasks };
        Self { shared: Arc::new(shared), installed: sender, ports: BTreeMap::new(), _cut: cut }
    }

    /// Serves `table` on these addresses from now on.
    ///
    /// Sockets of ports that are no longer in both are closed; what was accepted on them stays open. New ones are
    /// bound, and those whose address is the same are kept. When this returns, every new connection and every new HTTP
    /// request sees the new table; open tunnels are not touched.
    ///
    /// Returns for each port that is in both where it listens (port 0 is resolved), or why it does not; a port that
    /// failed is tried again at the next call, and keeps no other from being served.
    pub async fn apply(
        &mut self,
        table: Arc<Table>,
        addresses: &BTreeMap<PortKey, SocketAddr>,
    ) -> BTreeMap<PortKey, Result<SocketAddr, BindError>> {
        let wanted: BTreeMap<PortKey, SocketAddr> =
            addresses.iter().filter(|(port, _)| table.ports.contains_key(port)).map(|(k, v)| (k.clone(), *v)).collect();
        self.close_all_but(&wanted).await;
        let missing = wanted.into_iter().filter(|(port, _)| !self.ports.contains_key(port));
        let bound: Vec<_> = missing.map(|(port, address)| (port, Bound::bind(address))).collect();
        self.install(table);
        let mut result: BTreeMap<_, _> = self.ports.iter().map(|(port, open)| (port.clone(), Ok(open.local))).collect();
        for (port, bound) in bound {
            result.insert(port.clone(), bound.map(|bound| self.open(port, bound)));
        }
        result
    }

    /// Stops accepting, lets what is open end, and cuts what is left at the deadline.
    ///
    /// HTTP/1.1 connections end with the request that is in flight, HTTP/2 ones with a GOAWAY and their open streams,
    /// tunnels when both sides are done. Returns how many connections had to be cut, once nothing is left.
    pub async fn shutdown(self, deadline: Duration) -> usize {
        let Shared { tasks, connections, settings, .. } = &*self.shared;
        tasks.draining.cancel();
        if timeout(deadline, tasks.ended()).await.is_ok() {
            return 0;
        }
        let open = settings.max_connections.saturating_sub(connections.available_permits());
        tasks.cut.cancel();
        tasks.ended().await;
        open
    }

    async fn close_all_but(&mut self, wanted: &BTreeMap<PortKey, SocketAddr>) {
        let stays = |port: &PortKey, open: &OpenPort| wanted.get(port) == Some(&open.requested);
        let left: Vec<_> = self.ports.extract_if(.., |port, open| !stays(port, open)).collect();
        for (_, open) in left {
            open.close().await;
        }
    }

    /// From here on every look-up sees the new table.
    fn install(&mut self, table: Arc<Table>) {
        let tls = self.shared.installed().tls.renew(&table);
        self.installed.send_replace(Arc::new(Installed { table, tls }));
    }

    fn open(&mut self, port: PortKey, bound: Bound) -> SocketAddr {
        let open = bound.open(port.clone(), &self.shared);
        let local = open.local;
        self.ports.insert(port, open);
        local
    }
}
