//! Virtual clusters by the real Helm, which the operator runs with the rights that its chart gives.
//!
//! The chart that is installed has the shape of vCluster's and nothing in it; a stand-in for kubelets says that its Pods run.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use portreeve_testkit::{Bed, eventually};
use serde_json::{Value, json};

use crate::support::release::{NAMESPACE, chart, helm, start};
use crate::support::tenants::{APPS_GATEWAY, TENANTS, tenant};
use crate::support::{ISSUER, Operator, Platform, WAY, issuer, message, side_by_side};

#[tokio::test(flavor = "multi_thread")]
async fn virtual_clusters_are_installed_by_helm_as_an_account_of_its_own() {
    let parts = Bed::builder().with_controller_manager().with_cert_manager().with_envoy_gateway();
    let platform = Platform::bare(parts).await.unwrap();
    let bed = &platform.bed;
    bed.apply(&issuer(ISSUER)).await.unwrap();
    platform.add_tenant_gateways(&[APPS_GATEWAY]).await.unwrap();
    let _kubelets = bed.pretend_to_run_pods(&bed.host("virtual-clusters").unwrap());
    let values = format!(
        "operator.vcluster.chart={}/tests/charts/vcluster,operator.tenantApi.domain=example.test,\
         operator.tenantApps.domain=example.test,operator.tenantApps.clusterIssuer={ISSUER}",
        env!("CARGO_MANIFEST_DIR")
    );
    let install = ["upgrade", "--install", "portreeve", &chart(), "--create-namespace", "--take-ownership"];
    helm(bed, &[&install[..], &["--set", &values]].concat()).unwrap();
    let deployment = bed.get("apps/v1", "Deployment", &format!("{NAMESPACE}/portreeve")).await.unwrap().unwrap();
    let mut operator = start(bed, &deployment, "operator").await.unwrap();
    operator.wait_ready().await.unwrap();
    let log = || operator.log();
    side_by_side(
        vec![
            ("a_virtual_cluster_from_install_to_uninstall", lifecycle(&platform).boxed_local()),
            ("a_release_that_fails_is_told_and_tried_again", failure(&platform).boxed_local()),
            ("overrides_that_break_isolation_are_refused", refused_override(&platform).boxed_local()),
            ("a_tenant_is_deleted_while_its_release_fails", deleted_while_failing(&platform).boxed_local()),
            ("names_that_make_no_host_name_are_refused", names(&platform).boxed_local()),
        ],
        log,
    )
    .await;
    side_by_side(vec![("nothing_is_left_behind", async { nothing_left(&platform, &operator) }.boxed_local())], log)
        .await;
    operator.stop().await.unwrap();
}

async fn lifecycle(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    bed.apply(&tenant("one", json!({"resources": {"cpu": "4", "memory": "8Gi"}}))).await?;
    let ready = platform.wait_phase("one", "Ready").await?;
    ensure!(ready["status"]["kubeconfigSecretRef"] == json!({"name": "vc-one", "key": "config"}), "{ready}");
    let values = values(bed, "one").await?;
    ensure!(values["controlPlane"]["proxy"]["extraSANs"] == json!(["one.api.example.test"]), "{values}");
    ensure!(values["exportKubeConfig"]["server"] == "https://one.api.example.test:443", "{values}");
    let mapping = json!({"kubespaces-system/kubespaces-apps": "default/kubespaces-apps"});
    ensure!(values["sync"]["fromHost"]["gateways"]["mappings"]["byName"] == mapping, "{values}");
    let quota = bed.get("v1", "ResourceQuota", "kubespaces-tenant-one/one-quota").await?.context("a quota")?;
    ensure!(quota["spec"]["hard"]["requests.cpu"] == "4", "{quota}");
    let first = revisions(bed, "one").await?;
    ensure!(first.len() == 1, "it was installed {} times", first.len());

    let resources = json!({"requests": {"cpu": "200m"}});
    bed.apply(&tenant("one", overrides(json!({"resources": resources})))).await?;
    wait_values(bed, "one", "the resources", |values| values["controlPlane"]["statefulSet"]["resources"] == resources)
        .await?;
    let ready = platform.wait_phase("one", "Ready").await?;
    ensure!(ready["status"]["apiServerUrl"] == "https://one.api.example.test:443", "{ready}");
    ensure!(revisions(bed, "one").await?.len() == 2, "an upgrade is one revision");

    bed.delete(TENANTS, "Tenant", "one").await?;
    bed.wait_gone(TENANTS, "Tenant", "one").await?;
    bed.wait_gone("v1", "Namespace", "kubespaces-tenant-one").await
}

