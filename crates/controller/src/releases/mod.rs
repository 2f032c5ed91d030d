//! The Helm client's work: what a plan says of releases, done beside everything else.
//!
//! One run at a time for each release, and few at once in all. A run outlives the round that began it; what came of it is
//! told to the engine, which plans again. Whoever stops, or does not lead any more, ends the runs.

mod helm;
mod process;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::Client;
use portreeve_plan::{ObjectRef, ReleaseAction, ReleaseStep};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use helm::{ApiServerAddress, HelmSettings};

use crate::reflect::Key;
use helm::Helm;

/// How many runs there are at once. Each is a process that renders a chart, so more only take memory.
const AT_ONCE: usize = 4;
/// After a failure: the first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(5));
/// After a success, until the release's own record must have come by its watch.
const NOTICE: Duration = Duration::from_secs(10);

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Finished {
    release: Key,
    step: u64,
    /// What the Helm client says when it has failed.
    result: Result<(), String>,
}

/// What the engine should tell of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) owner: ObjectRef,
    pub(crate) failure: Option<String>,
}

/// The runs, and what came of the last one of each release.
pub(crate) struct Releases {
    helm: Option<Helm>,
    sender: mpsc::Sender<Finished>,
    running: BTreeMap<Key, Run>,
    last: HashMap<Key, Last>,
}

#[derive(Debug)]
struct Run {
    step: u64,
    owner: ObjectRef,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct Last {
    step: u64,
    failures: u32,
    failure: Option<String>,
    due: Instant,
}

impl Releases {
    /// Without settings nothing is ever run, and each step says so.
    pub(crate) fn new(client: Client, settings: Option<HelmSettings>, sender: mpsc::Sender<Finished>) -> Self {
        let helm = settings.map(|settings| Helm::new(client, settings));
        Self { helm, sender, running: BTreeMap::new(), last: HashMap::new() }
    }

    /// Begins what is due of a plan's steps, and forgets what is not wanted any more. `pending` are the records of releases
    /// that an earlier client left half done, by release.
    pub(crate) fn begin(&mut self, steps: Vec<ReleaseStep>, pending: impl Fn(&Key) -> Vec<String>, now: Instant) {
        let wanted: HashMap<Key, u64> = steps.iter().map(|step| (release(step), hash(step))).collect();
        self.last.retain(|release, last| wanted.get(release) == Some(&last.step));
        // One that runs for something else than is wanted now only holds that up.
        let outdated = |(release, run): &(&Key, &Run)| wanted.get(*release).is_some_and(|step| *step != run.step);
        self.running.iter().filter(outdated).for_each(|(_, run)| run.stop.cancel());
        for step in steps {
            let release = release(&step);
            let waits = self.last.get(&release).is_some_and(|last| last.due > now);
            if !waits && !self.running.contains_key(&release) && self.running.len() < AT_ONCE {
                let unfinished = pending(&release);
                self.start(release, step, unfinished);
            }
        }
    }

    fn start(&mut self, release: Key, step: ReleaseStep, unfinished: Vec<String>) {
        let (owner, end, sender) = (step.owner.clone(), CancellationToken::new(), self.sender.clone());
        let (helm, told_to_stop, key) = (self.helm.clone(), end.clone(), release.clone());
        let number = hash(&step);
        let ended = tokio::spawn(async move {
            let result = match helm {
                Some(helm) => helm.run(&step, &unfinished, told_to_stop).await,
                None => Err("the operator was not told of a Helm client".to_owned()),
            };
            // Nobody hears it only when the engine has ended.
            let _ = sender.send(Finished { release: key, step: number, result }).await;
        });
        self.running.insert(release, Run { step: number, owner, stop: end, ended });
    }

    /// Takes in what came of a run; returns what to tell of it, if anything is new.
    pub(crate) fn finished(
        &mut self,
        Finished { release, step, result }: Finished,
        now: Instant,
        jitter: impl Fn(Duration) -> Duration,
    ) -> Option<Told> {
        let run = self.running.remove(&release)?;
        let before = self.last.remove(&release).filter(|last| last.step == step);
        let failures = before.as_ref().map_or(0, |last| last.failures);
        let known = before.and_then(|last| last.failure);
        let (failures, pause, failure) = match result {
            Ok(()) => (0, NOTICE, None),
            Err(why) => {
                let pause = PAUSE.0.saturating_mul(2_u32.saturating_pow(failures)).min(PAUSE.1);
                (failures.saturating_add(1), jitter(pause), Some(why))
            }
        };
        let is_new = failure.is_none() || failure != known;
        self.last.insert(release, Last { step, failures, failure: failure.clone(), due: now + pause });
        is_new.then_some(Told { owner: run.owner, failure })
    }

    /// What failed last, as decisions are told.
    pub(crate) fn failed(&self) -> BTreeMap<(String, String), String> {
        let failed = self.last.iter().filter_map(|(release, last)| Some((release, last.failure.clone()?)));
        failed.map(|(release, why)| ((release.namespace.clone(), release.name.clone()), why)).collect()
    }

    /// When the next step is due that waits.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        self.last.values().map(|last| last.due).filter(|due| *due > now).min()
    }

    /// Asks all runs to end.
    pub(crate) fn ask_to_stop(&self) {
        for run in self.running.values() {
            run.stop.cancel();
        }
    }

    /// Waits until all runs have ended.
    pub(crate) async fn stopped(&mut self) {
        for (_, run) in std::mem::take(&mut self.running) {
            let _ = run.ended.await;
        }
    }
}

fn release(step: &ReleaseStep) -> Key {
    Key { namespace: step.namespace.clone(), name: step.name.clone() }
}

/// Tells a step from another one for the same release.
fn hash(step: &ReleaseStep) -> u64 {
    let text = match &step.action {
        ReleaseAction::Install { digest, .. } => digest.as_str(),
        ReleaseAction::Uninstall => "",
    };
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

/// Where the Helm client keeps what it may lose, below the system's folder for such; no other process has the same.
pub(crate) fn default_work_folder() -> PathBuf {
    std::env::temp_dir().join(format!("portreeve-helm-{}", std::process::id()))
}

#[cfg(test)]
mod tests;
