//! Which cluster a command is about.

use std::path::Path;

use http::header::{HeaderValue, USER_AGENT};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// How to reach the cluster of a kubeconfig; without one, that which `KUBECONFIG` or `~/.kube/config` names, else the one
/// in which this runs.
pub(crate) async fn cluster(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    let agent = concat!("portreeve/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    Ok(config)
}
