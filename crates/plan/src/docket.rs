//! The claims of all owners, what was granted before, and what became of them.

use portreeve_api as api;
use portreeve_api::Time;
use portreeve_names::HostPattern;

use crate::arbitrate::{Rooms, arbitrate};
use crate::claim::{Claim, GatewayName, Incumbency, Verdict};
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

    /// Why a claim is refused. Who holds a name or a port is told only within one namespace.
    pub(crate) fn refusal(&self, claim: usize) -> Option<Finding> {
        let Claim { hosts, seat, .. } = &self.claims[claim];
        let place =
            seat.as_ref().map(|seat| format!("port {} of Gateway {}", seat.port, seat.gateway)).unwrap_or_default();
        match self.verdicts[claim] {
            Verdict::Granted => None,
            Verdict::NameTaken(_) => Some(
                Reason::HostnameConflict
                    .because(format!("{hosts}, or a name that overlaps it, belongs to another owner")),
            ),
            Verdict::PortTaken(_) => Some(Reason::PortConflict.because(format!("{place} belongs to another owner"))),
            Verdict::Duplicate(twin) => {
                let holder = self.claims[twin].owner.describe();
                Some(match hosts {
                    HostPattern::Any => Reason::PortConflict.because(format!("{holder} has {place} already")),
                    _ => Reason::HostnameConflict.because(format!("{holder} has {hosts} on {place} already")),
                })
            }
            Verdict::GatewayFull => Some(Reason::TooManyListeners.because(format!(
                "Gateway {} has no place left for another listener ({} at most)",
                seat.as_ref().map(|seat| seat.gateway.to_string()).unwrap_or_default(),
                api::names::MAX_LISTENERS,
            ))),
        }
    }

    /// What to record of these claims of one owner: new grants since now, known ones since ever. What an owner held
    /// stays recorded while the name is its own, so that it does not lose the name with the place.
    pub(crate) fn record(
        &self,
        claims: impl IntoIterator<Item = usize>,
        before: Record<'_>,
        now: &Time,
    ) -> Vec<api::Claim> {
        let mut record: Vec<api::Claim> = Vec::new();
        for claim in claims {
            let content = &self.claims[claim];
            let kept = || before.grants.iter().find(|grant| covers(grant, &content.hosts)).cloned();
            let grant = match &content.seat {
                Some(seat) if self.is_granted(claim) => {
                    let held = if content.hosts == HostPattern::Any { seat.port_held } else { content.name_held };
                    Some(api::Claim {
                        name: content.hosts.to_field(),
                        gateway: api::GatewayReference {
                            name: seat.gateway.name.to_string(),
                            namespace: seat.gateway.namespace.to_string(),
                        },
                        port: seat.port,
                        since: if let Incumbency::Since(since) = held { Time(since) } else { now.clone() },
                    })
                }
                _ if self.verdicts[claim].holds_name() => kept(),
                _ => None,
            };
            record.extend(grant.filter(|grant| !record.contains(grant)));
        }
        record
    }
}

impl<'a> Record<'a> {
    pub(crate) fn of(grants: Option<&'a [api::Claim]>) -> Self {
        Self { grants: grants.unwrap_or_default() }
    }

    /// How long the owner has held a name, by a grant of it or of a wildcard over it.
    pub(crate) fn name_held(self, hosts: &HostPattern) -> Incumbency {
        earliest(self.grants.iter().filter(|grant| covers(grant, hosts)))
    }

    /// How long the owner has held something on a port.
    pub(crate) fn port_held(self, gateway: &GatewayName, port: u16) -> Incumbency {
        earliest(self.grants.iter().filter(|grant| {
            grant.port == port && grant.gateway.namespace == *gateway.namespace && grant.gateway.name == *gateway.name
        }))
    }
}

fn covers(grant: &api::Claim, hosts: &HostPattern) -> bool {
    let name = grant.name.as_deref().and_then(|name| HostPattern::parse(name).ok());
    *hosts != HostPattern::Any && name.is_some_and(|name| name.covers(hosts))
}

fn earliest<'a>(grants: impl Iterator<Item = &'a api::Claim>) -> Incumbency {
    grants.map(|grant| Incumbency::Since(grant.since.0)).min().unwrap_or(Incumbency::None)
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
