//! Which namespace a tenant has, and which name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use portreeve_api::names::{self, MAX_LABEL_VALUE, labels, tenant as derived};
use portreeve_names::is_dns_label;

use super::Tenant;
use crate::claim::OwnerKind;
use crate::condition::{Finding, Reason};
use crate::object::{Live, Maker};
use crate::view::View;

/// The longest name of a Tenant: names that derive from it stay DNS labels (Kubespaces' own API has the same limit).
const MAX_TENANT_NAME: usize = 40;

/// Why nothing is made for a tenant, if nothing is. `holders` are [`namespace_holders`].
pub(super) fn validate(
    view: &View<'_>,
    tenant: &Tenant<'_>,
    deprecated: Option<&Finding>,
    holders: &BTreeMap<String, String>,
) -> Option<Finding> {
    if deprecated.is_none() && !is_valid_name(tenant.name) {
        return Some(Reason::InvalidSpec.because(format!(
            "the name of a Tenant must be a DNS label (no dots) of at most {MAX_TENANT_NAME} characters: \
             delete this one and make another"
        )));
    }
    let namespace = &tenant.namespace;
    let failed = |why: &str| Some(Reason::NamespaceFailed.because(format!("namespace {namespace} {why}")));
    if !is_dns_label(namespace) {
        return failed("is no valid name: it must be a DNS label");
    }
    if is_protected(view, namespace) {
        return failed("is the platform's own: choose another spec.targetNamespace");
    }
    if holders.get(namespace).is_some_and(|holder| holder != tenant.name) {
        return failed("belongs to another Tenant: choose another spec.targetNamespace");
    }
    match view.namespace(namespace) {
        Some(found) if !belongs_to(found, tenant) => failed(&format!(
            "is there and is not this tenant's: choose another, or hand it over with the label {}={}",
            labels::TENANT,
            tenant.name
        )),
        Some(found) if found.metadata.deletion_timestamp.is_some() => {
            failed("is being deleted: wait until it is gone, or choose another spec.targetNamespace")
        }
        _ => None,
    }
}

/// What is said of a tenant whose name is none that a new one could have, but that was served before.
pub(super) fn deprecation(view: &View<'_>, tenant: &Tenant<'_>) -> Option<Finding> {
    let was_served = || {
        let is_recorded = tenant.status().is_some_and(|status| !status.claims.is_empty());
        let is_made = |found: &Namespace| matches!(Live::Namespace(found).maker(), Maker::Uid(..));
        is_recorded
            || view.namespace(&tenant.namespace).is_some_and(|found| is_made(found) && belongs_to(found, tenant))
    };
    // A longer one is not even the value of a label, by which everything of a tenant is found.
    let is_tolerable = !is_valid_name(tenant.name) && tenant.name.len() <= MAX_LABEL_VALUE;
    (is_tolerable && was_served()).then(|| {
        Reason::NameDeprecated.because(format!(
            "the name of a Tenant must be a DNS label (no dots) of at most {MAX_TENANT_NAME} characters: this one is served \
             as before, as long as its names overlap nobody else's; move to a Tenant with another name"
        ))
    })
}

/// Whether the apps' names of a tenant whose name has dots would be under those of another, or the other way round.
pub(super) fn overlaps(name: &str, other: &str) -> bool {
    let is_under = |inner: &str, outer: &str| inner.strip_suffix(outer).is_some_and(|rest| rest.ends_with('.'));
    is_under(name, other) || is_under(other, name)
}

pub(super) fn is_valid_name(name: &str) -> bool {
    is_dns_label(name) && name.len() <= MAX_TENANT_NAME
}

/// Namespaces that no tenant may have, whatever their labels say.
fn is_protected(view: &View<'_>, namespace: &str) -> bool {
    let config = &view.world.config;
    let gateways = [
        config.tenant_api.as_ref().map(|api| api.gateway_namespace.as_str()),
        config.tenant_apps.as_ref().map(|apps| apps.gateway_namespace.as_str()),
        Some(names::GATEWAY_NAMESPACE),
    ];
    namespace == "default"
        || namespace.starts_with("kube-")
        || gateways.contains(&Some(namespace))
        || config.protected_namespaces.iter().any(|protected| protected == namespace)
}

/// Made for the tenant, or handed over to it by its label alone.
pub(super) fn belongs_to(namespace: &Namespace, tenant: &Tenant<'_>) -> bool {
    if let Maker::Uid(kind, uid) = Live::Namespace(namespace).maker() {
        return kind == OwnerKind::Tenant && uid == tenant.identity().uid;
    }
    let metadata = &namespace.metadata;
    let controlled = metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(labels::TENANT));
    !controlled && label.is_some_and(|label| label == tenant.name)
}

/// The namespaces that were made for a tenant, or in which a release of its is, beside the one that it asks for.
pub(super) fn former_namespaces<'a>(view: &View<'a>, tenant: &Tenant<'_>) -> impl Iterator<Item = &'a str> {
    let with_release = view.namespaces_with_release(&derived::release(tenant.name));
    view.world.namespaces.iter().filter_map(move |namespace| {
        let name = namespace.metadata.name.as_deref()?;
        let is_made = matches!(Live::Namespace(namespace).maker(), Maker::Uid(..));
        let is_leaving = namespace.metadata.deletion_timestamp.is_some();
        let is_former = belongs_to(namespace, tenant) && (is_made || with_release.contains(name));
        (name != tenant.namespace && is_former && !is_leaving).then_some(name)
    })
}

/// Which tenant has each namespace that is asked for: the one that it belongs to already, else the oldest.
///
/// `tenants` are in order of age.
pub(super) fn namespace_holders(view: &View<'_>, tenants: &[Tenant<'_>]) -> BTreeMap<String, String> {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    for tenant in tenants {
        let has_it = view.namespace(&tenant.namespace).is_some_and(|namespace| belongs_to(namespace, tenant));
        if has_it || (is_valid_name(tenant.name) && !holders.contains_key(&tenant.namespace)) {
            holders.insert(tenant.namespace.clone(), tenant.name.to_owned());
        }
    }
    holders
}
