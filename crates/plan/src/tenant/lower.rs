use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Namespace;
use portreeve_api::names::{self, labels, tenant as derived};
use portreeve_names::{HostPattern, is_dns_label};
use serde_json::Value;

use super::Tenant;
use crate::arbitrate::Rooms;
use crate::claim::{Claim, GatewayName, Incumbency, OwnerKind, Seat, Usage};
use crate::condition::{Finding, Reason};
use crate::differ::owned_by_us;
use crate::docket::{Docket, Record};
use crate::gateway::{HTTPS_PORT, SharedGateway};
use crate::object::{Live, Maker};
use crate::tenancy::TenantApi;
use crate::view::View;

/// The longest name of a Tenant: names that derive from it stay DNS labels (Kubespaces' own API has the same limit).
const MAX_TENANT_NAME: usize = 40;

/// A tenant and what it claims.
pub(crate) struct TenantCase<'a> {
    pub(crate) tenant: Tenant<'a>,
    /// Nothing is made for the tenant.
    pub(crate) refusal: Option<Finding>,
    /// The name of its API server; absent where the platform serves none.
    pub(crate) api: Option<NameCase>,
    /// The names of its apps; absent where the platform serves none.
    pub(crate) apps: Option<NameCase>,
}

/// One name, or wildcard, that a tenant is to be served under.
pub(crate) struct NameCase {
    /// Absent where the tenant may claim nothing, or the name is none.
    pub(crate) claim: Option<usize>,
    pub(crate) refusal: Option<Finding>,
    pub(crate) gateway: GatewayName,
}

/// What all tenants claim, in the order in which they are given.
pub(crate) fn lower<'a>(view: &View<'a>, tenants: Vec<Tenant<'a>>, docket: &mut Docket) -> Vec<TenantCase<'a>> {
    let holders = namespace_holders(view, &tenants);
    let cases = tenants.into_iter().map(|tenant| {
        let refusal = validate(view, &tenant, &holders);
        let config = &view.world.config;
        let mut case = TenantCase { refusal, api: None, apps: None, tenant };
        let refused = case.refusal.is_some();
        case.api = config.tenant_api.as_ref().map(|api| {
            let (hosts, gateway) = (derived::api_hostname(case.tenant.name, &api.domain), api.gateway());
            let port = view.gateway(&gateway).and_then(|gateway| api_listener_port(gateway, api)).unwrap_or(HTTPS_PORT);
            name_case(view, &case.tenant, (API, &hosts), (gateway, port), docket, refused)
        });
        case.apps = config.tenant_apps.as_ref().map(|apps| {
            let hosts = derived::apps_domain(case.tenant.name, &apps.domain);
            name_case(view, &case.tenant, (APPS, &hosts), (apps.gateway(), HTTPS_PORT), docket, refused)
        });
        case
    });
    cases.collect()
}

/// Place and use of each of a tenant's two claims.
const API: (usize, Usage) = (0, Usage::Borrowed);
const APPS: (usize, Usage) = (1, Usage::Entry);

/// Of a tenant that is refused, only names that it holds are claimed, and no place.
fn name_case(
    view: &View<'_>,
    tenant: &Tenant<'_>,
    ((position, usage), hosts): ((usize, Usage), &str),
    (gateway, port): (GatewayName, u16),
    docket: &mut Docket,
    refused: bool,
) -> NameCase {
    let nothing = |gateway, refusal| NameCase { claim: None, refusal, gateway };
    if tenant.is_leaving() {
        return nothing(gateway, None);
    }
    let hosts = match HostPattern::parse(hosts) {
        Ok(hosts) => hosts,
        Err(error) => {
            let refusal = Reason::InvalidSpec.because(format!("the platform's domain makes no host name: {error}"));
            return nothing(gateway, Some(refusal));
        }
    };
    let record = Record::of(tenant.status().map(|status| &*status.claims));
    let legacy = legacy(view, tenant, &gateway, usage);
    let name_held = record.name_held(&hosts).min(legacy);
    if refused && name_held.recorded().is_none() {
        return nothing(gateway, None);
    }
    let seat = (!refused).then(|| {
        let port_held = record.port_held(&gateway, port, &hosts).min(legacy);
        Seat { gateway: gateway.clone(), port, usage, port_held }
    });
    let claim = docket.file(Claim { owner: tenant.owner.clone(), position, name_held, hosts, seat });
    NameCase { claim: Some(claim), refusal: None, gateway }
}