async fn failure(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    let replicas = |count: Value| overrides(json!({"highAvailability": {"replicas": count}}));
    bed.apply(&tenant("failing", replicas(json!("three")))).await?;
    let failed = platform.wait_tenant("failing", &[("Ready", "False", "ProvisioningFailed")]).await?;
    ensure!(failed["status"]["phase"] == "Failed", "{failed}");
    ensure!(message(&failed, "Ready").contains("replicas"), "Helm's words are in the condition: {failed}");
    bed.apply(&tenant("failing", replicas(json!(2)))).await?;
    platform.wait_phase("failing", "Ready").await?;
    let set = bed.get("apps/v1", "StatefulSet", "kubespaces-tenant-failing/failing").await?.context("a StatefulSet")?;
    ensure!(set["spec"]["replicas"] == 2, "{set}");
    Ok(())
}

async fn refused_override(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    bed.apply(&tenant("climbing", json!({}))).await?;
    platform.wait_phase("climbing", "Ready").await?;
    let climbs =
        json!({"rbac": {"clusterRole": {"extraRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}}});
    bed.apply(&tenant("climbing", json!({"vcluster": {"valuesOverrides": climbs}}))).await?;
    let told = |tenant: &Value| {
        let conditions = tenant["status"]["conditions"].to_string();
        conditions.contains("rbac.clusterRole.extraRules")
    };
    bed.wait_for(TENANTS, "Tenant", "climbing", "is told which path is refused", told).await?;
    let values = values(bed, "climbing").await?;
    ensure!(values["rbac"].is_null(), "the refused value is installed: {values}");
    Ok(())
}

async fn deleted_while_failing(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    let spec = overrides(json!({"highAvailability": {"replicas": "none"}}));
    bed.apply(&tenant("hopeless", spec)).await?;
    platform.wait_tenant("hopeless", &[("Ready", "False", "ProvisioningFailed")]).await?;
    bed.delete(TENANTS, "Tenant", "hopeless").await?;
    bed.wait_gone(TENANTS, "Tenant", "hopeless").await?;
    bed.wait_gone("v1", "Namespace", "kubespaces-tenant-hopeless").await
}

/// An API server takes a moment to heed a policy.
async fn names(platform: &Platform) -> anyhow::Result<()> {
    for name in ["a.b", &"x".repeat(41)] {
        eventually(format!("{name} is refused"), WAY, async || {
            match platform.bed.apply(&tenant(name, json!({}))).await {
                Ok(()) => {
                    platform.bed.delete(TENANTS, "Tenant", name).await?;
                    anyhow::bail!("it is taken");
                }
                Err(error) => {
                    let refused = format!("{error:#}");
                    ensure!(refused.contains("at most 40 characters"), "{refused}");
                    Ok(())
                }
            }
        })
        .await?;
    }
    Ok(())
}

fn nothing_left(platform: &Platform, operator: &Operator) -> anyhow::Result<()> {
    let log = operator.log();
    // The beginning of every token, which is JSON.
    ensure!(!log.contains("eyJ"), "a token is in the log");
    for entry in std::fs::read_dir(platform.bed.folder())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("portreeve-helm-")) {
            let left = std::fs::read_dir(path.join("runs"))?.count();
            ensure!(left == 0, "{left} runs have left files in {}", path.display());
        }
    }
    ensure!(!log.contains("the API server refuses") && !log.contains("forbidden"), "a permission is missing");
    Ok(())
}

/// A Tenant's spec with overrides of the StatefulSet.
fn overrides(stateful_set: Value) -> Value {
    let mut spec = json!({"vcluster": {"valuesOverrides": {"controlPlane": {}}}});
    spec["vcluster"]["valuesOverrides"]["controlPlane"]["statefulSet"] = stateful_set;
    spec
}

/// The values with which the chart was installed last.
async fn values(bed: &Bed, tenant: &str) -> anyhow::Result<Value> {
    let name = format!("kubespaces-tenant-{tenant}/{tenant}-values");
    let map = bed.get("v1", "ConfigMap", &name).await?.with_context(|| format!("{name} is not there"))?;
    Ok(serde_json::from_str(map["data"]["values"].as_str().unwrap_or_default())?)
}

async fn wait_values(bed: &Bed, tenant: &str, what: &str, holds: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
    eventually(format!("{tenant} is installed with {what}"), WAY, async || {
        let values = values(bed, tenant).await?;
        ensure!(holds(&values), "the values are {values}");
        Ok(())
    })
    .await
}

/// The records of a release.
async fn revisions(bed: &Bed, tenant: &str) -> anyhow::Result<Vec<String>> {
    let secrets: Api<Secret> = Api::namespaced(bed.client(), &format!("kubespaces-tenant-{tenant}"));
    let records = secrets.list(&ListParams::default().fields("type=helm.sh/release.v1")).await?;
    Ok(records.iter().map(ResourceExt::name_any).collect())
}
