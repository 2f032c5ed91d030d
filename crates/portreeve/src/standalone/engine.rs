use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use portreeve_attach::{DataPlane, SocketState};
use portreeve_gateway::{BindError, Gateway, Monitor, Observer, SessionSecret, Settings};
use portreeve_table::{PortKey, Table};

use super::{Snapshot, StartError};
use crate::authority::{Authority, CA_CERTIFICATE};
use crate::input::{Input, Objects};
use crate::manifest::{Directory, Reading};
use crate::records::Records;
use crate::report::{SocketStates, rows};
use crate::sockets::{Sockets, assign};
use crate::state::{Secrecy, StateDirectory, StateError};
use crate::world::{Converged, Environment, World, converge};

/// What visitors' sessions are sealed with, so that they outlast the process.
const SESSIONS_FILE: &str = "sessions.json";
/// How often sockets and statuses may answer each other; a status that says "bound" asks for no new socket.
const MAX_BINDINGS: usize = 4;
/// When what failed is tried again: a socket that was in use, a disk that was full.
const RETRY: Duration = Duration::from_secs(5);
/// The longest rest, so that a clock that was set is noticed.
const LONGEST_REST: Duration = Duration::from_hours(1);
/// The shortest, so that a deadline that stays in the past costs little.
const SHORTEST_REST: Duration = Duration::from_secs(1);

/// The secret of an earlier process, or a new one; none where the system has no randomness.
fn session_secret(state: &StateDirectory) -> Result<Option<SessionSecret>, StateError> {
    if let Some(kept) = state.read(SESSIONS_FILE)? {
        return Ok(Some(SessionSecret::new(kept)));
    }
    let secret = SessionSecret::random();
    if let Some(secret) = &secret {
        state.write(SESSIONS_FILE, Secrecy::Private, secret.bytes())?;
    }
    Ok(secret)
}

/// Owns everything that changes, and changes it in one order: read, decide, record, bind, tell.
pub(super) struct Engine {
    input: Input,
    directory: Directory,
    reading: Reading,
    /// The last attempt to read the directory itself, if it failed.
    unreadable: Option<String>,
    objects: Objects,
    world: World,
    authority: Authority,
    state: StateDirectory,
    records: Records,
    saved: Records,
    /// Whether something could not be written down.
    is_unsaved: bool,
    gateway: Gateway,
    data_plane: DataPlane,
    /// What is asked of the gateway.
    sockets: Sockets,
    /// What became of that.
    bound: BTreeMap<PortKey, Result<SocketAddr, BindError>>,
    wake_at: Option<Timestamp>,
    problems: Vec<String>,
}

impl Engine {
    /// Reads and serves for the first time.
    pub(super) async fn start(
        input: Input,
        settings: Settings,
        observer: Arc<dyn Observer>,
        listeners: Vec<TcpListener>,
    ) -> Result<(Self, Snapshot), StartError> {
        let mut directory = Directory::new(&input.manifests);
        let reading = directory.read()?;
        let state = StateDirectory::open(&input.state)?;
        let saved = Records::peek(state.path())?;
        let settings = Settings { session_secret: session_secret(&state)?, ..settings };
        let mut engine = Self {
            directory,
            reading,
            unreadable: None,
            objects: Objects::default(),
            world: World::new(saved.claims.clone()),
            authority: Authority::open(&state, crate::now())?,
            state,
            records: saved.clone(),
            saved,
            is_unsaved: false,
            gateway: Gateway::new(settings, observer),
            data_plane: DataPlane::default(),
            sockets: Sockets::default(),
            bound: BTreeMap::new(),
            wake_at: None,
            problems: Vec::new(),
            input,
        };
        engine.gateway.adopt(listeners);
        engine.take_in();
        let snapshot = engine.settle(crate::now()).await;
        let refusals: Vec<_> = engine.sockets.refused.values().cloned().collect();
        if refusals.is_empty() { Ok((engine, snapshot)) } else { Err(StartError::Sockets(refusals)) }
    }

    /// Lets another process have the state directory and the sockets. Serving goes on as it is, and nothing else may be
    /// done until [`Engine::take_back`].
    pub(super) fn hand_over(&self) -> io::Result<Vec<TcpListener>> {
        let listeners = self.gateway.duplicate_listeners()?;
        self.state.release()?;
        Ok(listeners)
    }

    /// Nobody has taken it over.
    pub(super) fn take_back(&mut self) -> Result<(), StateError> {
        self.state.take_back()
    }

    /// A look at the gateway from outside.
    pub(super) fn monitor(&self) -> Monitor {
        self.gateway.monitor()
    }

    /// Reads what has changed; returns whether anything has.
    pub(super) fn reload(&mut self) -> bool {
        let before = std::mem::take(&mut self.unreadable);
        match self.directory.read() {
            Ok(reading) if reading == self.reading => before.is_some(),
            Ok(reading) => {
                self.reading = reading;
                self.take_in();
                true
            }
            Err(error) => {
                let text = format!("{error}: {}; what it last gave is served", error.source);
                let is_news = before.as_ref() != Some(&text);
                self.unreadable = Some(text);
                is_news
            }
        }
    }

