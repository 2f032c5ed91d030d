//! Owners that are on record but cannot be read: they claim what they hold, and get nothing new.

use std::sync::Arc;

use portreeve_api as api;
use portreeve_names::HostPattern;

use crate::claim::{Claim, GatewayName, Incumbency, Owner, Seat, Usage};
use crate::docket::Docket;
use crate::gateway::{HTTP_PORT, HTTPS_PORT, SharedGateway};
use crate::view::View;

/// Files what absent owners hold, so that it is theirs when they can be read again.
pub(crate) fn lower(view: &View<'_>, docket: &mut Docket) {
    for absent in &view.world.absent {
        let owner = Arc::new(absent.owner.clone());
        let claims =
            absent.grants.iter().enumerate().filter_map(|(position, grant)| claim(view, &owner, position, grant));
        for claim in claims {
            docket.file(claim);
        }
    }
}

fn claim(view: &View<'_>, owner: &Arc<Owner>, position: usize, grant: &api::Claim) -> Option<Claim> {
    let held = Incumbency::Since(grant.since.0);
    let seat = grant.gateway.as_ref().zip(grant.port).map(|(gateway, port)| {
        let gateway = GatewayName::new(&gateway.namespace, &gateway.name);
        Seat { usage: usage(view.gateway(&gateway), port), gateway, port, port_held: held }
    });
    let hosts = HostPattern::parse_optional(grant.name.as_deref()).ok()?;
    Some(Claim { owner: owner.clone(), position, hosts, name_held: held, seat })
}

/// The record does not say whether the port was shared. Whoever shared it is on record too and comes first; nobody else
/// gets in.
fn usage(gateway: Option<SharedGateway<'_>>, port: u16) -> Usage {
    let is_http =
        [HTTP_PORT, HTTPS_PORT].contains(&port) || gateway.is_some_and(|gateway| gateway.serves_http_on(port));
    if is_http { Usage::Shared } else { Usage::Exclusive }
}
