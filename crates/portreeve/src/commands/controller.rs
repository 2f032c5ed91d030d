//! `portreeve controller`: run the flow in a cluster.

use std::hash::{BuildHasher, RandomState};

use anyhow::Context;
use k8s_openapi::ByteString;
use kube::{Client, Config};
use portreeve_controller::lease::LeaderElection;
use portreeve_controller::{ApiServerAddress, HelmSettings, Settings, run as run_controller};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::{ControllerArgs, OperatorArgs, ProvisionerArg};
use crate::cluster::cluster;
use crate::exit::Exit;

/// Runs the command until a signal comes.
pub async fn run(arguments: ControllerArgs) -> anyhow::Result<Exit> {
    for flag in arguments.unused.ignored() {
        tracing::warn!("{flag} is ignored: see --log-format");
    }
    let cluster =
        cluster(arguments.kubeconfig.as_deref(), None).await.context("failed to find out which cluster to use")?;
    let tenants = arguments.operator.serves_tenants();
    let leader_election = arguments.election.leader_elect.then(|| LeaderElection {
        identity: identity(),
        leases: arguments.election.leases(tenants, &cluster.default_namespace),
    });
    let settings = Settings {
        config: arguments.operator.config()?,
        keycloak: arguments.operator.choices.keycloak(),
        tenants,
        helm: helm(&arguments.operator, &cluster).filter(|_| tenants),
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

/// The Helm client, where it makes virtual clusters.
fn helm(arguments: &OperatorArgs, cluster: &Config) -> Option<HelmSettings> {
    let provisioner = &arguments.choices.provisioner;
    let account = &provisioner.helm_service_account;
    let namespace = account.namespace.as_ref().unwrap_or(&cluster.default_namespace);
    let api_server = ApiServerAddress {
        url: cluster.cluster_url.to_string(),
        authority: cluster.root_cert.as_ref().map(|certificates| pem(certificates)),
        tls_server_name: cluster.tls_server_name.clone(),
        insecure: cluster.accept_invalid_certs,
        proxy: cluster.proxy_url.as_ref().map(ToString::to_string),
    };
    (provisioner.tenant_provisioner == ProvisionerArg::Helm).then(|| HelmSettings {
        program: provisioner.helm.clone(),
        account: (namespace.clone(), account.name.clone()),
        api_server,
        work: None,
    })
}

fn pem(certificates: &[Vec<u8>]) -> String {
    let blocks = certificates.iter().map(|certificate| {
        let encoded = serde_json::to_value(ByteString(certificate.clone())).unwrap_or_default();
        let encoded = encoded.as_str().unwrap_or_default().as_bytes();
        let lines = encoded.chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line)));
        format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
    });
    blocks.collect()
}

/// Tells this process from every other, also from an earlier one in the same pod.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "portreeve".to_owned());
    format!("{host}_{:016x}", RandomState::new().hash_one(std::process::id()))
}
