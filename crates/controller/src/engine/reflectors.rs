//! Which watches run, and what they say.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::api::Api;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use portreeve_plan::Served;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::reflect::cache::{Cache, Change, Store};
use crate::reflect::discovery::{Choices, CustomResourceDefinition, Definitions, served};
use crate::reflect::kind::{Kind, KindName};
use crate::reflect::watch::{Trouble, follow};
use crate::reflect::{Key, Object, read, secrets};
use crate::tasks::Tasks;

/// What a watch says. The number is that of the watch, so that the last words of one that was stopped are not taken for
/// those of its successor.
pub(super) enum Input {
    Definition(Box<Result<Event<CustomResourceDefinition>, Trouble>>),
    Kind(KindName, u64, Result<Change, Trouble>),
    Secret(Key, u64, Result<Change, Trouble>),
}

/// The watches that run.
pub(super) struct Reflectors {
    client: Client,
    choices: Choices,
    sender: mpsc::Sender<Input>,
    definitions: Definitions,
    /// While definitions are listed: those that were seen.
    listing: Option<BTreeSet<String>>,
    knows_definitions: bool,
    running: BTreeMap<KindName, Running>,
    secrets: BTreeMap<Key, Running>,
    /// What does not work at present, by the name of the watch.
    troubles: BTreeMap<String, Trouble>,
    watches: u64,
}

