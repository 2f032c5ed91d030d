//! Tenants as a platform has them that provisions virtual clusters itself, with stand-ins for all that is not the operator's.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use kube::Client;
use kube::api::{Api, DynamicObject};
use portreeve_controller::kind::{Kind, KindName};
use portreeve_testkit::{Bed, Channel, Operator, fixtures};
use serde_json::{Value, json};

use super::stub::Stub;

/// API version of Tenant.
pub(crate) const TENANTS: &str = "kubespaces.io/v1alpha1";

/// The namespace of tenants' Gateways, and the first of those for apps.
const GATEWAYS: &str = fixtures::TENANT_GATEWAYS;
const APPS_GATEWAY: &str = "kubespaces-apps";

/// What the operator is told beside its settings.
const ARGUMENTS: [&str; 4] = [
    "--tenant-api-domain=example.test",
    "--tenant-apps-domain=example.test",
    "--tenant-apps-cluster-issuer=stub",
    "--tenant-provisioner=external",
];

/// A cluster with the tenants' Gateways and the operator, which is ready; a stub acknowledges all at once, and gives every
/// tenant the Service of an API server.
pub(crate) struct TenantPlatform {
    pub(crate) operator: Operator,
    _stub: Stub,
    // Ended after what uses it: fields are dropped in this order.
    pub(crate) bed: Bed,
}

impl TenantPlatform {
    /// With so many Gateways for apps.
    pub(crate) async fn start(operator: &Path, shards: usize) -> anyhow::Result<Self> {
        let bed = Bed::builder().with_controller_manager().gateway_api(Channel::Standard).start().await?;
        bed.define_own().await?;
        bed.define("cert-manager", |_| true).await?;
        bed.apply(&fixtures::namespace(GATEWAYS)).await?;
        bed.apply(&fixtures::tenant_api_gateway("kubespaces-api", "Same")).await?;
        for shard in shard_names(shards) {
            bed.apply(&fixtures::tenant_apps_gateway(&shard, 1)).await?;
        }
        let stub = Stub::for_tenants(&bed.client());
        let settings = bed.folder().join("tenants.yaml");
        let more: Vec<_> = shard_names(shards).skip(1).collect();
        fs::write(&settings, json!({"apps": {"moreGateways": more}}).to_string())?;
        let settings = format!("--tenant-settings={}", settings.display());
        let arguments = [&ARGUMENTS[..], &[&settings]].concat();
        let mut operator = Operator::start(&bed, "operator", operator, &bed.kubeconfig(), &arguments)?;
        operator.wait_ready().await?;
        Ok(Self { operator, _stub: stub, bed })
    }
}

/// Gateways for apps.
pub(crate) fn shard_names(count: usize) -> impl Iterator<Item = String> {
    let others = (2..=count).map(|number| format!("{APPS_GATEWAY}-{number}"));
    std::iter::once(APPS_GATEWAY.to_owned()).chain(others)
}

/// The tenants of these numbers.
pub(crate) fn tenants(numbers: Range<usize>) -> Vec<Value> {
    let tenant = |number| {
        json!({"apiVersion": TENANTS, "kind": "Tenant", "metadata": {"name": tenant_name(number)},
            "spec": {"owner": "bench@example.test"}})
    };
    numbers.map(tenant).collect()
}

/// The name of the tenant of a number.
pub(crate) fn tenant_name(number: usize) -> String {
    format!("tenant-{number:03}")
}

/// The names of the tenants that have a listener on a Gateway, and how many listeners that has.
pub(crate) async fn tenants_on(client: &Client, gateway: &str) -> anyhow::Result<(Vec<String>, usize)> {
    let kind = Kind::of(KindName::Gateway);
    let resource = kind.resource(kind.versions.first().copied().unwrap_or_default());
    let gateways: Api<DynamicObject> = Api::namespaced_with(client.clone(), GATEWAYS, &resource);
    let found = gateways.get(gateway).await.with_context(|| format!("failed to read Gateway {gateway}"))?;
    let listeners = found.data["spec"]["listeners"].as_array().cloned().unwrap_or_default();
    let names = listeners.iter().filter_map(|listener| listener["name"].as_str()?.strip_prefix("t-"));
    Ok((names.map(str::to_owned).collect(), listeners.len()))
}
