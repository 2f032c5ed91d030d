use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use portreeve_api::names::{self, labels, tenant as derived};
use portreeve_names::{HostPattern, is_dns_label};

use super::Tenant;
use super::moving::{self, Move};
use super::shards::Shards;
use crate::claim::{Claim, GatewayName, Incumbency, OwnerKind, Seat, Usage};
use crate::condition::{Finding, Reason};
use crate::docket::{Docket, Record};
use crate::gateway::{HTTPS_PORT, SharedGateway};
use crate::object::{Live, Maker};
use crate::tenancy::{Placement, TenantApi, TenantApps};
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
    /// The second Gateway for the names of its apps, while it moves.
    pub(crate) second: Option<NameCase>,
    /// Where it moves to or from, or why it does not though it should.
    pub(crate) moving: Option<Result<Move, Finding>>,
}

/// One name, or wildcard, that a tenant is to be served under.
pub(crate) struct NameCase {
    /// Absent where the tenant may claim nothing, or the name is none.
    pub(crate) claim: Option<usize>,
    pub(crate) refusal: Option<Finding>,
    pub(crate) gateway: GatewayName,
}

/// What all tenants claim, in the order in which they are given, which is that of their age.
pub(crate) fn lower<'a>(
    view: &View<'a>,
    tenants: Vec<Tenant<'a>>,
    docket: &mut Docket,
) -> (Vec<TenantCase<'a>>, Shards<'a>) {
    let holders = namespace_holders(view, &tenants);
    let refusals: Vec<_> = tenants.iter().map(|tenant| validate(view, tenant, &holders)).collect();
    let refused = tenants.iter().zip(&refusals).filter(|(_, refusal)| refusal.is_some()).map(|(tenant, _)| tenant.name);
    let shards = Shards::of(view, &tenants, &refused.collect());
    let cases = tenants.into_iter().zip(refusals).map(|(tenant, refusal)| {
        let config = &view.world.config;
        let mut case = TenantCase { refusal, api: None, apps: None, second: None, moving: None, tenant };
        let refused = case.refusal.is_some();
        case.api = config.tenant_api.as_ref().map(|api| {
            let (hosts, gateway) = (derived::api_hostname(case.tenant.name, &api.domain), api.gateway());
            let port = view.gateway(&gateway).and_then(|gateway| api_listener_port(gateway, api)).unwrap_or(HTTPS_PORT);
            name_case(view, &case.tenant, (API, Usage::Borrowed, &hosts), (gateway, port), docket, refused)
        });
        if let Some(apps) = &config.tenant_apps {
            lower_apps(view, &mut case, apps, &shards, docket);
        }
        case
    });
    (cases.collect(), shards)
}

/// Places of a tenant's claims.
const API: usize = 0;
const APPS: usize = 1;
const SECOND: usize = 2;

fn lower_apps(view: &View<'_>, case: &mut TenantCase<'_>, apps: &TenantApps, shards: &Shards<'_>, docket: &mut Docket) {
    let hosts = derived::apps_domain(case.tenant.name, &apps.domain);
    let usage = match apps.placement {
        Placement::Gateway => Usage::Entry,
        Placement::ListenerSet => Usage::Shared,
    };
    let home = shards.home(case.tenant.name);
    let (gateway, homeless) = match home {
        Some(Ok(home)) => (home.clone(), None),
        Some(Err(finding)) => (apps.gateway(), Some(finding.clone())),
        None => (apps.gateway(), None),
    };
    let refused = case.refusal.is_some() || homeless.is_some();
    let place = |gateway: &GatewayName| (gateway.clone(), HTTPS_PORT);
    let mut name = name_case(view, &case.tenant, (APPS, usage, &hosts), place(&gateway), docket, refused);
    name.refusal = name.refusal.or(homeless);
    case.apps = Some(name);
    let moving = home.and_then(|home| home.as_ref().ok());
    case.moving = moving.and_then(|home| moving::of(view, &case.tenant, home, shards, apps).transpose());
    if let Some(Ok(moving)) = &case.moving {
        let place = place(&moving.other);
        case.second = Some(name_case(view, &case.tenant, (SECOND, usage, &hosts), place, docket, false));
    }
}

/// Of a tenant that is refused, only names that it holds are claimed, and no place.
fn name_case(
    view: &View<'_>,
    tenant: &Tenant<'_>,
    (position, usage, hosts): (usize, Usage, &str),
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
pub(super) fn api_listener_port(gateway: SharedGateway<'_>, api: &TenantApi) -> Option<u16> {
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
