use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use portreeve_table::{PortKey, Table};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::DropGuard;

use crate::admission::Admission;
use crate::http::Pool;
use crate::listener::{BindError, Bound, OpenPort};
use crate::load::Loads;
use crate::login::SignIn;
use crate::monitor::Monitor;
use crate::observe::Observer;
use crate::settings::Settings;
use crate::shared::{Installed, Shared, Tasks, Turns};
use crate::tunnels::Tunnels;

/// The running gateway, and the only writer of what it serves.
///
/// Dropping it closes every socket and connection at once; [`Gateway::shutdown`] does it gently.
pub struct Gateway {
    shared: Arc<Shared>,
    installed: watch::Sender<Arc<Installed>>,
    ports: BTreeMap<PortKey, OpenPort>,
    /// Sockets of a process whose place this one takes, until the next table says which of them are wanted.
    adopted: HashMap<SocketAddr, std::net::TcpListener>,
    /// Ends what is open when the gateway is dropped.
    _cut: DropGuard,
}

impl Gateway {
    /// A gateway that serves nothing yet. It runs on the tokio runtime in which it is used.
    pub fn new(settings: Settings, observer: Arc<dyn Observer>) -> Self {
        let (sender, installed) = watch::channel(Arc::default());
        let tasks = Tasks::default();
        let cut = tasks.cut.clone().drop_guard();
        let shared = Shared {
            pool: Pool::new(&settings, &tasks),
            admission: Arc::new(Admission::new(&settings)),
            sign_in: SignIn::new(settings.session_secret.clone()),
            settings,
            observer,
            installed,
            turns: Turns::default(),
            loads: Loads::default(),
            tunnels: Tunnels::default(),
            tasks,
        };
        Self { shared: Arc::new(shared), installed: sender, ports: BTreeMap::new(), adopted: HashMap::new(), _cut: cut }
    }

    /// Serves `table` on these addresses from now on.
    ///
    /// Sockets of ports that are no longer in both are closed; what was accepted on them stays open. New ones are
    /// bound, and those whose address is the same are kept. When this returns, every new connection and every new HTTP
    /// request sees the new table; open tunnels are not touched, but those without a route any more may be given a
    /// time to end ([`Settings::removed_route_drain`]).
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
        let mut adopted = mem::take(&mut self.adopted);
        let mut bind = |address| match adopted.remove(&address) {
            Some(listener) => Bound::adopt(listener, address),
            None => Bound::bind(address),
        };
        let missing = wanted.into_iter().filter(|(port, _)| !self.ports.contains_key(port));
        let bound: Vec<_> = missing.map(|(port, address)| (port, bind(address))).collect();
        self.install(table);
        let mut result: BTreeMap<_, _> = self.ports.iter().map(|(port, open)| (port.clone(), Ok(open.local))).collect();
        for (port, bound) in bound {
            result.insert(port.clone(), bound.map(|bound| self.open(port, bound)));
        }
        result
    }

    /// Takes the listening sockets of a process whose place this one takes: those whose addresses the next table has are
    /// served, with the connections that wait in them, and the others are closed.
    pub fn adopt(&mut self, listeners: Vec<std::net::TcpListener>) {
        let by_address = |listener: std::net::TcpListener| Some((listener.local_addr().ok()?, listener));
        self.adopted = listeners.into_iter().filter_map(by_address).collect();
    }

    /// The listening sockets once more, for a process that takes this one's place. Both then accept on them, until one
    /// shuts down: nobody is refused meanwhile.
    pub fn duplicate_listeners(&self) -> io::Result<Vec<std::net::TcpListener>> {
        self.ports.values().map(OpenPort::duplicate).collect()
    }

    /// A look at it from outside.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.shared.clone())
    }

    /// Stops accepting, lets what is open end, and cuts what is left at the deadline.
    ///
    /// HTTP/1.1 connections end with the request that is in flight, HTTP/2 ones with a GOAWAY and their open streams,
    /// tunnels when both sides are done. Returns how many connections had to be cut, once nothing is left.
    pub async fn shutdown(self, deadline: Duration) -> usize {
        let Self { shared, ports, _cut, .. } = self;
        let Shared { tasks, admission, .. } = &*shared;
        tasks.draining.cancel();
        // Who comes now is refused, and not kept waiting.
        drop(ports);
        if timeout(deadline, tasks.ended()).await.is_ok() {
            return 0;
        }
        let open = admission.taken().open;
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
        if let Some(time) = self.shared.settings.removed_route_drain {
            self.retire(time);
        }
    }

    /// Cuts what lost its route now and does not have it back in time.
    fn retire(&self, time: Duration) {
        let orphans = self.shared.tunnels.without_route(&self.shared.installed().table);
        if orphans.is_empty() {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        self.shared.tasks.spawn(self.shared.tasks.draining.clone().run_until_cancelled_owned(async move {
            sleep(time).await;
            if let Some(shared) = shared.upgrade() {
                let table = shared.installed().table.clone();
                orphans.iter().filter(|tunnel| !tunnel.has_route(&table)).for_each(|tunnel| tunnel.cut());
            }
        }));
    }

    fn open(&mut self, port: PortKey, bound: Bound) -> SocketAddr {
        let open = bound.open(port.clone(), &self.shared);
        let local = open.local;
        self.ports.insert(port, open);
        local
    }
}
