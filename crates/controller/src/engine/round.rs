//! One round: gather, plan, prepare, write, and take in what became of it.

use std::time::{Duration, Instant};

use portreeve_api::names::labels::FORCE_REPROVISION;
use portreeve_plan::{Event, Plan, ReleaseAction, World, plan};

use super::{Done, Engine, EngineError, Work};
use crate::admin::metrics::KindCount;
use crate::dial::{Aims, Dialled};
use crate::execute::{Answer, Failure, Outcome, Write, hold_statuses, key, prepare, record};
use crate::gather::{gather, not_ready};
use crate::jitter::jitter;
use crate::reflect::cache::{Cache, Store};
use crate::reflect::kind::{Kind, KindName};
use crate::reflect::{Entry, Key, Object};
use crate::releases::{Finished, Told};

/// The reason of the event that tells an owner that something of it cannot be written.
const WRITE_REFUSED: &str = "WriteRefused";

impl Engine {
    /// Decides, on a thread where that holds nobody up.
    pub(super) fn plan(&mut self) -> Work {
        self.pace.started();
        self.cache.forget_touched();
        let now = (self.setup.clock)();
        let mut world = gather(&self.cache, &self.setup.config, self.reflectors.served(&self.cache), now);
        Dialled::tell(self.dialled.borrow().as_ref(), &mut world);
        world.refused = self.retries.refused().map(|(object, why)| (object.clone(), why.to_owned())).collect();
        world.failed_releases = self.releases.failed();
        world.rejected_entries = self.rejections.present(&self.cache, Instant::now());
        self.provider.put_into(&mut world);
        self.count(&world);
        Box::pin(async move {
            let deciding = tokio::task::spawn_blocking(move || {
                let start = Instant::now();
                let plan = plan(&world);
                let aims = Aims::of(&world, &plan);
                (Box::new(plan), aims, start.elapsed())
            });
            let (plan, aims, took) = deciding.await.map_err(|error| EngineError::Plan(error.to_string()))?;
            Ok(Done::Planned(plan, aims, took))
        })
    }

    /// Beside the writes, which do not wait for it. An owner that lacks its finalizer yet has nothing made for it.
    fn ask_provider(&mut self, plan: &mut Plan, now: Instant) {
        let cache = &self.cache;
        self.provider.retain(|(namespace, name)| {
            let key = Key { namespace: namespace.clone(), name: name.clone() };
            cache.get(KindName::NebariApp, &key).is_some()
        });
        self.forget_heeded();
        let mut provision = std::mem::take(&mut plan.provision);
        provision.retain(|one| !plan.guard.contains(&one.app));
        self.provider.ask(provision, std::mem::take(&mut plan.deprovision), now);
    }

    /// An annotation that is gone may come again.
    fn forget_heeded(&mut self) {
        let cache = &self.cache;
        self.provider.forget_heeded(|(namespace, name)| {
            let key = Key { namespace: namespace.clone(), name: name.clone() };
            let annotations = cache.get(KindName::NebariApp, &key).and_then(|app| app.metadata().annotations.as_ref());
            annotations.is_some_and(|annotations| annotations.contains_key(FORCE_REPROVISION))
        });
    }

    fn count(&self, world: &World) {
        let counts = self.cache.stores().map(|(kind, store)| KindCount {
            kind: Kind::of(kind).title(),
            objects: store.entries().len(),
            unreadable: store.entries().filter(|(_, entry)| matches!(entry.object, Object::Unreadable(_))).count(),
        });
        self.setup.metrics.known(&counts.collect::<Vec<_>>());
        self.setup.metrics.not_ready(not_ready(world));
    }

    /// Sends what the plan says and nothing has failed with just now.
    pub(super) fn write(&mut self, mut plan: Plan, took: Duration) -> Option<Work> {
        let now = Instant::now();
        // Leadership may have gone while the plan was made.
        if *self.setup.leading.borrow() {
            self.ask_provider(&mut plan, now);
        }
        self.setup.metrics.planned(took);
        self.pace.planned(took, now);
        let wake_at = plan.wake_at.map(|at| at.duration_since((self.setup.clock)()));
        self.pace.wake_at(wake_at.map(|left| now + Duration::try_from(left).unwrap_or_default()));
        self.steps = std::mem::take(&mut plan.releases);
        self.steps.retain(|step| !plan.guard.contains(&step.owner));
        let (stages, news) = prepare(plan, &self.cache);
        let mut stages = self.retries.filter(stages, now);
        self.held = hold_statuses(&mut stages, &self.held);
        if !self.held.is_empty() {
            self.pace.changed(now);
        }
        self.setup.metrics.waiting(self.retries.waiting());
        self.pace.wake_at(self.retries.next_due());
        self.pace.wake_at(self.rejections.next_due());
        self.pace.wake_at(self.provider.next_due(now));
        self.tell(news);
        if stages.is_empty() {
            self.begin_releases();
            return None;
        }
        self.cache.forget_gone();
        // On a task of its own, so that what watches say is taken in meanwhile.
        let writing = tokio::spawn(self.executor.clone().run(stages));
        Some(Box::pin(async move {
            let outcomes = writing.await.map_err(|error| EngineError::Write(error.to_string()))?;
            Ok(Done::Wrote(outcomes))
        }))
    }

