//! Follows the objects of one kind.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, InitialListStrategy, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::jitter::jitter;

/// How many objects a list has on one page, where lists are not streamed.
const PAGE: u32 = 100;
/// How long a watch that failed is left alone at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why a watch does not work at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The API server does not let us: the permission that is missing.
    Forbidden(String),
    /// The kind is not served, or not yet.
    NotServed,
    /// The API server cannot be reached, or has failed.
    Failed(String),
}

/// Follows the objects of `api` that the selectors of `selection` select, until nobody listens any more; `to` hears everything, as what `say` makes of it.
///
/// Lists are streamed where the API server can, so that only one object is in memory twice.
pub(crate) async fn follow<K, T>(
    api: Api<K>,
    selection: watcher::Config,
    to: mpsc::Sender<T>,
    say: impl Fn(Result<Event<K>, Trouble>) -> T,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut strategy = InitialListStrategy::StreamingList;
    loop {
        let config =
            watcher::Config { page_size: Some(PAGE), initial_list_strategy: strategy.clone(), ..selection.clone() };
        let mut events = pin!(watcher(api.clone(), config).backoff(Pauses::default()));
        let mut is_listing = false;
        loop {
            let Some(event) = events.next().await else { break };
            let event = match event {
                Ok(event) => {
                    let starts = matches!(event, Event::InitApply(_) | Event::InitDone) && !is_listing;
                    is_listing = matches!(event, Event::Init | Event::InitApply(_));
                    // A list that is streamed does not say that it starts.
                    if starts && to.send(say(Ok(Event::Init))).await.is_err() {
                        return;
                    }
                    Ok(event)
                }
                Err(error) if strategy == InitialListStrategy::StreamingList && cannot_stream(&error) => {
                    strategy = InitialListStrategy::ListWatch;
                    break;
                }
                // A watch that is too old is an everyday matter: everything is listed anew.
                Err(watcher::Error::WatchError(status)) if status.code == 410 => {
                    is_listing = false;
                    continue;
                }
                Err(error) => {
                    is_listing = false;
                    Err(trouble(&error))
                }
            };
            if to.send(say(event)).await.is_err() {
                return;
            }
        }
    }
}

/// Whether an API server refuses to stream a list.
fn cannot_stream(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    // Servers that know of it say 422 where it is off; those that do not say 400.
    matches!(error, kube::Error::Api(status)
        if matches!(status.code, 400 | 422) && ["sendInitialEvents", "resourceVersionMatch"].iter().any(|field| status.message.contains(field)))
}

fn trouble(error: &watcher::Error) -> Trouble {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    match status {
        Some(status) if matches!(status.code, 401 | 403) => Trouble::Forbidden(status.message.clone()),
        Some(status) if status.code == 404 => Trouble::NotServed,
        Some(status) => Trouble::Failed(status.message.clone()),
        None => Trouble::Failed(crate::text::chain(error)),
    }
}

/// The pauses after failures: each twice the one before it.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        Some(jitter(pause))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.failures = 0;
    }
}
