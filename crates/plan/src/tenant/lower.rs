use portreeve_api::names::tenant as derived;
use portreeve_names::HostPattern;

use super::Tenant;
use super::moving::{self, Move};
use super::namespace::{deprecation, is_valid_name, namespace_holders, overlaps, validate};
use super::shards::Shards;
use crate::claim::{Claim, GatewayName, Incumbency, Seat, Usage};
use crate::condition::{Finding, Reason};
use crate::docket::{Docket, Record};
use crate::gateway::{HTTPS_PORT, SharedGateway};
use crate::tenancy::{Placement, TenantApi, TenantApps};
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
    let names: Vec<(&str, bool)> = tenants.iter().map(|tenant| (tenant.name, tenant.is_leaving())).collect();
    let judged = tenants.iter().map(|tenant| {
        let deprecation = deprecation(view, tenant);
        (validate(view, tenant, deprecation.as_ref(), &holders), deprecation)
    });
    let judged: Vec<_> = judged.collect();
    let refused = tenants.iter().zip(&judged).filter(|(_, (refusal, _))| refusal.is_some());
    let shards = Shards::of(view, &tenants, &refused.map(|(tenant, _)| tenant.name).collect());
    let cases = tenants.into_iter().zip(judged).enumerate().map(|(place, (tenant, (refusal, deprecation)))| {
        let config = &view.world.config;
        let mut case = TenantCase { refusal, deprecation, api: None, apps: None, second: None, moving: None, tenant };
        let refused = case.refusal.is_some();
        let overlapped = case.deprecation.as_ref().and_then(|_| overlapped(&names, place));
        case.api = config.tenant_api.as_ref().map(|api| {
            let (hosts, gateway) = (derived::api_hostname(case.tenant.name, &api.domain), api.gateway());
            let port = view.gateway(&gateway).and_then(|gateway| api_listener_port(gateway, api)).unwrap_or(HTTPS_PORT);
            name_case(view, &case.tenant, (API, Usage::Borrowed, &hosts), (gateway, port), docket, refused)
        });
        if let Some(apps) = &config.tenant_apps {
            match overlapped {
                Some(_) => case.apps = Some(NameCase { claim: None, refusal: overlapped, gateway: apps.gateway() }),
                None => lower_apps(view, &mut case, apps, &shards, docket),
            }
        }
        case
    });
    (cases.collect(), shards)
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
