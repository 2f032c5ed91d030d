//! Everything that is known of the cluster, with the controller's own writes on top.
//!
//! Owner: the engine. Nobody else writes it.

use std::collections::{BTreeMap, BTreeSet};

use super::kind::KindName;
use super::{Entry, Key};

/// Everything that is known, by kind. A kind that is not watched is not in it.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    stores: BTreeMap<KindName, Store>,
    /// Secrets that are watched one by one.
    named_secrets: BTreeMap<Key, Store>,
}

/// What is known of one kind.
///
/// *Read your own writes*: what the API server has answered to a write holds until the watch shows that revision or a
/// later one, so that a watch that lags behind never causes a second write.
#[derive(Debug)]
pub(crate) struct Store {
    /// The version in which the kind is watched.
    pub(crate) version: &'static str,
    /// Whether everything has been listed once.
    pub(crate) is_synced: bool,
    entries: BTreeMap<Key, Entry>,
    /// Objects whose state here is what a write of ours was answered, which the watch has not shown yet.
    unseen: BTreeSet<Key>,
    /// By name, the uids of objects that were deleted by the controller and of which the watch does not know yet.
    deleted: BTreeMap<Key, String>,
    /// By name, the uids of objects that the watch has shown to go since the last writes began: the answer to a write that
    /// came before must not bring them back.
    gone: BTreeMap<Key, String>,
    /// While everything is listed: what has been seen so far, or written meanwhile.
    listing: Option<BTreeSet<Key>>,
    /// What has changed since the last snapshot.
    touched: BTreeSet<Key>,
}

/// What a watch has to say.
#[derive(Debug)]
pub(crate) enum Change {
    /// Everything is listed anew.
    ListStart,
    /// The list is complete: what was not in it is gone.
    ListEnd,
    /// An object is there, as the list or the watch shows it.
    Applied(Key, Entry),
    /// It is gone.
    Deleted(Key, Entry),
}

impl Cache {
    pub(crate) fn start(&mut self, kind: KindName, version: &'static str) {
        self.stores.insert(kind, Store::new(version));
    }

    pub(crate) fn stop(&mut self, kind: KindName) {
        self.stores.remove(&kind);
    }

    pub(crate) fn store(&self, kind: KindName) -> Option<&Store> {
        self.stores.get(&kind)
    }

    pub(crate) fn store_mut(&mut self, kind: KindName) -> Option<&mut Store> {
        self.stores.get_mut(&kind)
    }

    pub(crate) fn stores(&self) -> impl Iterator<Item = (KindName, &Store)> {
        self.stores.iter().map(|(kind, store)| (*kind, store))
    }

    pub(crate) fn get(&self, kind: KindName, key: &Key) -> Option<&Entry> {
        self.store(kind)?.entries.get(key)
    }

    /// The store of a Secret that is watched by itself.
    pub(crate) fn named_secret_mut(&mut self, key: &Key) -> &mut Store {
        self.named_secrets.entry(key.clone()).or_insert_with(|| Store::new("v1"))
    }

    pub(crate) fn drop_named_secret(&mut self, key: &Key) {
        self.named_secrets.remove(key);
    }

    /// The Secrets that are watched one by one, as far as they are there.
    pub(crate) fn named_secrets(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.named_secrets.values().flat_map(|store| &store.entries)
    }

    /// A snapshot is taken: what changes from now on is not in it.
    pub(crate) fn forget_touched(&mut self) {
        self.stores.values_mut().for_each(|store| store.touched.clear());
    }

    /// Writes begin: no answer is to come any more to one that was sent before.
    pub(crate) fn forget_gone(&mut self) {
        self.stores.values_mut().for_each(|store| store.gone.clear());
    }

    /// Whether an object is not any more as the last snapshot has it.
    pub(crate) fn is_touched(&self, kind: KindName, key: &Key) -> bool {
        self.store(kind).is_none_or(|store| store.touched.contains(key))
    }
}

