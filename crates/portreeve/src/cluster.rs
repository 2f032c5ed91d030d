//! Which cluster a command is about, and what it means when that does not answer.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::ClusterArgs;

/// A client for a cluster, for commands that ask and do not stay.
pub(crate) struct Connection {
    pub(crate) client: Client,
    server: String,
    patience: Duration,
}

/// How to reach the cluster of a kubeconfig; without one, that which `KUBECONFIG` or `~/.kube/config` names, else the one
/// in which this runs. Without a context the kubeconfig's current one counts.
pub(crate) async fn cluster(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match (kubeconfig, context) {
        (Some(path), _) => Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?,
        (None, Some(_)) => Config::from_custom_kubeconfig(Kubeconfig::read()?, &options).await?,
        (None, None) => Config::infer().await?,
    };
    let agent = concat!("portreeve/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}

impl Connection {
    /// To the cluster that the arguments name. Nothing is sent yet.
    pub(crate) async fn new(arguments: &ClusterArgs) -> anyhow::Result<Self> {
        let config = cluster(arguments.kubeconfig.as_deref(), arguments.context.as_deref()).await;
        Self::with(config.context("failed to find out which cluster to use")?, arguments.patience())
    }

    /// To an API server that may be silent for so long.
    pub(crate) fn with(mut config: Config, patience: Duration) -> anyhow::Result<Self> {
        (config.connect_timeout, config.read_timeout) = (Some(patience), Some(patience));
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).context("failed to prepare the connection to the API server")?;
        Ok(Self { client, server: server.trim_end_matches('/').to_owned(), patience })
    }

    /// What it means that a request has failed.
    pub(crate) fn failed(&self, error: kube::Error) -> anyhow::Error {
        let server = &self.server;
        match &error {
            kube::Error::Api(status) => {
                anyhow::anyhow!("the API server at {server} refuses it: {}", status.message)
            }
            _ if is_silence(&error) => {
                let seconds = self.patience.as_secs();
                anyhow::anyhow!("the API server at {server} has not answered for {seconds} s (--request-timeout)")
            }
            _ => anyhow::Error::from(error).context(format!("the API server at {server} cannot be reached")),
        }
    }
}

/// Whether nothing came for too long.
fn is_silence(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}