struct Running {
    number: u64,
    handle: AbortHandle,
}

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Reflectors {
    /// Starts to watch what is served; the rest follows from that.
    pub(super) fn start(client: Client, choices: Choices, sender: mpsc::Sender<Input>, tasks: &mut Tasks) -> Self {
        let (api, to) = (Api::all(client.clone()), sender.clone());
        tasks.spawn(
            DEFINITIONS,
            follow(api, watcher::Config::default(), to, |event| Input::Definition(Box::new(event))),
        );
        Self {
            client,
            choices,
            sender,
            definitions: Definitions::default(),
            listing: None,
            knows_definitions: false,
            running: BTreeMap::new(),
            secrets: BTreeMap::new(),
            troubles: BTreeMap::new(),
            watches: 0,
        }
    }

    /// Takes in what a watch says; returns whether that may change a decision.
    pub(super) fn take(&mut self, input: Input, cache: &mut Cache, tasks: &mut Tasks) -> bool {
        match input {
            Input::Definition(event) => match *event {
                Ok(event) => {
                    self.works(DEFINITIONS);
                    let changed = self.define(event);
                    if changed {
                        self.adjust(cache, tasks);
                    }
                    changed
                }
                Err(trouble) => self.fails(DEFINITIONS.to_owned(), trouble),
            },
            Input::Kind(kind, number, said) => {
                if self.running.get(&kind).is_none_or(|running| running.number != number) {
                    return false;
                }
                let changed = self.hear(Kind::of(kind).label(), said, cache.store_mut(kind));
                if changed && matches!(kind, KindName::NebariApp | KindName::Tenant | KindName::Secret) {
                    self.adjust_secrets(cache, tasks);
                }
                changed
            }
            Input::Secret(key, number, said) => {
                if self.secrets.get(&key).is_none_or(|running| running.number != number) {
                    return false;
                }
                let name = format!("secret {}/{}", key.namespace, key.name);
                self.hear(name, said, Some(cache.named_secret_mut(&key)))
            }
        }
    }

    fn hear(&mut self, name: String, said: Result<Change, Trouble>, store: Option<&mut Store>) -> bool {
        match (said, store) {
            (Ok(change), Some(store)) => {
                self.works(&name);
                complain_of(&change);
                store.take(change)
            }
            (Ok(_), None) => false,
            (Err(trouble), _) => self.fails(name, trouble),
        }
    }

    /// Whether everything is known that decisions need. Without the kind of apps there is nothing to decide.
    pub(super) fn knows_all(&self, cache: &Cache) -> bool {
        let has_owners = [KindName::NebariApp, KindName::Tenant].iter().any(|kind| cache.store(*kind).is_some());
        self.knows_definitions && has_owners && cache.stores().all(|(_, store)| store.is_synced)
    }

    /// What decisions are told of what is served.
    pub(super) fn served(&self, cache: &Cache) -> Served {
        served(cache, &self.definitions)
    }

    /// What is not known yet, and why.
    pub(super) fn missing(&self, cache: &Cache) -> Vec<String> {
        let unknown = cache.stores().filter(|(_, store)| !store.is_synced);
        let unknown = unknown.map(|(kind, _)| Kind::of(kind).label());
        let definitions = (!self.knows_definitions).then(|| DEFINITIONS.to_owned());
        let explain = |name: String| match self.troubles.get(&name) {
            Some(trouble) => format!("{name}: {}", describe(trouble)),
            None => format!("{name}: the first list has not arrived yet"),
        };
        definitions.into_iter().chain(unknown).map(explain).collect()
    }

    /// Takes in a definition; returns whether other watches may be needed now.
    fn define(&mut self, event: Event<CustomResourceDefinition>) -> bool {
        match event {
            Event::Init => {
                self.listing = Some(BTreeSet::new());
                false
            }
            Event::InitApply(definition) | Event::Apply(definition) => {
                let name = definition.metadata.name.clone();
                if let (Some(listing), Some(name)) = (&mut self.listing, name) {
                    listing.insert(name);
                }
                self.definitions.put(&definition) && self.knows_definitions
            }
            Event::Delete(definition) => self.definitions.remove(&definition),
            Event::InitDone => {
                let listing = self.listing.take().unwrap_or_default();
                self.definitions.retain(|name| listing.contains(name));
                self.knows_definitions = true;
                true
            }
        }
    }

    /// Starts and stops watches so that exactly what is served is watched.
    fn adjust(&mut self, cache: &mut Cache, tasks: &mut Tasks) {
        let wanted = self.definitions.wanted(self.choices);
        let is_wanted = |kind: &KindName, cache: &Cache| {
            cache.store(*kind).is_some_and(|store| wanted.get(kind) == Some(&store.version))
        };
        let stopped: Vec<_> = self.running.keys().copied().filter(|kind| !is_wanted(kind, cache)).collect();
        for kind in stopped {
            if let Some(running) = self.running.remove(&kind) {
                running.handle.abort();
            }
            cache.stop(kind);
            self.troubles.remove(&Kind::of(kind).label());
            tracing::info!(kind = Kind::of(kind).kind, "not watched any more");
        }
        let started: Vec<_> = wanted.into_iter().filter(|(kind, _)| !self.running.contains_key(kind)).collect();
        for (kind, version) in started {
            self.watch(Kind::of(kind), version, cache, tasks);
        }
        self.adjust_secrets(cache, tasks);
    }

    fn watch(&mut self, kind: &'static Kind, version: &'static str, cache: &mut Cache, tasks: &mut Tasks) {
        self.watches += 1;
        let (number, sender) = (self.watches, self.sender.clone());
        tracing::info!(kind = kind.kind, version, "watched from now on");
        cache.start(kind.name, version);
        let (fields, labels) = (kind.fields.map(str::to_owned), kind.labels.map(str::to_owned));
        let selection =
            watcher::Config { field_selector: fields, label_selector: labels, ..watcher::Config::default() };
        let handle = if kind.metadata_only {
            let say = move |event: Result<Event<PartialObjectMeta<DynamicObject>>, _>| {
                Input::Kind(kind.name, number, event.map(|event| change(kind, whole(event))))
            };
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::all_with(self.client.clone(), &kind.resource(version));
            tasks.spawn(kind.label(), follow(api, selection, sender, say))
        } else {
            let say = move |event: Result<_, _>| Input::Kind(kind.name, number, event.map(|event| change(kind, event)));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind.resource(version));
            tasks.spawn(kind.label(), follow(api, selection, sender, say))
        };
        self.running.insert(kind.name, Running { number, handle });
    }

    /// Watches exactly those Secrets one by one that owners name.
    fn adjust_secrets(&mut self, cache: &mut Cache, tasks: &mut Tasks) {
        let needed = secrets::needed(cache);
        self.secrets.retain(|key, running| {
            let stays = needed.contains(key);
            if !stays {
                running.handle.abort();
                cache.drop_named_secret(key);
            }
            stays
        });
        for key in needed {
            if !self.secrets.contains_key(&key) {
                self.watch_secret(key, tasks);
            }
        }
    }

    fn watch_secret(&mut self, key: Key, tasks: &mut Tasks) {
        self.watches += 1;
        let (number, sender, kind) = (self.watches, self.sender.clone(), Kind::of(KindName::Secret));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &kind.resource("v1"));
        let name = format!("secret {}/{}", key.namespace, key.name);
        let selection = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
        let named = key.clone();
        let say =
            move |event: Result<_, _>| Input::Secret(named.clone(), number, event.map(|event| change(kind, event)));
        let handle = tasks.spawn(name, follow(api, selection, sender, say));
        self.secrets.insert(key, Running { number, handle });
    }

    fn works(&mut self, name: &str) {
        match self.troubles.remove(name) {
            Some(Trouble::Failed(_)) if !self.has_failures() => {
                tracing::info!("the API server answers all watches again");
            }
            Some(Trouble::Forbidden(_) | Trouble::NotServed) => tracing::info!(watch = name, "it works again"),
            _ => {}
        }
    }

    /// Says what is wrong once, and keeps it for those who ask whether all is ready. An API server that is away fails
    /// every watch: that is said once, not for each.
    fn fails(&mut self, name: String, trouble: Trouble) -> bool {
        let is_known = match &trouble {
            Trouble::Failed(_) => self.has_failures(),
            Trouble::Forbidden(_) | Trouble::NotServed => self.troubles.get(&name) == Some(&trouble),
        };
        if !is_known {
            tracing::warn!(watch = name, "{}", describe(&trouble));
        }
        self.troubles.insert(name, trouble);
        false
    }

    fn has_failures(&self) -> bool {
        self.troubles.values().any(|trouble| matches!(trouble, Trouble::Failed(_)))
    }
}