    /// Takes in what became of the writes.
    pub(super) fn wrote(&mut self, outcomes: Vec<Outcome>) {
        let (now, mut unavailable) = (Instant::now(), None);
        for Outcome { write, result } in outcomes {
            let said = result.as_ref().map_or_else(Failure::as_str, |_| "ok");
            self.setup.metrics.wrote(&write.object.kind, write.verb.as_str(), said);
            match result {
                Ok(answer) => self.succeeded(write, answer, now),
                Err(Failure::Unavailable(message)) => unavailable = Some(message),
                Err(Failure::Stopped) => self.pace.changed(now),
                Err(failure) => self.failed(&write, failure, now),
            }
        }
        self.note_availability(unavailable, now);
        self.begin_releases();
        self.setup.metrics.waiting(self.retries.waiting());
        self.pace.wake_at(self.retries.next_due());
    }

    fn succeeded(&mut self, write: Write, answer: Answer, now: Instant) {
        let Some(kind) = Kind::find(&write.object.api_version, &write.object.kind) else { return };
        let answer = match answer {
            Answer::Object(object) => Ok(*object),
            Answer::InPart(object, rejected) => {
                self.rejections.note(&write.object, rejected, &self.cache, now);
                self.pace.changed(now);
                Ok(*object)
            }
            Answer::Deleted(uid) => Err(uid),
        };
        if self.retries.succeeded(&write, answer.as_ref().ok().map(|(_, entry)| entry.revision)) {
            tracing::warn!(object = %write.object, verb = write.verb.as_str(), "a write changed nothing and is not repeated");
        }
        let changed = self.cache.store_mut(kind.name).is_some_and(|store| match answer {
            Ok((key, entry)) => store.wrote(key, entry),
            Err(uid) => store.deleted(key(&write.object), &uid),
        });
        if changed {
            self.pace.changed(now);
        }
        // At once, so that it may be set again before the next round.
        if kind.name == KindName::NebariApp {
            self.forget_heeded();
        }
        self.tell(write.events);
    }

    fn failed(&mut self, write: &Write, failure: Failure, now: Instant) {
        let text = failure.to_string();
        if self.retries.failed(write, failure, now, jitter) {
            let (object, verb) = (&write.object, write.verb.as_str());
            tracing::warn!(%object, verb, "the API server refuses a write: {text}");
            let message = format!("cannot {verb} {object}: {text}");
            let about = write.owner.clone().unwrap_or_else(|| object.clone());
            self.tell(vec![Event { about, warning: true, reason: WRITE_REFUSED.to_owned(), message }]);
        }
    }

    /// Begins the Helm client's work that the last plan says and that may begin: what it needs is written by now.
    fn begin_releases(&mut self) {
        let now = Instant::now();
        let mut steps = std::mem::take(&mut self.steps);
        let is_there = |namespace: &str| {
            let key = Key { namespace: String::new(), name: namespace.to_owned() };
            let found = self.cache.get(KindName::Namespace, &key);
            found.is_some_and(|found| found.metadata().deletion_timestamp.is_none())
        };
        steps.retain(|step| step.action == ReleaseAction::Uninstall || is_there(&step.namespace));
        self.releases.begin(steps, |release| unfinished(release, &self.cache), now);
        self.pace.wake_at(self.releases.next_due(now));
    }

    /// Takes in what came of the Helm client's work on a release.
    pub(super) fn release_finished(&mut self, finished: Finished) {
        let now = Instant::now();
        if let Some(Told { owner, failure }) = self.releases.finished(finished, now, jitter) {
            if let Some(why) = failure {
                tracing::warn!(%owner, "Helm has failed: {why}");
            } else {
                tracing::info!(%owner, "Helm has done its work");
            }
        }
        self.pace.changed(now);
    }

    fn note_availability(&mut self, unavailable: Option<String>, now: Instant) {
        match (&unavailable, &self.unavailable) {
            (Some(message), None) => tracing::warn!("the API server does not take writes: {message}"),
            (None, Some(_)) => tracing::info!("the API server takes writes again"),
            _ => {}
        }
        match unavailable {
            Some(_) => self.pace.unavailable(now, jitter),
            None => self.pace.available(),
        }
        self.unavailable = unavailable;
    }

    fn tell(&mut self, events: Vec<Event>) {
        for event in events {
            tracing::info!(about = %event.about, reason = event.reason, "{}", event.message);
            let event = record(&event, &self.cache, (self.setup.clock)());
            self.recorder.send(event);
        }
    }
}

/// The records of a release that say that a run of Helm has it in its hands.
fn unfinished(release: &Key, cache: &Cache) -> Vec<String> {
    let records = cache.store(KindName::HelmRecord).into_iter().flat_map(Store::entries);
    let is_unfinished = |entry: &Entry| {
        let label = |key: &str| entry.metadata().labels.as_ref()?.get(key).map(String::as_str);
        label("name") == Some(&release.name) && label("status").is_some_and(|status| status.starts_with("pending-"))
    };
    let found = records.filter(|(key, entry)| key.namespace == release.namespace && is_unfinished(entry));
    found.map(|(key, _)| key.name.clone()).collect()
}
