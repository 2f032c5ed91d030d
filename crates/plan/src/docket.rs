//! The claims of all owners, what was granted before, and what became of them.

use portreeve_api as api;
use portreeve_api::Time;
use portreeve_names::HostPattern;

use crate::arbitrate::{Rooms, arbitrate};
use crate::claim::{Claim, GatewayName, Incumbency, OwnerKind, Verdict};
use crate::condition::{Finding, Reason};
use crate::world::Zone;

/// The claims of all owners.
#[derive(Default)]
pub(crate) struct Docket {
    claims: Vec<Claim>,
}

/// The claims of all owners with their verdicts.
pub(crate) struct Judgement {
    claims: Vec<Claim>,
    verdicts: Vec<Verdict>,
}

/// What an owner's status says was granted to it.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    grants: &'a [api::Claim],
}

impl Docket {
    pub(crate) fn file(&mut self, claim: Claim) -> usize {
        self.claims.push(claim);
        self.claims.len() - 1
    }

    pub(crate) fn settle(self, rooms: &Rooms) -> Judgement {
        let verdicts = arbitrate(&self.claims, rooms);
        Judgement { claims: self.claims, verdicts }
    }
}

impl Judgement {
    /// Whether the owner may have the place that it claimed.
    pub(crate) fn is_granted(&self, claim: usize) -> bool {
        self.verdicts[claim] == Verdict::Granted && self.claims[claim].seat.is_some()
    }

    /// Whether a name is another owner's than those of `group`, or under a wildcard of theirs.
    pub(crate) fn is_of_another(&self, name: &HostPattern, group: (OwnerKind, &str)) -> bool {
        let held = self.claims.iter().zip(&self.verdicts).filter(|(_, verdict)| verdict.holds_name());
        held.map(|(claim, _)| claim)
            .any(|claim| claim.hosts != HostPattern::Any && claim.hosts.covers(name) && claim.owner.group() != group)
    }

    /// Why a claim is refused. Who holds a name or a port is told only within one namespace.
    pub(crate) fn refusal(&self, claim: usize) -> Option<Finding> {
        let Claim { hosts, seat, .. } = &self.claims[claim];
        let place =
            || seat.as_ref().map(|seat| format!("port {} of Gateway {}", seat.port, seat.gateway)).unwrap_or_default();
        match self.verdicts[claim] {
            Verdict::Granted => None,
            Verdict::NameTaken(_) => Some(
                Reason::HostnameConflict
                    .because(format!("{hosts}, or a name that overlaps it, belongs to another owner")),
            ),
            Verdict::PortTaken(_) => {
                Some(Reason::PortConflict.because(format!("{} belongs to another owner", place())))
            }
            Verdict::Duplicate(twin) => {
                let holder = self.claims[twin].owner.describe();
                Some(match hosts {
                    HostPattern::Any => Reason::PortConflict.because(format!("{holder} has {} already", place())),
                    _ => Reason::HostnameConflict.because(format!("{holder} has {hosts} on {} already", place())),
                })
            }
            Verdict::GatewayFull => Some(Reason::TooManyListeners.because(format!(
                "Gateway {} has no place left for another listener ({} at most)",
                seat.as_ref().map(|seat| seat.gateway.to_string()).unwrap_or_default(),
                api::names::MAX_LISTENERS,
            ))),
        }
    }

    /// What to record of these claims of one owner, in order of Gateway, port and name: new grants since now, known ones
    /// since ever. A name that is still the owner's but has no place now stays on record alone, as wide as it is claimed
    /// now: it is not lost with the place, and neither the place nor the rest of a wider name is kept from others.
    pub(crate) fn record(&self, claims: &[usize], now: &Time) -> Vec<api::Claim> {
        let mut record: Vec<api::Claim> = claims.iter().filter_map(|claim| self.grant(*claim, now)).collect();
        for (claim, kept) in claims.iter().filter_map(|claim| Some((*claim, self.kept_name(*claim)?))) {
            let Claim { hosts, name_held, .. } = &self.claims[claim];
            let is_part = matches!(name_held, Incumbency::Within(_));
            if !record.iter().any(|grant| grant.name == kept.name || (is_part && covers(grant, hosts))) {
                record.push(kept);
            }
        }
        record.sort_by_cached_key(|grant| (grant.gateway.clone(), grant.port, grant.name.clone()));
        record.dedup();
        record
    }

