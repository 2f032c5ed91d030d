//! When a write that failed is tried again.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, Instant};

use portreeve_plan::ObjectRef;

use super::{Failure, Request, Verb, Write};

/// After a refusal: the first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// After a conflict the world has changed, or is about to.
const CONFLICT_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// The writes that failed, and those that had no effect.
///
/// A write that differs from the one that failed is always tried at once: somebody may have changed what was wrong.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    of: HashMap<(ObjectRef, Verb), Retry>,
    /// The request that changed nothing, and the revision of the object that it was sent for.
    futile: HashMap<(ObjectRef, Verb), (u64, u64)>,
}

#[derive(Clone, Debug)]
struct Retry {
    /// Of the request that failed.
    hash: u64,
    failures: u32,
    failure: Failure,
    due: Instant,
}

impl Retries {
    /// Keeps those of `stages` that may be sent now, and forgets failures of what is not wanted any more.
    pub(crate) fn filter(&mut self, mut stages: Vec<Vec<Write>>, now: Instant) -> Vec<Vec<Write>> {
        let (mut waiting, mut futile) = (HashMap::new(), HashMap::new());
        let mut may_go = |write: &Write| {
            let (key, hash) = ((write.object.clone(), write.verb), hash(&write.request));
            let retry = self.of.remove(&key);
            let must_wait = retry.as_ref().is_some_and(|retry| retry.hash == hash && retry.due > now);
            let is_futile = self.futile.remove(&key).filter(|sent| *sent == (hash, write.seen));
            waiting.extend(retry.map(|retry| (key.clone(), retry)));
            futile.extend(is_futile.map(|sent| (key, sent)));
            !must_wait && is_futile.is_none()
        };
        for stage in &mut stages {
            stage.retain(&mut may_go);
        }
        stages.retain(|stage| !stage.is_empty());
        (self.of, self.futile) = (waiting, futile);
        stages
    }

    /// Takes in that a write has failed; returns whether a person should be told: it is refused, and was not before, or
    /// for another reason.
    pub(crate) fn failed(
        &mut self,
        write: &Write,
        failure: Failure,
        now: Instant,
        jitter: impl Fn(Duration) -> Duration,
    ) -> bool {
        let key = (write.object.clone(), write.verb);
        let before = self.of.get(&key);
        let is_news = failure.is_refusal() && before.is_none_or(|before| before.failure != failure);
        let failures = before.map_or(0, |before| before.failures);
        let (first, longest) = if failure == Failure::Conflict { CONFLICT_PAUSE } else { PAUSE };
        let pause = jitter(first.saturating_mul(2_u32.saturating_pow(failures)).min(longest));
        let retry =
            Retry { hash: hash(&write.request), failures: failures.saturating_add(1), due: now + pause, failure };
        self.of.insert(key, retry);
        is_news
    }

    /// Takes in that a write has succeeded and has left the object in this revision. One that changed nothing is not sent
    /// again for the same revision, or a fault in what is wanted would write for ever; returns whether it was such a one.
    pub(crate) fn succeeded(&mut self, write: &Write, revision: Option<u64>) -> bool {
        let key = (write.object.clone(), write.verb);
        self.of.remove(&key);
        // An object that goes with its last finalizer is answered as it was.
        let may_be = write.verb != Verb::Release;
        let is_futile = may_be && revision.is_some_and(|revision| revision != 0 && revision == write.seen);
        if is_futile {
            self.futile.insert(key, (hash(&write.request), write.seen));
        }
        is_futile
    }

    /// How many writes wait for their next try.
    pub(crate) fn waiting(&self) -> usize {
        self.of.len()
    }

    /// When the next of them is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.of.values().map(|retry| retry.due).min()
    }
}

/// The numbers of a status's resourceVersion are part of it: a status is never tried twice on the same state.
fn hash(request: &Request) -> u64 {
    let text = match request {
        Request::Apply(body) | Request::Status(body) | Request::Patch(body) => body.to_string(),
        Request::Copy(from) => from.to_string(),
        Request::Takeover(takeover) => takeover.entries.join(" "),
        Request::Delete { uid, resource_version } => format!("{uid} {resource_version}"),
    };
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod tests;
