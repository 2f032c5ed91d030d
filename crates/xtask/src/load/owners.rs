//! What owners say of themselves, as a watch shows it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::StreamExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Client, ResourceExt};
use portreeve_controller::kind::{Kind, KindName};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Follows all owners of a kind until it is dropped.
pub(crate) struct Owners {
    standing: watch::Receiver<Standing>,
    task: JoinHandle<()>,
}

/// How all owners stand.
#[derive(Default)]
pub(crate) struct Standing {
    /// By namespace and name: the reason of `Ready`, and whether that is true.
    owners: HashMap<(String, String), (bool, String)>,
    ready: usize,
}

impl Owners {
    pub(crate) fn follow(client: Client, kind: KindName) -> Self {
        let kind = Kind::of(kind);
        let api = Api::all_with(client, &kind.resource(kind.versions.first().copied().unwrap_or_default()));
        let (sender, standing) = watch::channel(Standing::default());
        Self { standing, task: tokio::spawn(follow(api, sender)) }
    }

    /// Waits until `holds` of how they stand.
    ///
    /// # Errors
    ///
    /// When it does not within `patience`; then with the reasons that stand in the way.
    pub(crate) async fn wait(
        &self,
        what: &str,
        patience: Duration,
        holds: impl Fn(&Standing) -> bool,
    ) -> anyhow::Result<()> {
        let mut standing = self.standing.clone();
        if let Ok(waited) = timeout(patience, standing.wait_for(holds)).await {
            return waited.map(drop).context("the watch has ended");
        }
        let (seconds, now) = (patience.as_secs(), self.standing.borrow());
        bail!("not within {seconds} s: {what}; so many owners say of Ready: {:?}", now.reasons())
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Standing {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.owners.len()
    }

    /// How many are Ready.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// The reason for which an owner is not Ready; none while it is, or says nothing.
    pub(crate) fn refusal(&self, namespace: &str, name: &str) -> Option<&str> {
        let (ready, reason) = self.owners.get(&(namespace.to_owned(), name.to_owned()))?;
        (!ready).then_some(reason.as_str())
    }

    /// How many owners have each reason.
    fn reasons(&self) -> HashMap<&str, usize> {
        let mut counts = HashMap::new();
        for (_, reason) in self.owners.values() {
            *counts.entry(reason.as_str()).or_insert(0) += 1;
        }
        counts
    }

    fn put(&mut self, object: &DynamicObject) {
        let said = readiness(object);
        self.ready += usize::from(said.0);
        let before = self.owners.insert(key(object), said);
        self.ready -= usize::from(before.is_some_and(|(ready, _)| ready));
    }

    fn remove(&mut self, object: &DynamicObject) {
        let before = self.owners.remove(&key(object));
        self.ready -= usize::from(before.is_some_and(|(ready, _)| ready));
    }
}

async fn follow(api: Api<DynamicObject>, sender: watch::Sender<Standing>) {
    let mut events = std::pin::pin!(watcher(api, Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                sender.send_modify(|standing| standing.put(&object));
            }
            Ok(Event::Delete(object)) => sender.send_modify(|standing| standing.remove(&object)),
            // Everything is listed anew, as after an API server was away.
            Ok(Event::Init) => drop(sender.send_replace(Standing::default())),
            Ok(Event::InitDone) | Err(_) => {}
        }
    }
}

fn readiness(object: &DynamicObject) -> (bool, String) {
    let conditions = object.data["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let reason = ready.and_then(|ready| ready["reason"].as_str()).unwrap_or_default();
    (ready.is_some_and(|ready| ready["status"] == "True"), reason.to_owned())
}

fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}
