use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portreeve_table::Table;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::Admission;
use crate::http::Pool;
use crate::load::Loads;
use crate::login::SignIn;
use crate::observe::Observer;
use crate::settings::Settings;
use crate::tls::TlsConfigs;
use crate::tunnels::Tunnels;

/// What every connection may use.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) observer: Arc<dyn Observer>,
    /// [`Gateway`](crate::Gateway) is the only writer.
    pub(crate) installed: watch::Receiver<Arc<Installed>>,
    pub(crate) turns: Turns,
    pub(crate) pool: Pool,
    pub(crate) loads: Loads,
    pub(crate) admission: Arc<Admission>,
    pub(crate) tunnels: Tunnels,
    pub(crate) sign_in: SignIn,
    pub(crate) tasks: Tasks,
}

impl Shared {
    /// What is served at this moment. Whoever keeps it keeps a whole table alive, so nothing long-lived may.
    pub(crate) fn installed(&self) -> Arc<Installed> {
        self.installed.borrow().clone()
    }
}

/// A table, and what is made from it once, when it is installed.
#[derive(Default)]
pub(crate) struct Installed {
    pub(crate) table: Arc<Table>,
    pub(crate) tls: TlsConfigs,
}

/// A sequence of points that is spread evenly over the range of `u64`, for [`Backends::choose`].
///
/// Steps of the golden ratio stay even whichever of them one looks at, so neither a pattern in the traffic nor a new
/// table, which would reset counters of its own, can pin requests to one backend.
///
/// [`Backends::choose`]: portreeve_table::Backends::choose
#[derive(Default)]
pub(crate) struct Turns(AtomicU64);

impl Turns {
    /// 2^64 divided by the golden ratio.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(Self::STEP, Ordering::Relaxed)
    }
}

/// Every task of the gateway is started here, so that none outlives it.
#[derive(Clone, Default)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    /// Cancelled when the gateway starts to shut down: nothing new is begun.
    pub(crate) draining: CancellationToken,
    /// Cancelled when what is open must end at once.
    pub(crate) cut: CancellationToken,
}

impl Tasks {
    /// Starts a task that ends by itself or is dropped when what is open must end.
    pub(crate) fn spawn(&self, task: impl Future + Send + 'static) -> JoinHandle<()> {
        let task = self.cut.clone().run_until_cancelled_owned(task);
        self.tracker.spawn(async { drop(task.await) })
    }

    /// Ends when the gateway has been shutting down for this long.
    pub(crate) async fn drained_for(&self, time: Duration) {
        self.draining.cancelled().await;
        sleep(time).await;
    }

    /// Waits until every task has ended; no more may be started.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl<F: Future + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever sees only every second, third, ... point still sees an even spread.
    #[test]
    fn turns_are_even_in_every_rhythm() {
        for rhythm in 1..=6 {
            let turns = Turns::default();
            let points: Vec<u64> = (0..600 * rhythm).map(|_| turns.next()).step_by(rhythm).collect();
            for parts in [2, 3, 5] {
                let in_part = |part| points.iter().filter(|point| **point / (u64::MAX / parts + 1) == part).count();
                let counts: Vec<usize> = (0..parts).map(in_part).collect();
                let fair = 600 / counts.len();
                assert!(counts.iter().all(|count| count.abs_diff(fair) <= 5), "rhythm {rhythm}: {counts:?}");
            }
        }
    }
}
