//! The tunnels that are open: who they are, what they carry, and how they end when nobody wants them any more.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use portreeve_names::Hostname;
use portreeve_table::{HttpRoutes, ListenerId, Port, PortKey, RouteId, Table, TlsService};
use tokio::time::{Instant, sleep};

use crate::observe::{AccessRecord, Outcome, Traffic};
use crate::tunnel::{self, Side};

/// One open tunnel, as it stands.
#[derive(Clone, Debug)]
pub struct OpenTunnel {
    /// The port on which it came.
    pub port: PortKey,
    /// Whose it is.
    pub peer: SocketAddr,
    /// The name in the ClientHello, if there was one.
    pub server_name: Option<Hostname>,
    /// The listener.
    pub listener: Option<ListenerId>,
    /// The route.
    pub route: Option<RouteId>,
    /// The Service, as `namespace/name:port`.
    pub backend: Option<Arc<str>>,
    /// The endpoint.
    pub endpoint: Option<SocketAddr>,
    /// How long ago it was connected.
    pub age: Duration,
    /// What it has carried so far.
    pub traffic: Traffic,
}

/// Every open tunnel of a gateway.
#[derive(Default)]
pub(crate) struct Tunnels {
    open: Mutex<HashMap<u64, Arc<Live>>>,
    next: AtomicU64,
}

/// What can be seen of a tunnel from outside the task that carries it.
pub(crate) struct Live {
    port: PortKey,
    peer: SocketAddr,
    server_name: Option<Hostname>,
    listener: Option<ListenerId>,
    route: Option<RouteId>,
    backend: Option<Arc<str>>,
    endpoint: Option<SocketAddr>,
    /// Whether an HTTP request led to it, and for which host.
    is_upgraded: bool,
    host: Option<Hostname>,
    started: Instant,
    received: AtomicU64,
    sent: AtomicU64,
    /// When bytes last moved, in milliseconds since the start.
    moved_at: AtomicU64,
    is_cut: AtomicBool,
    /// Wakes its task to see that.
    waker: Mutex<Option<Waker>>,
}

/// A tunnel's place in the list; it leaves when this is dropped.
struct Listed<'a> {
    tunnels: &'a Tunnels,
    id: u64,
    live: Arc<Live>,
}

impl Tunnels {
    /// Carries bytes both ways until both directions have ended, or the tunnel is cut, or was idle for too long.
    pub(crate) async fn carry<C: Side, B: Side>(
        &self,
        client: &mut C,
        backend: &mut B,
        record: &mut AccessRecord,
        idle_timeout: Option<Duration>,
    ) -> Result<(), Outcome> {
        let listed = self.list(record);
        let live = &*listed.live;
        let mut carrying = pin!(tunnel::carry(client, backend, &mut record.traffic, |traffic| live.note(traffic)));
        // Boxed, so that it costs only those that have a limit.
        let mut idle = idle_timeout.map(|limit| Box::pin(idle(live, limit)));
        poll_fn(|cx| {
            if live.poll_cut(cx).is_ready() {
                return Poll::Ready(Err(Outcome::RouteRemoved));
            }
            if idle.as_mut().is_some_and(|idle| idle.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Err(Outcome::IdleTimeout));
            }
            carrying.as_mut().poll(cx).map_err(|_| Outcome::Aborted)
        })
        .await
    }

    /// All of them, the oldest first.
    pub(crate) fn list_open(&self) -> Vec<OpenTunnel> {
        let mut open: Vec<_> = self.open().iter().map(|(id, live)| (*id, live.clone())).collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        open.iter().map(|(_, live)| live.snapshot()).collect()
    }

    /// Those whose way the table no longer has.
    pub(crate) fn without_route(&self, table: &Table) -> Vec<Arc<Live>> {
        self.open().values().filter(|live| !live.has_route(table)).cloned().collect()
    }

    fn list(&self, record: &AccessRecord) -> Listed<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let live = Arc::new(Live::new(record));
        self.open().insert(id, live.clone());
        Listed { tunnels: self, id, live }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Live>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.tunnels.open().remove(&self.id);
    }
}

impl Live {
    fn new(record: &AccessRecord) -> Self {
        Self {
            port: record.port.clone(),
            peer: record.peer,
            server_name: record.server_name.clone(),
            listener: record.listener.clone(),
            route: record.route.clone(),
            backend: record.backend.clone(),
            endpoint: record.endpoint,
            is_upgraded: record.request.is_some(),
            host: record.request.as_ref().and_then(|request| request.host.clone()),
            started: Instant::now(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            waker: Mutex::default(),
        }
    }

    /// Only the task that carries it writes, so nothing is lost between reading and writing.
    fn note(&self, traffic: &Traffic) {
        let before = self.received.load(Ordering::Relaxed) + self.sent.load(Ordering::Relaxed);
        if traffic.received + traffic.sent != before {
            self.received.store(traffic.received, Ordering::Relaxed);
            self.sent.store(traffic.sent, Ordering::Relaxed);
            self.moved_at.store(millis(self.started.elapsed()), Ordering::Relaxed);
        }
    }

    /// Ends it, as soon as its task has its turn.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        // Whoever takes the lock after this sees it.
        if let Some(waker) = self.waker().take() {
            waker.wake();
        }
    }

    fn poll_cut(&self, cx: &Context<'_>) -> Poll<()> {
        let mut waker = self.waker();
        if self.is_cut.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a new connection or request like this one would go the same way.
    pub(crate) fn has_route(&self, table: &Table) -> bool {
        match table.ports.get(&self.port) {
            Some(Port::Tls(listeners)) => {
                let own = listeners.find(self.server_name.as_ref());
                own.is_some_and(|own| Some(&own.id) == self.listener.as_ref() && self.has_route_of(&own.service))
            }
            Some(Port::Http(listeners)) => {
                let own = listeners.find(self.host.as_ref());
                own.is_some_and(|own| Some(&own.id) == self.listener.as_ref() && self.has_http_route(&own.routes))
            }
            None => false,
        }
    }

    fn has_route_of(&self, service: &TlsService) -> bool {
        match service {
            TlsService::Passthrough(routes) | TlsService::TerminateTcp { routes, .. } => {
                let route = routes.find(self.server_name.as_ref()).map(|route| &route.id);
                !self.is_upgraded && route.is_some() && route == self.route.as_ref()
            }
            TlsService::TerminateHttp { routes, .. } => self.has_http_route(routes),
        }
    }

    fn has_http_route(&self, routes: &HttpRoutes) -> bool {
        self.is_upgraded && routes.iter().any(|(_, route)| Some(&route.id) == self.route.as_ref())
    }

    fn idle_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.moved_at.load(Ordering::Relaxed)))
    }

    fn snapshot(&self) -> OpenTunnel {
        OpenTunnel {
            port: self.port.clone(),
            peer: self.peer,
            server_name: self.server_name.clone(),
            listener: self.listener.clone(),
            route: self.route.clone(),
            backend: self.backend.clone(),
            endpoint: self.endpoint,
            age: self.started.elapsed(),
            traffic: Traffic {
                received: self.received.load(Ordering::Relaxed),
                sent: self.sent.load(Ordering::Relaxed),
            },
        }
    }
}

/// Waits until a tunnel has been idle for as long as it may.
async fn idle(live: &Live, limit: Duration) {
    while let Some(left) = limit.checked_sub(live.idle_for()).filter(|left| !left.is_zero()) {
        sleep(left).await;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