    fn kept_name(&self, claim: usize) -> Option<api::Claim> {
        let Claim { hosts, name_held, .. } = &self.claims[claim];
        let name = hosts.to_field().filter(|_| self.verdicts[claim].holds_name())?;
        let since = Time(name_held.recorded()?);
        Some(api::Claim { name: Some(name), gateway: None, port: None, since })
    }

    fn grant(&self, claim: usize, now: &Time) -> Option<api::Claim> {
        let Claim { hosts, name_held, seat, .. } = &self.claims[claim];
        let seat = seat.as_ref().filter(|_| self.is_granted(claim))?;
        let held = if *hosts == HostPattern::Any { seat.port_held } else { *name_held };
        Some(api::Claim {
            name: hosts.to_field(),
            gateway: Some(api::GatewayReference {
                name: seat.gateway.name.to_string(),
                namespace: seat.gateway.namespace.to_string(),
            }),
            port: Some(seat.port),
            since: held.recorded().map_or_else(|| now.clone(), Time),
        })
    }
}

impl<'a> Record<'a> {
    pub(crate) fn of(grants: Option<&'a [api::Claim]>) -> Self {
        Self { grants: grants.unwrap_or_default() }
    }

    /// How long the owner has held a name, on whatever port.
    pub(crate) fn name_held(self, hosts: &HostPattern) -> Incumbency {
        earliest(self.grants.iter().filter(|grant| grant.name.is_some()), hosts)
    }

    /// How long the owner has held a listener of this name on a port.
    pub(crate) fn port_held(self, gateway: &GatewayName, port: u16, hosts: &HostPattern) -> Incumbency {
        earliest(self.grants.iter().filter(|grant| is_on(grant, gateway, port)), hosts)
    }

    /// Whether the owner has anything on a port.
    pub(crate) fn holds_port(self, gateway: &GatewayName, port: u16) -> bool {
        self.grants.iter().any(|grant| is_on(grant, gateway, port))
    }
}

fn is_on(grant: &api::Claim, gateway: &GatewayName, port: u16) -> bool {
    let here = |there: &api::GatewayReference| there.namespace == *gateway.namespace && there.name == *gateway.name;
    grant.port == Some(port) && grant.gateway.as_ref().is_some_and(here)
}

fn earliest<'a>(grants: impl Iterator<Item = &'a api::Claim>, hosts: &HostPattern) -> Incumbency {
    let held = grants.filter_map(|grant| {
        let granted = HostPattern::parse_optional(grant.name.as_deref()).ok()?;
        if granted == *hosts {
            Some(Incumbency::Since(grant.since.0))
        } else {
            granted.covers(hosts).then_some(Incumbency::Within(grant.since.0))
        }
    });
    held.min().unwrap_or(Incumbency::None)
}

/// Whether a grant of a name is one of `hosts` too. One of a whole port is of no name.
fn covers(grant: &api::Claim, hosts: &HostPattern) -> bool {
    let name = grant.name.as_deref().and_then(|name| HostPattern::parse(name).ok());
    *hosts != HostPattern::Any && name.is_some_and(|name| name.covers(hosts))
}

/// Why a namespace may not claim a name, if the platform says so.
///
/// The most specific zone that covers the name decides; a wildcard also needs every zone below it.
pub(crate) fn zone_refusal(zones: &[Zone], namespace: &str, hosts: &HostPattern) -> Option<Finding> {
    if *hosts == HostPattern::Any {
        return None;
    }
    let permits = |zone: &&Zone| zone.namespaces.iter().any(|one| one == namespace);
    let over = zones.iter().filter(|zone| zone.names.covers(hosts)).max_by(|left, right| left.names.cmp(&right.names));
    let below = zones.iter().filter(|zone| hosts.covers(&zone.names) && !zone.names.covers(hosts));
    let refused = over.into_iter().chain(below).find(|zone| !permits(zone))?;
    Some(
        Reason::HostnameNotAllowed.because(format!(
            "the platform does not give names of the zone {} to namespace {namespace}",
            refused.names
        )),
    )
}
