//! The identity provider: what a plan asks of it is carried out beside the loop, and what became of it is told.
//!
//! One request for each app is under way at a time. One that failed is tried again after a pause that grows.

mod admin;
mod examine;
mod provision;
mod secret;

pub use examine::examine_keycloak;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use portreeve_plan::{ClientProvision, ClientRemoval, ProvisionReport, RemovalReport, World};
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::jitter::jitter;
use admin::{Admin, Fault, Http, http};

/// After a failure: the first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Before what has succeeded is done again, since what is known of the cluster may lag behind.
const REPEAT: Duration = Duration::from_secs(5);
/// How many requests of apps are under way at once.
const AT_ONCE: usize = 4;

/// Where Keycloak is, and who administers it.
#[derive(Clone, Debug)]
pub struct KeycloakAdmin {
    /// Its URL inside the cluster, with the path under which it serves.
    pub url: String,
    /// The realm of the apps.
    pub realm: String,
    /// The Secret with the administrator's name and password: namespace and name. It is read for every request.
    pub secret: (String, String),
    /// The administrator's name, where the Secret is not to be asked.
    pub username: String,
    /// The administrator's password, where the Secret is not to be asked.
    pub password: SecretString,
    /// How long one answer may take.
    pub patience: Duration,
}

/// Namespace and name of an app.
type App = (String, String);

/// What is asked of the provider for one app.
#[derive(Clone, Debug)]
enum Request {
    Provision(Box<ClientProvision>),
    Remove(Box<ClientRemoval>),
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Report {
    app: App,
    key: String,
    outcome: Result<Vec<String>, Fault>,
    request: Request,
}

/// The last that is known of an app's requests.
#[derive(Debug)]
struct Last {
    key: String,
    failures: u32,
    due: Instant,
}

/// Carries out what plans ask of the provider.
pub(crate) struct Provider {
    worker: Option<Worker>,
    sender: mpsc::Sender<Report>,
    running: BTreeMap<App, (String, AbortHandle)>,
    tasks: JoinSet<()>,
    last: BTreeMap<App, Last>,
    provisions: BTreeMap<App, ProvisionReport>,
    removals: BTreeMap<App, RemovalReport>,
}

#[derive(Clone)]
struct Worker {
    client: Client,
    http: Http,
    settings: KeycloakAdmin,
    seats: std::sync::Arc<tokio::sync::Semaphore>,
}

impl Provider {
    /// Without settings nothing is asked of anybody. Reports come back through `sender`.
    pub(crate) fn new(client: Client, settings: Option<KeycloakAdmin>, sender: mpsc::Sender<Report>) -> Self {
        let seats = std::sync::Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let worker = settings.map(|settings| Worker { client, http: http(), settings, seats });
        Self {
            worker,
            sender,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            last: BTreeMap::new(),
            provisions: BTreeMap::new(),
            removals: BTreeMap::new(),
        }
    }

    /// Tells decisions what became of what they asked for.
    pub(crate) fn put_into(&self, world: &mut World) {
        world.provisions.clone_from(&self.provisions);
        world.removals.clone_from(&self.removals);
    }

    /// Starts what is asked for and neither under way nor to wait.
    pub(crate) fn ask(&mut self, provision: Vec<ClientProvision>, remove: Vec<ClientRemoval>, now: Instant) {
        while self.tasks.try_join_next().is_some() {}
        let provision = provision.into_iter().map(|one| (app_of(&one.app), Request::Provision(Box::new(one))));
        let remove = remove.into_iter().map(|one| (app_of(&one.app), Request::Remove(Box::new(one))));
        for (app, request) in provision.chain(remove) {
            let key = request.key();
            let waits = self.last.get(&app).is_some_and(|last| last.key == key && last.due > now);
            if !waits && !self.running.contains_key(&app) {
                self.start(app, key, request);
            }
        }
    }

    fn start(&mut self, app: App, key: String, request: Request) {
        let Some(worker) = self.worker.clone() else { return };
        let (sender, started, named) = (self.sender.clone(), key.clone(), app.clone());
        let handle = self.tasks.spawn(async move {
            let outcome = worker.carry_out(&request).await;
            // Who does not listen any more has stopped.
            let _ = sender.send(Report { app: named, key, outcome, request }).await;
        });
        self.running.insert(app, (started, handle));
    }

    /// Takes in what became of a request.
    pub(crate) fn take(&mut self, report: Report, now: Instant) {
        let Report { app, key, outcome, request } = report;
        // One that was on its way when everything was stopped says nothing about now.
        if self.running.get(&app).is_none_or(|(running, _)| *running != key) {
            return;
        }
        self.running.remove(&app);
        let failures = self.last.get(&app).filter(|last| last.key == key).map_or(0, |last| last.failures);
        let pause = match &outcome {
            Ok(_) => REPEAT,
            Err(_) => jitter(PAUSE.0.saturating_mul(2_u32.saturating_pow(failures)).min(PAUSE.1)),
        };
        let failures = if outcome.is_ok() { 0 } else { failures.saturating_add(1) };
        self.last.insert(app.clone(), Last { key, failures, due: now + pause });
        let (namespace, name) = &app;
        match &outcome {
            Ok(_) => tracing::info!(namespace, name, "the identity provider has done what the app needs"),
            Err(fault) if failures == 1 => tracing::warn!(namespace, name, "{fault}"),
            Err(fault) => tracing::debug!(namespace, name, "{fault}"),
        }
        match request {
            Request::Provision(request) => {
                let outcome = outcome.map_err(|fault| fault.to_string());
                self.provisions.insert(app, ProvisionReport { hash: request.hash, force: request.force, outcome });
            }
            Request::Remove(request) => {
                let outcome = outcome.map(drop).map_err(|fault| fault.to_string());
                self.removals.insert(app, RemovalReport { uid: request.uid, outcome });
            }
        }
    }