impl Store {
    fn new(version: &'static str) -> Self {
        let (entries, deleted, gone) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (unseen, touched) = (BTreeSet::new(), BTreeSet::new());
        Self { version, is_synced: false, entries, unseen, deleted, gone, listing: None, touched }
    }

    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (&Key, &Entry)> {
        self.entries.iter()
    }

    /// Takes in what the watch says; returns whether that changed anything that decisions may read.
    pub(crate) fn take(&mut self, change: Change) -> bool {
        match change {
            Change::ListStart => {
                self.listing = Some(BTreeSet::new());
                false
            }
            Change::ListEnd => self.end_list(),
            Change::Applied(key, entry) => self.applied(key, entry),
            Change::Deleted(key, entry) => self.gone(&key, &entry),
        }
    }

    /// Takes in what the API server has answered to a write.
    pub(crate) fn wrote(&mut self, key: Key, entry: Entry) -> bool {
        if self.gone.get(&key).is_some_and(|uid| uid == entry.uid()) {
            return false;
        }
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
        self.deleted.remove(&key);
        let changed = self.put(key.clone(), entry);
        if changed {
            self.unseen.insert(key);
        }
        changed
    }

    /// Takes in that the object with this uid has been deleted by the controller.
    pub(crate) fn deleted(&mut self, key: Key, uid: &str) -> bool {
        let was_there = self.entries.get(&key).is_some_and(|entry| entry.uid() == uid);
        if was_there {
            self.entries.remove(&key);
            self.touched.insert(key.clone());
            self.deleted.insert(key, uid.to_owned());
        }
        was_there
    }

    fn applied(&mut self, key: Key, entry: Entry) -> bool {
        if let Some(listing) = &mut self.listing {
            listing.insert(key.clone());
        }
        match self.deleted.get(&key) {
            Some(uid) if uid == entry.uid() => return false,
            Some(_) => drop(self.deleted.remove(&key)),
            None => {}
        }
        let is_older = self.entries.get(&key).is_some_and(|known| entry.revision < known.revision);
        if !is_older {
            self.unseen.remove(&key);
        } else if self.listing.is_some() && !self.unseen.contains(&key) {
            // What is listed anew is the truth also where revisions went back, as they do when etcd is restored.
            self.entries.remove(&key);
        }
        self.put(key, entry)
    }

    /// The later state wins, whichever way it came. One that differs in nothing that is kept is no change.
    fn put(&mut self, key: Key, entry: Entry) -> bool {
        match self.entries.get_mut(&key) {
            Some(known) if entry.revision < known.revision => false,
            Some(known) if known.object == entry.object => {
                known.revision = entry.revision;
                false
            }
            _ => {
                self.touched.insert(key.clone());
                self.entries.insert(key, entry);
                true
            }
        }
    }

    fn gone(&mut self, key: &Key, entry: &Entry) -> bool {
        if self.deleted.get(key).is_some_and(|uid| uid == entry.uid()) {
            self.deleted.remove(key);
        }
        self.gone.insert(key.clone(), entry.uid().to_owned());
        // One that was made anew meanwhile is another object.
        let is_it = |known: &Entry| known.uid() == entry.uid() || known.revision <= entry.revision;
        let goes = self.entries.get(key).is_some_and(is_it);
        if goes {
            self.entries.remove(key);
            self.touched.insert(key.clone());
        }
        goes
    }

    fn end_list(&mut self) -> bool {
        let listing = self.listing.take().unwrap_or_default();
        let before = self.entries.len();
        self.entries.retain(|key, _| {
            let stays = listing.contains(key);
            if !stays {
                self.touched.insert(key.clone());
            }
            stays
        });
        self.deleted.retain(|key, _| listing.contains(key));
        self.unseen.retain(|key| listing.contains(key));
        let was_synced = std::mem::replace(&mut self.is_synced, true);
        !was_synced || before != self.entries.len()
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