/// The entry that the former operator, or Portreeve before its record was lost, has on the Gateway.
fn legacy(view: &View<'_>, tenant: &Tenant<'_>, gateway: &GatewayName, usage: Usage) -> Incumbency {
    let served = view.gateway(gateway).and_then(|gateway| gateway.section(&derived::apps_listener(tenant.name)));
    if usage == Usage::Entry && served.is_some() { Incumbency::Legacy } else { Incumbency::None }
}

/// The port of the listener for API servers: the named one, else the first that passes TLS through.
fn api_listener_port(gateway: SharedGateway<'_>, api: &TenantApi) -> Option<u16> {
    let listener = match &api.section {
        Some(section) => gateway.section(section),
        None => gateway.object.spec.listeners.iter().find(|listener| listener.protocol == "TLS"),
    };
    u16::try_from(listener?.port).ok()
}

fn validate(view: &View<'_>, tenant: &Tenant<'_>, holders: &BTreeMap<String, String>) -> Option<Finding> {
    if !is_valid_name(tenant.name) {
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
        _ => None,
    }
}

fn is_valid_name(name: &str) -> bool {
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
    namespace == "default" || namespace.starts_with("kube-") || gateways.contains(&Some(namespace))
}

/// Made for the tenant, or handed over to it by its label alone.
fn belongs_to(namespace: &Namespace, tenant: &Tenant<'_>) -> bool {
    if let Maker::Uid(kind, uid) = Live::Namespace(namespace).maker() {
        return kind == OwnerKind::Tenant && uid == tenant.identity().uid;
    }
    let metadata = &namespace.metadata;
    let controlled = metadata.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(labels::TENANT));
    !controlled && label.is_some_and(|label| label == tenant.name)
}

/// Which tenant has each namespace that is asked for: the one that it belongs to already, else the oldest.
///
/// `tenants` are in order of age.
fn namespace_holders(view: &View<'_>, tenants: &[Tenant<'_>]) -> BTreeMap<String, String> {
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    for tenant in tenants.iter().filter(|tenant| is_valid_name(tenant.name)) {
        let has_it = view.namespace(&tenant.namespace).is_some_and(|namespace| belongs_to(namespace, tenant));
        if has_it || !holders.contains_key(&tenant.namespace) {
            holders.insert(tenant.namespace.clone(), tenant.name.to_owned());
        }
    }
    holders
}

/// How many entries of tenants each Gateway can take: what others have on it, and who has no claim, counts.
pub(crate) fn rooms(view: &View<'_>, cases: &[TenantCase<'_>]) -> Rooms {
    let Some(apps) = &view.world.config.tenant_apps else { return Rooms::new() };
    let gateway = apps.gateway();
    let wanted: BTreeSet<String> = cases.iter().map(|case| derived::apps_listener(case.tenant.name)).collect();
    let foreign = view.gateway(&gateway).map_or(0, |gateway| {
        let ours = own_entries(gateway);
        let entries = gateway.object.spec.listeners.iter().map(|listener| listener.name.as_str());
        entries.filter(|name| !wanted.contains(*name) && !ours.contains(*name)).count()
    });
    Rooms::from([(gateway, names::MAX_LISTENERS.saturating_sub(foreign))])
}

/// The entries of a Gateway that Portreeve has applied.
pub(super) fn own_entries(gateway: SharedGateway<'_>) -> BTreeSet<String> {
    let mut entries = BTreeSet::new();
    for fields in owned_by_us(gateway.object.metadata.managed_fields.as_deref()) {
        let fields = fields.to_value();
        let keys = fields["f:spec"]["f:listeners"].as_object().into_iter().flat_map(|listeners| listeners.keys());
        let names = keys.filter_map(|key| serde_json::from_str::<Value>(key.strip_prefix("k:")?).ok());
        entries.extend(names.filter_map(|key| Some(key["name"].as_str()?.to_owned())));
    }
    entries
}
