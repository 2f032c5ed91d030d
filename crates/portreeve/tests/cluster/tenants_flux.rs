//! Virtual clusters by Flux: what it is asked for, and what it says.
//!
//! The definitions of its kinds are the test's own, in the shape of Flux's, and nothing installs anything: the test says what
//! Flux would.

use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::support::tenants::{ARGUMENTS, TENANTS, tenant};
use crate::support::{Operator, Platform, message};

const RELEASES: &str = "helm.toolkit.fluxcd.io/v2";

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";

/// Both objects, in the namespace of the tenant `fluxed`.
const NAME: &str = "kubespaces-tenant-fluxed/fluxed";

/// No other operator may run in the bed meanwhile.
pub(crate) async fn flux(platform: &Platform) -> anyhow::Result<()> {
    let arguments: Vec<&str> = ARGUMENTS.iter().copied().filter(|flag| !flag.contains("provisioner")).collect();
    let arguments = [&arguments[..], &["--tenant-provisioner=flux"]].concat();
    let mut operator = Operator::start(&platform.bed, "operator-flux", &arguments)?;
    operator.wait_ready().await?;
    let done = asked_and_told(platform).await;
    done.with_context(|| format!("the operator printed\n{}", operator.log()))?;
    operator.stop().await
}

async fn asked_and_told(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    bed.apply(&tenant("fluxed", json!({}))).await?;
    let missing = platform.wait_tenant("fluxed", &[("Ready", "False", "ProvisioningFailed")]).await?;
    ensure!(message(&missing, "Ready").contains("source.toolkit.fluxcd.io"), "which kind is missing: {missing}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/definitions");
    bed.define_in(&folder, |file| file == "flux.yaml").await?;

    let source = bed.wait_for(SOURCES, "OCIRepository", NAME, "is there", |_| true).await?;
    ensure!(source["spec"]["url"] == "oci://ghcr.io/kubespaces-io/charts/vcluster", "{source}");
    ensure!(
        source["spec"]["ref"]["tag"] == "0.35.2" && source["spec"]["layerSelector"]["operation"] == "copy",
        "{source}"
    );
    let release = bed.wait_for(RELEASES, "HelmRelease", NAME, "is there", |_| true).await?;
    let spec = &release["spec"];
    ensure!(spec["chartRef"] == json!({"kind": "OCIRepository", "name": "fluxed"}), "{release}");
    ensure!(spec["releaseName"] == "fluxed" && spec["install"]["remediation"]["retries"] == -1, "{release}");
    ensure!(spec["values"]["controlPlane"]["proxy"]["extraSANs"] == json!(["fluxed.api.example.test"]), "{release}");

    let says = |ready: &str, why: &str| {
        let condition = json!({"type": "Ready", "status": ready, "reason": "Tested", "message": why,
            "observedGeneration": release["metadata"]["generation"], "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"apiVersion": RELEASES, "kind": "HelmRelease",
            "metadata": {"namespace": "kubespaces-tenant-fluxed", "name": "fluxed"},
            "status": {"observedGeneration": release["metadata"]["generation"], "conditions": [condition]}})
    };
    bed.apply_status(&says("False", "the chart is broken").to_string()).await?;
    let broken = |tenant: &Value| message(tenant, "Ready").contains("the chart is broken");
    bed.wait_for(TENANTS, "Tenant", "fluxed", "says what Flux says", broken).await?;
    bed.apply_status(&says("True", "installed").to_string()).await?;
    let waiting = platform.wait_tenant("fluxed", &[("Ready", "False", "Provisioning")]).await?;
    ensure!(message(&waiting, "Ready").contains("vCluster workload"), "{waiting}");
    let now = bed.get(RELEASES, "HelmRelease", NAME).await?.context("the HelmRelease is there")?;
    ensure!(now["metadata"]["generation"] == release["metadata"]["generation"], "it is written again: {now}");

    bed.delete(TENANTS, "Tenant", "fluxed").await?;
    bed.wait_gone(TENANTS, "Tenant", "fluxed").await?;
    bed.wait_gone("v1", "Namespace", "kubespaces-tenant-fluxed").await
}
