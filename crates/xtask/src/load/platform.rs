//! A cluster with the operator.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Bed, Operator, condition, fixtures};
use serde::Serialize;
use serde_json::Value;

use super::stub::Stub;
use crate::run::{cargo, step};

/// Who takes the listeners and routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Gateway {
    /// A stub that acknowledges all at once
    Stub,
    /// The real Envoy Gateway with its Envoy
    EnvoyGateway,
}

/// A cluster with the shared Gateway and the operator, which is ready.
pub(crate) struct Platform {
    pub(crate) operator: Operator,
    _stub: Option<Stub>,
    // Ended after what uses it: fields are dropped in this order.
    pub(crate) bed: Bed,
}

impl Platform {
    pub(crate) async fn start(gateway: Gateway, operator: &Path) -> anyhow::Result<Self> {
        let bed = match gateway {
            Gateway::Stub => Bed::builder().gateway_api(portreeve_testkit::Channel::Standard),
            Gateway::EnvoyGateway => Bed::builder().with_envoy_gateway(),
        };
        let bed = bed.start().await?;
        bed.define_own().await?;
        let stub = match gateway {
            Gateway::Stub => {
                bed.apply(&fixtures::namespace("envoy-gateway-system")).await?;
                bed.apply(&fixtures::shared_gateway(true)).await?;
                Some(Stub::start(&bed.client()))
            }
            Gateway::EnvoyGateway => {
                publish(&bed).await?;
                None
            }
        };
        let mut operator = Operator::start(&bed, "operator", operator, &bed.kubeconfig(), &[])?;
        operator.wait_ready().await?;
        Ok(Self { operator, _stub: stub, bed })
    }
}

/// Makes the shared Gateway and waits until it serves.
async fn publish(bed: &Bed) -> anyhow::Result<()> {
    let (namespace, name) = ("envoy-gateway-system", "nebari-gateway");
    let identity = Identity::new(&["example.test"])?;
    bed.apply(&fixtures::tls_secret(namespace, "nebari-gateway-tls", &identity)).await?;
    bed.apply(&fixtures::shared_gateway(true)).await?;
    bed.publish_gateway(namespace, name, &[80, 443]).await?;
    let programmed = |gateway: &Value| condition(gateway, "Programmed") == Some("True");
    let gateway = ("gateway.networking.k8s.io/v1", "Gateway", format!("{namespace}/{name}"));
    bed.wait_for(gateway.0, gateway.1, &gateway.2, "is programmed", programmed).await?;
    Ok(())
}

/// Builds the operator as it is shipped and returns its path.
pub(crate) fn build_operator() -> anyhow::Result<PathBuf> {
    let mut build = cargo(&["build", "--release", "--workspace", "--bin", "portreeve", "--locked", "--quiet"]);
    step("build the operator as it is shipped", &mut build)?;
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"]).output()?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata is JSON")?;
    let folder = metadata["target_directory"].as_str().context("cargo has a target directory")?;
    Ok(PathBuf::from(folder).join("release/portreeve"))
}