fn describe(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Forbidden(message) => format!("a permission is missing: {message}"),
        Trouble::NotServed => "the API server does not serve it at present".to_owned(),
        Trouble::Failed(message) => message.clone(),
    }
}

fn change(kind: &Kind, event: Event<DynamicObject>) -> Change {
    match event {
        Event::Init => Change::ListStart,
        Event::InitDone => Change::ListEnd,
        Event::InitApply(object) | Event::Apply(object) => {
            let (key, entry) = read(kind, object);
            Change::Applied(key, entry)
        }
        Event::Delete(object) => {
            let (key, entry) = read(kind, object);
            Change::Deleted(key, entry)
        }
    }
}

/// An object of which only the metadata is known.
fn whole(event: Event<PartialObjectMeta<DynamicObject>>) -> Event<DynamicObject> {
    let object = |partial: PartialObjectMeta<DynamicObject>| DynamicObject {
        types: None,
        metadata: partial.metadata,
        data: json!({}),
    };
    match event {
        Event::Init => Event::Init,
        Event::InitApply(partial) => Event::InitApply(object(partial)),
        Event::InitDone => Event::InitDone,
        Event::Apply(partial) => Event::Apply(object(partial)),
        Event::Delete(partial) => Event::Delete(object(partial)),
    }
}

fn complain_of(change: &Change) {
    if let Change::Applied(key, entry) = change
        && let Object::Unreadable(unreadable) = &entry.object
    {
        let Key { namespace, name } = key;
        tracing::warn!(namespace, name, fault = unreadable.fault, "an object cannot be read and is left out");
    }
}
