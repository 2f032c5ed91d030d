//! The loop: takes in what watches say, plans when something has changed, writes what the plan says.
//!
//! One task owns everything that is known; watches, planning and writing only send it messages. A round is to gather, plan,
//! prepare and write; the next one starts when it is over.

mod pace;
mod reflectors;
mod rejections;
mod round;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use portreeve_plan::{Config, ObjectRef, Plan, ReleaseStep};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::admin::Readiness;
use crate::admin::metrics::Metrics;
use crate::dial::{Aims, Dialled, dial};
use crate::execute::retry::Retries;
use crate::execute::{Executor, Outcome, Recorder};
use crate::provider::{KeycloakAdmin, Provider, Report};
use crate::reflect::cache::Cache;
use crate::reflect::discovery::Choices;
use crate::releases::{Finished, HelmSettings, Releases};
use crate::tasks::{TaskEnded, Tasks};
use pace::Pace;
use reflectors::{Input, Reflectors};
use rejections::Rejections;

/// How long writes that are under way may go on after the signal to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How many messages are taken in at once before anything else is looked at.
const BATCH: usize = 256;

/// Why the engine cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A task beside it has ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
    /// Planning has failed, which is a fault of Portreeve.
    #[error("planning has failed, which is a fault of Portreeve: {0}")]
    Plan(String),
    /// Writing has failed as a whole, which is a fault of Portreeve.
    #[error("writing has failed, which is a fault of Portreeve: {0}")]
    Write(String),
}

/// What the engine is given.
pub(crate) struct Setup {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) keycloak: Option<KeycloakAdmin>,
    pub(crate) choices: Choices,
    pub(crate) helm: Option<HelmSettings>,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) leading: watch::Receiver<bool>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: watch::Sender<Readiness>,
    pub(crate) stop: CancellationToken,
}

/// Everything that the loop knows.
pub(crate) struct Engine {
    setup: Setup,
    cache: Cache,
    reflectors: Reflectors,
    tasks: Tasks,
    inputs: mpsc::Receiver<Input>,
    executor: Executor,
    retries: Retries,
    recorder: Recorder,
    aims: watch::Sender<Aims>,
    dialled: watch::Receiver<Option<Dialled>>,
    releases: Releases,
    finished: mpsc::Receiver<Finished>,
    /// Of the last plan, until what they need is written.
    steps: Vec<ReleaseStep>,
    rejections: Rejections,
    provider: Provider,
    reports: mpsc::Receiver<Report>,
    pace: Pace,
    /// Owners whose status waits for the next round.
    held: BTreeSet<ObjectRef>,
    /// Why nothing could be written last, as it was logged.
    unavailable: Option<String>,
}

/// What is under way.
type Work = Pin<Box<dyn Future<Output = Result<Done, EngineError>> + Send>>;

/// What was under way.
enum Done {
    Planned(Box<Plan>, Aims, Duration),
    Wrote(Vec<Outcome>),
}

impl Engine {
    pub(crate) fn new(setup: Setup) -> Self {
        let (sender, inputs) = mpsc::channel(BATCH);
        let mut tasks = Tasks::default();
        let reflectors = Reflectors::start(setup.client.clone(), setup.choices, sender, &mut tasks);
        let recorder = Recorder::start(setup.client.clone(), &mut tasks);
        let ((aims, aimed), (results, dialled)) = (watch::channel(Aims::default()), watch::channel(None));
        tasks.spawn("dials", dial(aimed, results));
        let (sender, reports) = mpsc::channel(BATCH);
        let provider = Provider::new(setup.client.clone(), setup.keycloak.clone(), sender);
        let executor = Executor::new(setup.client.clone(), setup.leading.clone(), setup.stop.clone());
        let (sender, finished) = mpsc::channel(BATCH);
        let releases = Releases::new(setup.client.clone(), setup.helm.clone(), sender);
        Self {
            setup,
            cache: Cache::default(),
            reflectors,
            tasks,
            inputs,
            executor,
            retries: Retries::default(),
            recorder,
            aims,
            dialled,
            releases,
            finished,
            steps: Vec::new(),
            rejections: Rejections::default(),
            provider,
            reports,
            pace: Pace::default(),
            held: BTreeSet::new(),
            unavailable: None,
        }
    }