    /// Forgets apps that are gone.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&App) -> bool) {
        self.last.retain(|app, _| is_there(app));
        self.provisions.retain(|app, _| is_there(app));
        self.removals.retain(|app, _| is_there(app));
    }

    /// When something that has failed may be tried again.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        self.last.values().map(|last| last.due).filter(|due| *due > now).min()
    }

    /// Cuts off everything that is under way, and forgets what has become of the rest: another replica is at it now, and
    /// what this one knew may not be so when it is asked again.
    pub(crate) fn stop(&mut self) {
        for (_, handle) in std::mem::take(&mut self.running).into_values() {
            handle.abort();
        }
        self.last.clear();
        self.provisions.clear();
        self.removals.clear();
    }

    /// Forgets the annotations that have been heeded of apps that do not have them any more: one that is set again, be it
    /// to the same value, asks again.
    pub(crate) fn forget_heeded(&mut self, asks: impl Fn(&App) -> bool) {
        for (app, report) in self.provisions.iter_mut().filter(|(_, report)| report.force.is_some()) {
            if !asks(app) {
                report.force = None;
            }
        }
    }
}

impl Request {
    /// Tells a request from others of the same app.
    fn key(&self) -> String {
        match self {
            Self::Provision(request) => format!("{} {}", request.hash, request.force.as_deref().unwrap_or_default()),
            Self::Remove(request) => format!("remove {}", request.uid),
        }
    }
}

impl Worker {
    async fn carry_out(&self, request: &Request) -> Result<Vec<String>, Fault> {
        let _seat = self.seats.acquire().await;
        let KeycloakAdmin { url, realm, patience, .. } = &self.settings;
        let credentials = secret::credentials(&self.client, &self.settings).await?;
        let admin = Admin::sign_in(&self.http, (url, realm), *patience, &credentials).await?;
        match request {
            Request::Provision(request) => {
                let done = provision::provision(&admin, request).await?;
                secret::write(&self.client, &request.secret, &done.secret).await?;
                Ok(done.not_own)
            }
            Request::Remove(request) => provision::remove(&admin, request).await.map(|()| Vec::new()),
        }
    }
}

fn app_of(app: &portreeve_plan::ObjectRef) -> App {
    (app.namespace.clone().unwrap_or_default(), app.name.clone())
}

#[cfg(test)]
mod tests {
    use portreeve_plan::ObjectRef;
    use serde_json::json;

    use super::*;

    fn app() -> App {
        ("shop".to_owned(), "web".to_owned())
    }

    fn provider() -> Provider {
        Provider {
            worker: None,
            sender: mpsc::channel(1).0,
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            last: BTreeMap::new(),
            provisions: BTreeMap::new(),
            removals: BTreeMap::new(),
        }
    }

    /// A request is under way, and its report comes.
    fn report(provider: &mut Provider, force: Option<&str>) -> Report {
        let (namespace, name) = app();
        let object =
            ObjectRef { api_version: String::new(), kind: "NebariApp".to_owned(), namespace: Some(namespace), name };
        let client = portreeve_plan::ProvidedClient {
            client_id: "shop-web".to_owned(),
            made_for: "shop/web".to_owned(),
            body: json!({}),
            kept: Vec::new(),
            scopes: Vec::new(),
            mappers: Vec::new(),
        };
        let request = Request::Provision(Box::new(ClientProvision {
            app: object,
            hash: "h".to_owned(),
            force: force.map(str::to_owned),
            client,
            spa: None,
            device: None,
            groups: BTreeMap::new(),
            exchange: None,
            obsolete: Vec::new(),
            secret: json!({}),
        }));
        let key = request.key();
        provider.running.insert(app(), (key.clone(), provider.tasks.spawn(std::future::pending())));
        Report { app: app(), key, outcome: Ok(Vec::new()), request }
    }

    #[tokio::test]
    async fn an_annotation_that_comes_again_asks_again() {
        let mut provider = provider();
        let done = report(&mut provider, Some("now"));
        provider.take(done, Instant::now());
        provider.forget_heeded(|_| true);
        assert_eq!(provider.provisions[&app()].force.as_deref(), Some("now"));
        provider.forget_heeded(|_| false);
        assert_eq!(provider.provisions[&app()].force, None);
        assert!(provider.provisions[&app()].outcome.is_ok(), "the clients are still as they were made");
    }

    #[tokio::test]
    async fn who_has_stopped_knows_nothing_of_before() {
        let mut provider = provider();
        let done = report(&mut provider, None);
        provider.take(done, Instant::now());
        let late = report(&mut provider, None);
        provider.stop();
        provider.take(late, Instant::now());
        let mut world = World::default();
        provider.put_into(&mut world);
        assert!(world.provisions.is_empty() && world.removals.is_empty() && provider.last.is_empty());
        assert_eq!(provider.next_due(Instant::now()), None);
    }
}
