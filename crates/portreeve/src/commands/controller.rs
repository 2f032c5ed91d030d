//! `portreeve controller`: run the flow in a cluster.

use std::hash::{BuildHasher, RandomState};

use anyhow::Context;
use kube::Client;
use portreeve_controller::lease::LeaderElection;
use portreeve_controller::{Settings, run as run_controller};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::ControllerArgs;
use crate::cluster::cluster;
use crate::exit::Exit;

/// Runs the command until a signal comes.
pub async fn run(arguments: ControllerArgs) -> anyhow::Result<Exit> {
    for flag in arguments.unused.ignored() {
        tracing::warn!("{flag} is ignored: see --log-format");
    }
    let cluster =
        cluster(arguments.kubeconfig.as_deref(), None).await.context("failed to find out which cluster to use")?;
    let namespace = arguments.election.lease_namespace.clone().unwrap_or_else(|| cluster.default_namespace.clone());
    let leader_election = arguments.election.leader_elect.then(|| LeaderElection {
        namespace,
        identity: identity(),
        leases: ControllerArgs::leases(false),
    });
    let settings = Settings {
        config: arguments.operator.config(),
        tenants: false,
        tls_routes: arguments.operator.choices.tls_routes(),
        leader_election,
        probes: arguments.servers.probes(),
        metrics: arguments.servers.metrics(),
        clock: crate::now,
    };
    let client = Client::try_from(cluster).context("failed to prepare the connection to the API server")?;
    let stop = CancellationToken::new();
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let controller = run_controller(settings, client, stop.clone());
    tokio::pin!(controller);
    tokio::select! {
        ended = &mut controller => return ended.map(|()| Exit::Good).map_err(Into::into),
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping: writes that are under way may end; a second signal cuts them");
    stop.cancel();
    tokio::select! {
        ended = controller => ended.map(|()| Exit::Good).map_err(Into::into),
        _ = interrupt.recv() => Ok(Exit::Interrupted),
        _ = terminate.recv() => Ok(Exit::Interrupted),
    }
}

/// Tells this process from every other, also from an earlier one in the same pod.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "portreeve".to_owned());
    format!("{host}_{:016x}", RandomState::new().hash_one(std::process::id()))
}
