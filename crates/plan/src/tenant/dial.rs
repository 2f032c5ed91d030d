//! Whether a tenant's API server is reached under its public name: what the shell is to dial, and what came of it.

use portreeve_api::names::tenant as derived;

use super::{Rendered, TenantCase};
use crate::condition::{Finding, Reason};
use crate::dials::not_covered;
use crate::gateway::HTTPS_PORT;
use crate::output::ApiServerDial;
use crate::tenancy::{DialResult, TenantApi};
use crate::view::View;

/// What is to be dialled, by host name.
pub(crate) fn dials<'c, 'a: 'c>(
    view: &View<'a>,
    cases: impl Iterator<Item = (&'c TenantCase<'a>, &'c Rendered)>,
) -> Vec<ApiServerDial> {
    let Some(api) = &view.world.config.tenant_api else { return Vec::new() };
    let mut dials: Vec<ApiServerDial> = cases.filter_map(|(case, rendered)| dial(view, api, case, rendered)).collect();
    dials.sort_by(|left, right| left.host.cmp(&right.host));
    dials
}

/// Only once there is a route and somebody behind it.
fn dial(view: &View<'_>, api: &TenantApi, case: &TenantCase<'_>, rendered: &Rendered) -> Option<ApiServerDial> {
    rendered.api_parent.as_ref()?;
    let (tenant, gateway) = (&case.tenant, view.gateway(&api.gateway())?);
    let service = derived::api_service(tenant.name);
    let data_plane = view.data_plane(&api.gateway_namespace, &api.gateway_name);
    view.has_endpoint(&tenant.namespace, &service).then(|| ApiServerDial {
        tenant: tenant.identity().object_ref(),
        host: derived::api_hostname(tenant.name, &api.domain),
        service: (tenant.namespace.clone(), service, derived::API_PORT),
        data_plane: data_plane.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        addresses: gateway.addresses(),
        port: super::lower::api_listener_port(gateway, api).unwrap_or(HTTPS_PORT),
    })
}

/// `APIServerReachable`: never True unproved.
pub(super) fn reachable(view: &View<'_>, api: &TenantApi, case: &TenantCase<'_>, rendered: &Rendered) -> Finding {
    if dial(view, api, case, rendered).is_none() {
        return Reason::Pending.because("waiting for the API server and a route to it");
    }
    match view.world.dialled.get(&derived::api_hostname(case.tenant.name, &api.domain)) {
        None => Reason::Pending.because("the API server has not been dialled under its public name yet"),
        Some(DialResult::Proved) => {
            Reason::ApiServerReached.because("the API server answers under its public name with its own certificate")
        }
        Some(DialResult::SanMissing(names)) => Reason::SanMissing.because(not_covered(names)),
        Some(DialResult::Terminated(why)) => Reason::Terminated.because(why),
        Some(DialResult::NoRoute(why)) => Reason::NoRoute.because(why),
        Some(DialResult::ConnectFailed(why)) => Reason::ConnectFailed.because(why),
    }
}
