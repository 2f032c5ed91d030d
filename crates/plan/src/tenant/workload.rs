//! Whether a tenant's virtual cluster can be used.

use portreeve_api::names::tenant as derived;

use super::Tenant;
use crate::app::has_key;
use crate::view::View;
use crate::world::Provisioner;

/// What is still waited for; nothing once the virtual cluster can be used.
///
/// The contract looks for a workload of the tenant's name and for its kubeconfig. Where the platform provisions, an API
/// server of any kind will do, such as Kamaji's or a plain one, and all that is known of it is its Service: an endpoint of
/// that is enough.
pub(super) fn waiting_for(view: &View<'_>, tenant: &Tenant<'_>) -> Option<String> {
    let (namespace, service) = (&tenant.namespace, derived::api_service(tenant.name));
    let is_external = matches!(view.world.config.provisioner, Provisioner::External | Provisioner::Nobody);
    if is_external && view.has_endpoint(namespace, &service) {
        return None;
    }
    let Some(workload) = workload(view, namespace, tenant.name) else {
        return Some(if is_external {
            format!("waiting for service {namespace}/{service} to have an endpoint")
        } else {
            format!("waiting for vCluster workload {namespace}/{} to appear", tenant.name)
        });
    };
    workload.err().or_else(|| kubeconfig(view, tenant))
}

/// Whether the workload is ready; `None` when there is none.
fn workload(view: &View<'_>, namespace: &str, name: &str) -> Option<Result<(), String>> {
    let (kind, wanted, ready) = if let Some(set) = view.stateful_set(namespace, name) {
        let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
        ("statefulset", set.spec.as_ref().and_then(|spec| spec.replicas), ready)
    } else {
        let deployment = view.deployment(namespace, name)?;
        let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas);
        ("deployment", deployment.spec.as_ref().and_then(|spec| spec.replicas), ready)
    };
    let (wanted, ready) = (wanted.unwrap_or(1), ready.unwrap_or_default());
    let is_ready = wanted > 0 && ready >= wanted;
    let waiting = || format!("waiting for {kind} {namespace}/{name}: {ready}/{wanted} replicas ready");
    Some(if is_ready { Ok(()) } else { Err(waiting()) })
}

fn kubeconfig(view: &View<'_>, tenant: &Tenant<'_>) -> Option<String> {
    let (namespace, name) = (&tenant.namespace, derived::kubeconfig_secret(tenant.name));
    match view.secret(namespace, &name) {
        None => Some(format!("waiting for kubeconfig secret {namespace}/{name}")),
        Some(secret) if !has_key(secret, derived::KUBECONFIG_KEY) => {
            Some(format!("kubeconfig secret {namespace}/{name} missing key {:?}", derived::KUBECONFIG_KEY))
        }
        Some(_) => None,
    }
}