    /// Runs until it is told to stop; writes that are under way then may end.
    pub(crate) async fn run(mut self) -> Result<(), EngineError> {
        let stop = self.setup.stop.clone();
        let mut work: Option<Work> = None;
        self.look_around();
        loop {
            if work.is_none() && self.pace.is_due(Instant::now()) && self.may_plan() {
                // Once for a round, since all owners are asked; what is watched anew is waited for.
                self.reflectors.adjust_secrets(&mut self.cache, &mut self.tasks);
                work = self.may_plan().then(|| self.plan());
            }
            let alarm = self.pace.next().filter(|_| work.is_none() && self.may_plan());
            tokio::select! {
                () = stop.cancelled() => break,
                ended = self.tasks.ended() => return Err(ended.into()),
                Some(input) = self.inputs.recv() => self.take_all(input),
                Some(finished) = self.finished.recv() => self.release_finished(finished),
                Some(report) = self.reports.recv() => self.provided(report),
                // Without leases nobody tells, and an error would be there at once, always.
                Ok(()) = self.setup.leading.changed() => self.lead(),
                Ok(()) = self.dialled.changed() => self.pace.changed(Instant::now()),
                done = finished(&mut work) => work = self.go_on(done?),
                () = until(alarm) => {}
            }
        }
        self.releases.ask_to_stop();
        if let Some(work) = work {
            self.drain(work).await;
        }
        self.releases.stopped().await;
        Ok(())
    }

    fn take_all(&mut self, first: Input) {
        let mut next = Some(first);
        let mut left = BATCH;
        while let Some(input) = next {
            if self.reflectors.take(input, &mut self.cache, &mut self.tasks) {
                self.pace.changed(Instant::now());
            }
            left -= 1;
            next = if left > 0 { self.inputs.try_recv().ok() } else { None };
        }
        self.look_around();
    }

    fn lead(&mut self) {
        let leads = *self.setup.leading.borrow();
        self.setup.metrics.leading(leads);
        if !leads {
            self.aim(Aims::default());
            self.releases.ask_to_stop();
            self.provider.stop();
        }
        self.pace.changed(Instant::now());
    }

    fn provided(&mut self, report: Report) {
        self.provider.take(report, Instant::now());
        self.pace.changed(Instant::now());
    }

    /// Has something else dialled from now on, if it is something else.
    fn aim(&self, aims: Aims) {
        self.aims.send_if_modified(|before| {
            let is_new = *before != aims;
            *before = aims;
            is_new
        });
    }

    /// Puts what others look at in line with what is known.
    fn look_around(&mut self) {
        let missing = self.reflectors.missing(&self.cache);
        self.setup.readiness.send_if_modified(|readiness| {
            let is_new = readiness.missing != missing;
            readiness.missing = missing;
            is_new
        });
    }

    /// Nothing is written before all is known that decides, nor by a replica that does not lead.
    fn may_plan(&self) -> bool {
        *self.setup.leading.borrow() && self.reflectors.knows_all(&self.cache)
    }

    fn go_on(&mut self, done: Done) -> Option<Work> {
        match done {
            Done::Planned(plan, aims, took) => {
                self.aim(aims);
                self.write(*plan, took)
            }
            Done::Wrote(outcomes) => {
                self.wrote(outcomes);
                None
            }
        }
    }

    async fn drain(&mut self, work: Work) {
        match timeout(DRAIN, work).await {
            Ok(Ok(Done::Wrote(outcomes))) => self.wrote(outcomes),
            Ok(_) => {}
            Err(_) => tracing::warn!("writes that were under way have not ended in {} s", DRAIN.as_secs()),
        }
    }
}

/// What was under way, once it is over; never when nothing is.
async fn finished(work: &mut Option<Work>) -> Result<Done, EngineError> {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => sleep_until(alarm.into()).await,
        None => std::future::pending().await,
    }
}
