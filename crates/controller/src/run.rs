use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use portreeve_plan::{Config, LegacyListeners, TlsRouteVersion};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::admin::metrics::Metrics;
use crate::admin::{self, CertificateSource, NoCertificate, Readiness, TlsListener};
use crate::engine::{Engine, EngineError, Setup};
use crate::lease::{Keeper, LeaderElection};
use crate::provider::KeycloakAdmin;
use crate::reflect::discovery::Choices;
use crate::releases::HelmSettings;
use crate::tasks::{TaskEnded, Tasks};

/// How long giving back the leases may take; later, others take them soon without that.
const GIVE_BACK: Duration = Duration::from_secs(10);

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the platform has configured.
    pub config: Config,
    /// Where clients of apps are made; the planner is told by [`Config::login`] that they are.
    pub keycloak: Option<KeycloakAdmin>,
    /// Whether tenants are served.
    pub tenants: bool,
    /// The version of TLSRoute to use where `v1` is not served; without it there are no TLSRoutes then.
    pub tls_routes: Option<TlsRouteVersion>,
    /// The Helm client; without it no virtual cluster is installed by it.
    pub helm: Option<HelmSettings>,
    /// Without it this is the only replica, and no other operator runs beside it.
    pub leader_election: Option<LeaderElection>,
    /// Where `/healthz` and `/readyz` are served, such as `:8081`.
    pub probes: Option<String>,
    /// Where `/metrics` is served.
    pub metrics: Option<MetricsServer>,
    /// The clock. It is read for what is written; how long something takes is measured otherwise.
    pub clock: fn() -> Timestamp,
}

/// Where `/metrics` is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsServer {
    /// Such as `:8443`.
    pub address: String,
    /// With a certificate it is served over HTTPS, and only to those whom the API server lets `get` it.
    pub certificate: Option<CertificateSource>,
}

/// Why the controller has ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An address of an admin server cannot be used.
    #[error("failed to listen on {address}")]
    Listen {
        /// As it was given.
        address: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The metrics server has no certificate.
    #[error("failed to set up HTTPS for metrics")]
    Certificate(#[from] NoCertificate),
    /// Something inside has ended.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A task beside it has ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// Runs the controller until `stop`; then writes that are under way may end, and the leases are given back.
///
/// The process must have a default provider of cryptography for rustls.
pub async fn run(settings: Settings, client: Client, stop: CancellationToken) -> Result<(), Fault> {
    let metrics = Arc::new(Metrics::new());
    let (readiness, is_ready) = watch::channel(Readiness::default());
    // Kept to the end: without election nobody else keeps it, and whoever waits for news from it would never rest.
    let (leading, leads) = watch::channel(settings.leader_election.is_none());
    let (no_lease, lease_failure) = watch::channel(None);
    metrics.leading(*leads.borrow());
    let mut servers = Tasks::default();
    serve(&settings, &client, &metrics, (is_ready, lease_failure), &mut servers).await?;
    // Leases outlast everything that writes.
    let release = CancellationToken::new();
    let mut keeper = settings.leader_election.as_ref().map(|election| {
        let keeper = Keeper::new(client.clone(), election, settings.clock, leading.clone(), no_lease.clone());
        tokio::spawn(keeper.run(release.clone()))
    });
    let migration = settings.config.legacy_listeners != LegacyListeners::Keep;
    let engine = Engine::new(Setup {
        client,
        config: settings.config,
        keycloak: settings.keycloak,
        choices: Choices { tls_routes: settings.tls_routes, tenants: settings.tenants, migration },
        helm: settings.helm,
        clock: settings.clock,
        leading: leads,
        metrics,
        readiness,
        stop,
    });
    let result = tokio::select! {
        result = engine.run() => result.map_err(Fault::from),
        ended = servers.ended() => Err(ended.into()),
        cause = ended(&mut keeper) => Err(TaskEnded { name: "leases".to_owned(), cause }.into()),
    };
    release.cancel();
    if let Some(keeper) = keeper.filter(|keeper| !keeper.is_finished())
        && timeout(GIVE_BACK, keeper).await.is_err()
    {
        tracing::warn!("the leases could not be given back in {} s", GIVE_BACK.as_secs());
    }
    result
}

async fn ended(task: &mut Option<tokio::task::JoinHandle<()>>) -> String {
    match task {
        Some(task) => task.await.map_or_else(|error| error.to_string(), |()| "it has nothing more to do".to_owned()),
        None => std::future::pending().await,
    }
}

async fn serve(
    settings: &Settings,
    client: &Client,
    metrics: &Arc<Metrics>,
    (readiness, lease_failure): (watch::Receiver<Readiness>, watch::Receiver<Option<String>>),
    servers: &mut Tasks,
) -> Result<(), Fault> {
    let listen = async |address: &str| {
        admin::bind(address).await.map_err(|source| Fault::Listen { address: address.to_owned(), source })
    };
    if let Some(address) = &settings.probes {
        servers.spawn("probes", admin::serve_probes(listen(address).await?, readiness, lease_failure));
    }
    if let Some(MetricsServer { address, certificate }) = &settings.metrics {
        let listener = listen(address).await?;
        match certificate.clone() {
            Some(source) => {
                let listener = TlsListener::new(listener, source)?;
                servers.spawn("metrics", admin::serve_secure_metrics(listener, metrics.clone(), client.clone()));
            }
            None => drop(servers.spawn("metrics", admin::serve_metrics(listener, metrics.clone()))),
        }
        // Others look for these words.
        tracing::info!(address, secure = certificate.is_some(), "Serving metrics server");
    }
    Ok(())
}
