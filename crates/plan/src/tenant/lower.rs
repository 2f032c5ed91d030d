use std::collections::BTreeSet;

use portreeve_api::names::{self, tenant as derived};
use portreeve_names::HostPattern;
use serde_json::Value;

use super::Tenant;
use super::namespace::{deprecation, is_valid_name, namespace_holders, overlaps, validate};
use crate::arbitrate::Rooms;
use crate::claim::{Claim, GatewayName, Incumbency, Seat, Usage};
use crate::condition::{Finding, Reason};
use crate::differ::owned_by_us;
use crate::docket::{Docket, Record};
use crate::gateway::{HTTPS_PORT, SharedGateway};
use crate::tenancy::TenantApi;
use crate::view::View;

/// A tenant and what it claims.
pub(crate) struct TenantCase<'a> {
    pub(crate) tenant: Tenant<'a>,
    /// Nothing is made for the tenant.
    pub(crate) refusal: Option<Finding>,
    /// Its name is none that a new tenant could have; it is served nevertheless.
    pub(crate) deprecation: Option<Finding>,
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
    let names: Vec<(&str, bool)> = tenants.iter().map(|tenant| (tenant.name, tenant.is_leaving())).collect();
    let cases = tenants.into_iter().enumerate().map(|(place, tenant)| {
        let deprecation = deprecation(view, &tenant);
        let refusal = validate(view, &tenant, deprecation.as_ref(), &holders);
        let config = &view.world.config;
        let mut case = TenantCase { refusal, deprecation, api: None, apps: None, tenant };
        let refused = case.refusal.is_some();
        let overlapped = case.deprecation.as_ref().and_then(|_| overlapped(&names, place));
        case.api = config.tenant_api.as_ref().map(|api| {
            let (hosts, gateway) = (derived::api_hostname(case.tenant.name, &api.domain), api.gateway());
            let port = view.gateway(&gateway).and_then(|gateway| api_listener_port(gateway, api)).unwrap_or(HTTPS_PORT);
            name_case(view, &case.tenant, (API, &hosts), (gateway, port), docket, refused)
        });
        case.apps = config.tenant_apps.as_ref().map(|apps| {
            if overlapped.is_some() {
                return NameCase { claim: None, refusal: overlapped, gateway: apps.gateway() };
            }
            let hosts = derived::apps_domain(case.tenant.name, &apps.domain);
            name_case(view, &case.tenant, (APPS, &hosts), (apps.gateway(), HTTPS_PORT), docket, refused)
        });
        case
    });
    cases.collect()
}

/// Why a tenant whose name no new one could have may not have the names of its apps any more: another tenant's are above
/// or below them. `names` are those of all tenants, the oldest first, and whether they leave.
fn overlapped(names: &[(&str, bool)], place: usize) -> Option<Finding> {
    let (name, _) = names[place];
    let mut others = names.iter().enumerate().filter(|(_, (other, is_leaving))| !is_leaving && overlaps(name, other));
    let is_before = |(other, (name, _)): (usize, &(&str, bool))| other < place || is_valid_name(name);
    others.any(is_before).then(|| {
        Reason::HostnameConflict
            .because("the names of this tenant's apps overlap those of another: it needs another name")
    })
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
