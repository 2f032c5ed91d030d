//! The standalone shell: a directory of manifests, served for as long as the value lives.

mod engine;
mod snapshot;
mod watch;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use portreeve_gateway::{Monitor, Observer, Settings};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch as latest};

use self::engine::Engine;
pub use self::snapshot::Snapshot;
use self::watch::Watch;
use crate::authority::AuthorityError;
use crate::handover::Successor;
use crate::input::Input;
use crate::manifest::Unreadable;
use crate::sockets::Refusal;
use crate::state::StateError;

/// A directory of manifests that is being served.
///
/// The gateway runs on the tokio runtime in which this was started; everything else has a thread of its own, so that
/// reading and deciding never keep a connection waiting. Dropping it cuts everything at once.
#[derive(Debug)]
pub struct Standalone {
    monitor: Monitor,
    snapshots: latest::Receiver<Arc<Snapshot>>,
    stop: oneshot::Sender<Duration>,
    handovers: mpsc::Sender<Handover>,
    ended: oneshot::Receiver<usize>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There are no manifests.
    #[error(transparent)]
    Manifests(#[from] Unreadable),
    /// No state can be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// There is no CA.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Ports quarrel over sockets.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Sockets(Vec<Refusal>),
    /// The system gives no thread.
    #[error("failed to start a thread")]
    Thread(#[from] std::io::Error),
    /// The thread that decides has ended by itself; its panic message says why.
    #[error("Portreeve broke down, which is a fault of Portreeve")]
    Fault,
}

impl Standalone {
    /// Reads, decides, binds, and returns when the first table is served.
    ///
    /// Broken manifests and sockets that cannot be bound are no errors here: they are in the [`Snapshot`], and are
    /// tried again. Must be called within a multi-threaded tokio runtime.
    ///
    /// `listeners` are sockets of a process whose place this one takes.
    pub async fn start(
        input: Input,
        settings: Settings,
        observer: Arc<dyn Observer>,
        listeners: Vec<TcpListener>,
    ) -> Result<Self, StartError> {
        let (started, start) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (handovers, asked) = mpsc::channel(1);
        let (runtime, manifests) = (Handle::current(), input.manifests.clone());
        thread::Builder::new().name("portreeve-engine".to_owned()).spawn(move || {
            let left_open = runtime.block_on(async {
                let start = Engine::start(input, settings, observer, listeners);
                run(&manifests, start, started, Asked { stopped, handovers: asked }).await
            });
            // Nobody may be waiting.
            let _ = end.send(left_open);
        })?;
        let (snapshots, monitor) = start.await.map_err(|_| StartError::Fault)??;
        Ok(Self { monitor, snapshots, stop, handovers, ended })
    }

    /// How it stands.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// A look at the gateway itself.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// How it stands, whenever that changes.
    pub fn snapshots(&self) -> latest::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// Gives sockets and state to `successor`, and returns once it serves them. If it fails, everything is as before.
    pub(crate) async fn hand_over(&self, successor: Successor, more: Vec<TcpListener>) -> io::Result<()> {
        let (listeners, given) = oneshot::channel();
        let (take, taken) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.handovers.send(Handover { listeners, taken }).await.map_err(|_| gone())?;
        let mut listeners = given.await.map_err(|_| gone())??;
        listeners.extend(more);
        successor.give(listeners).await?;
        // The engine may have been stopped meanwhile.
        let _ = take.send(());
        Ok(())
    }

    /// Stops accepting, lets open connections end until the deadline, and returns how many had to be cut.
    pub async fn shutdown(self, deadline: Duration) -> usize {
        // The thread may have ended by itself.
        let _ = self.stop.send(deadline);
        self.ended.await.unwrap_or(0)
    }
}

/// Asks the engine to let go of sockets and state.
struct Handover {
    listeners: oneshot::Sender<io::Result<Vec<TcpListener>>>,
    /// Whether another process has them now; dropped: none has.
    taken: oneshot::Receiver<()>,
}

/// What the engine is asked from outside.
struct Asked {
    stopped: oneshot::Receiver<Duration>,
    handovers: mpsc::Receiver<Handover>,
}

/// What can be seen from outside once the first table is served.
type Started = (latest::Receiver<Arc<Snapshot>>, Monitor);

/// The whole life of the engine; returns how many connections had to be cut in the end.
async fn run(
    manifests: &Path,
    start: impl Future<Output = Result<(Engine, Snapshot), StartError>>,
    started: oneshot::Sender<Result<Started, StartError>>,
    mut asked: Asked,
) -> usize {
    // Watching starts before reading, so that nothing that is written meanwhile goes unseen.
    let mut watch = Watch::start(manifests);
    let (mut engine, first) = match start.await {
        Ok(started) => started,
        Err(error) => {
            // Whoever wanted to know has left.
            let _ = started.send(Err(error));
            return 0;
        }
    };
    let (snapshots, receiver) = latest::channel(Arc::new(first));
    if started.send(Ok((receiver, engine.monitor()))).is_err() {
        return 0;
    }
    loop {
        tokio::select! {
            deadline = &mut asked.stopped => return engine.shutdown(deadline.unwrap_or_default()).await,
            Some(handover) = asked.handovers.recv() => {
                if hand_over(&mut engine, handover).await {
                    // Another process decides now; what is open here goes on until this one is stopped.
                    let deadline = asked.stopped.await;
                    return engine.shutdown(deadline.unwrap_or_default()).await;
                }
            }
            () = watch.changed() => if !engine.reload() { continue },
            () = tokio::time::sleep(engine.rest(crate::now())) => {}
        }
        snapshots.send_replace(Arc::new(engine.settle(crate::now()).await));
    }
}

/// Lets go of sockets and state; returns whether another process has taken them.
async fn hand_over(engine: &mut Engine, handover: Handover) -> bool {
    let sent = handover.listeners.send(engine.hand_over());
    if sent.is_ok() && handover.taken.await.is_ok() {
        return true;
    }
    if let Err(error) = engine.take_back() {
        tracing::error!(%error, "the state directory is lost; serving goes on without it");
    }
    false
}

#[cfg(test)]
mod tests;
