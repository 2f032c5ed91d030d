//! The standalone shell: a directory of manifests, served for as long as the value lives.

mod engine;
mod snapshot;
mod watch;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use portreeve_gateway::Observer;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch as latest};

use self::engine::Engine;
pub use self::snapshot::Snapshot;
use self::watch::Watch;
use crate::authority::AuthorityError;
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
    snapshots: latest::Receiver<Arc<Snapshot>>,
    stop: oneshot::Sender<Duration>,
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
    pub async fn start(input: Input, observer: Arc<dyn Observer>) -> Result<Self, StartError> {
        let (started, start) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let runtime = Handle::current();
        thread::Builder::new().name("portreeve-engine".to_owned()).spawn(move || {
            let left_open = runtime.block_on(run(input, observer, started, stopped));
            // Nobody may be waiting.
            let _ = end.send(left_open);
        })?;
        let snapshots = start.await.map_err(|_| StartError::Fault)??;
        Ok(Self { snapshots, stop, ended })
    }

    /// How it stands.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }

    /// How it stands, whenever that changes.
    pub fn snapshots(&self) -> latest::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    /// Stops accepting, lets open connections end until the deadline, and returns how many had to be cut.
    pub async fn shutdown(self, deadline: Duration) -> usize {
        // The thread may have ended by itself.
        let _ = self.stop.send(deadline);
        self.ended.await.unwrap_or(0)
    }
}

/// The whole life of the engine; returns how many connections had to be cut in the end.
async fn run(
    input: Input,
    observer: Arc<dyn Observer>,
    started: oneshot::Sender<Result<latest::Receiver<Arc<Snapshot>>, StartError>>,
    mut stopped: oneshot::Receiver<Duration>,
) -> usize {
    // Watching starts before reading, so that nothing that is written meanwhile goes unseen.
    let mut watch = Watch::start(&input.manifests);
    let (mut engine, first) = match Engine::start(input, observer).await {
        Ok(started) => started,
        Err(error) => {
            // Whoever wanted to know has left.
            let _ = started.send(Err(error));
            return 0;
        }
    };
    let (snapshots, receiver) = latest::channel(Arc::new(first));
    if started.send(Ok(receiver)).is_err() {
        return 0;
    }
    loop {
        tokio::select! {
            deadline = &mut stopped => return engine.shutdown(deadline.unwrap_or_default()).await,
            () = watch.changed() => if !engine.reload() { continue },
            () = tokio::time::sleep(engine.rest(crate::now())) => {}
        }
        snapshots.send_replace(Arc::new(engine.settle(crate::now()).await));
    }
}

#[cfg(test)]
mod tests;