    fn take_in(&mut self) {
        let is_complete = !self.reading.has_errors();
        self.objects = self.input.complete(&self.reading);
        assign(&mut self.records.addresses, &self.objects.gateways, &self.input.rules.pool, is_complete);
        let refused = self.world.rewrite(self.objects.objects.clone(), is_complete);
        self.problems = refused.iter().map(ToString::to_string).collect();
    }

    /// Decides and serves.
    pub(super) async fn settle(&mut self, now: Timestamp) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for _ in 0..MAX_BINDINGS {
            let environment = Environment {
                config: &self.input.config,
                settings: &self.input.settings,
                data_plane: &self.data_plane,
                now,
            };
            let converged = converge(&mut self.world, &mut self.authority, environment);
            // Who was granted what is on disk before it is served, so that a crash costs nobody a name.
            let saved = self.save();
            self.is_unsaved = saved.is_err();
            let is_settled = self.bind(&converged.table).await;
            self.wake_at = converged.wake_at;
            snapshot = self.tell(snapshot, converged, saved.err());
            if is_settled {
                break;
            }
        }
        snapshot
    }

    fn save(&mut self) -> Result<(), StateError> {
        self.records.claims.clone_from(self.world.claims());
        self.records.save(&self.state, &mut self.saved)?;
        self.authority.save(&self.state)
    }

    /// Serves a table; returns whether that told nothing new.
    async fn bind(&mut self, table: &Table) -> bool {
        let before = self.bound.iter().filter(|(_, bound)| bound.is_ok());
        let before = before.filter_map(|(port, _)| Some((port.clone(), *self.sockets.open.get(port)?))).collect();
        self.sockets = self.input.rules.resolve(table.ports.keys(), &self.records.addresses, &before);
        self.bound = self.gateway.apply(Arc::new(table.clone()), &self.sockets.open).await;
        let data_plane = self.observe();
        let is_settled =
            data_plane.sockets == self.data_plane.sockets && data_plane.addresses == self.data_plane.addresses;
        self.data_plane = data_plane;
        is_settled
    }

    /// What became of the sockets, as statuses tell it.
    fn observe(&self) -> DataPlane {
        let mut addresses: BTreeMap<Arc<str>, Vec<IpAddr>> = BTreeMap::new();
        for (port, bound) in &self.bound {
            if let Ok(socket) = bound {
                addresses.entry(port.gateway.clone()).or_default().push(socket.ip());
            }
        }
        for addresses in addresses.values_mut() {
            addresses.sort_unstable();
            addresses.dedup();
        }
        let sockets = self.socket_states().into_iter().map(|(port, state)| match state {
            Ok(_) => (port, SocketState::Bound),
            Err(why) => (port, SocketState::Failed(why)),
        });
        DataPlane { addresses, sockets: sockets.collect() }
    }

    fn socket_states(&self) -> SocketStates {
        let bound =
            self.bound.iter().map(|(port, bound)| (port.clone(), bound.as_ref().copied().map_err(ToString::to_string)));
        let refused = self.sockets.refused.iter().map(|(port, refusal)| (port.clone(), Err(refusal.to_string())));
        bound.chain(refused).collect()
    }

    fn tell(&self, mut snapshot: Snapshot, converged: Converged, unsaved: Option<StateError>) -> Snapshot {
        let unsaved = unsaved.map(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}; serving goes on, but a restart will not know what changed"),
            None => error.to_string(),
        });
        let unsettled = converged.unsettled.map(|unsettled| unsettled.to_string());
        snapshot.events.extend(converged.events);
        Snapshot {
            rows: rows(&self.world, &converged.table, &self.socket_states()),
            findings: self.reading.findings.clone(),
            warnings: converged.warnings.into_iter().chain(self.sockets.warnings()).collect(),
            problems: self.problems.iter().chain(&self.unreadable).cloned().chain(unsaved).chain(unsettled).collect(),
            events: snapshot.events,
            sockets: self.socket_states(),
            ca_certificate: self.state.path().join(CA_CERTIFICATE),
            objects: self.world.objects().map(|(object, value)| (object.clone(), value.clone())).collect(),
        }
    }

    /// How long nothing is due.
    pub(super) fn rest(&self, now: Timestamp) -> Duration {
        let due = self.wake_at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        let has_failed = self.bound.values().any(Result::is_err) || self.is_unsaved;
        let retry = has_failed.then_some(RETRY);
        [due, retry].into_iter().flatten().min().unwrap_or(LONGEST_REST).clamp(SHORTEST_REST, LONGEST_REST)
    }

    /// See [`super::Standalone::shutdown`].
    pub(super) async fn shutdown(self, deadline: Duration) -> usize {
        self.gateway.shutdown(deadline).await
    }
}
