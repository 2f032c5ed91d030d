//! NetworkPolicies on the way of a connection: which isolate an end of it, and whether they let it through.
//!
//! The rules are those of NetworkPolicy v1. Whether anything enforces them is not known here. A connection between Pods
//! has two hops, the egress of the one and the ingress of the other, and each is judged by itself. What the objects do
//! not tell, such as the address of a Pod, is never guessed: then the verdict says what it depends on.

mod admin;
#[cfg(test)]
mod admin_tests;
mod answer;
mod ip_block;
mod opening;
mod pods;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

pub use admin::AdminPolicy;
use admin::{Decision, decide};
use answer::Answer;
pub use answer::Doubt;
use k8s_openapi::api::networking::v1::NetworkPolicy;
pub(crate) use opening::opening;
pub use pods::{GatewayPods, PodLabels, Pods};
use serde::{Serialize, Serializer};

use crate::index::{Index, name_of};

/// Which way a connection goes, as seen from the end whose NetworkPolicies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// One hop of a TCP connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection<'a> {
    pub direction: Direction,
    /// The end whose NetworkPolicies count.
    pub own: &'a Pods,
    /// The other end.
    pub peer: &'a Pods,
    /// The port in the Pods that are connected to, by whichever of them.
    pub ports: &'a [PodPort],
}

/// A port in a Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodPort {
    /// Absent if only its name is known.
    pub number: Option<u16>,
    /// What the Pod calls it, if that is known.
    pub name: Option<String>,
    /// The only address at which it is connected to; absent: all of the Pods'.
    pub at: Option<IpAddr>,
}

/// What NetworkPolicies make of one hop. Of several addresses and ports the worst is told: the last in this order.
///
/// NetworkPolicies are named `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "verdict")]
pub enum Verdict {
    /// Nothing isolates this end, so everything may pass.
    NotIsolated,
    /// Both ends are the same Pod, and a Pod can always reach itself.
    SamePod,
    /// A policy of the administrator's lets it through, whatever NetworkPolicies say.
    Accepted {
        /// `kind name`.
        by: String,
    },
    /// It is let through.
    Allowed {
        /// Each of these is enough.
        by: BTreeSet<String>,
    },
    /// It cannot be known.
    Unknown {
        /// These isolate this end for certain.
        isolating: BTreeSet<String>,
        /// What it depends on.
        because: BTreeSet<Dependence>,
    },
    /// It is not let through.
    Blocked {
        /// These isolate this end, and no NetworkPolicy allows the hop.
        isolating: BTreeSet<String>,
    },
    /// A policy of the administrator's denies it, whatever NetworkPolicies say.
    Denied {
        /// `kind name`.
        by: String,
    },
}

/// A policy, and what it depends on that is not known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependence {
    /// `namespace/name` of a NetworkPolicy, `kind name` of an administrator's policy.
    pub policy: String,
    /// What is not known.
    pub doubt: Doubt,
}

/// One address and one port of a hop.
#[derive(Clone, Copy, Debug)]
struct Way<'a> {
    /// Of the other end.
    peer_address: Option<IpAddr>,
    port: &'a PodPort,
}

/// What one NetworkPolicy says about one way.
struct Opinion<'a> {
    policy: &'a NetworkPolicy,
    /// Whether it isolates this end.
    isolates: Answer,
    /// Whether it lets the way through, where it isolates.
    allows: Answer,
}

/// All policies there are.
#[derive(Clone, Copy)]
pub(crate) struct Policies<'a> {
    pub network: &'a [Arc<NetworkPolicy>],
    pub admin: &'a [AdminPolicy],
}

/// Judges one hop by all policies; the order in which they are given does not matter.
///
/// Administrators' policies of the tier above come first, those of the tier below last, and only where no NetworkPolicy
/// isolates this end.
pub(crate) fn judge<'a>(policies: Policies<'a>, index: &Index<'a>, connection: &Connection<'a>) -> Verdict {
    let of_tier = |baseline, way| decide(policies.admin.iter(), baseline, index, connection, way);
    let verdicts = connection.ways().into_iter().map(|way| {
        if connection.is_to_itself(way) {
            return Verdict::SamePod;
        }
        let above = Verdict::of(of_tier(false, way));
        above.unwrap_or_else(|| match by_network_policies(policies.network, index, connection, way) {
            Verdict::NotIsolated => Verdict::of(of_tier(true, way)).unwrap_or(Verdict::NotIsolated),
            verdict => verdict,
        })
    });
    verdicts.max().unwrap_or(Verdict::NotIsolated)
}

fn by_network_policies<'a>(
    policies: &'a [Arc<NetworkPolicy>],
    index: &Index<'a>,
    connection: &Connection<'a>,
    way: Way<'_>,
) -> Verdict {
    let opinions = policies.iter().map(|policy| Opinion {
        policy,
        isolates: rules::isolates(policy, connection),
        allows: rules::allows(policy, index, connection, way),
    });
    verdict(&opinions.filter(|opinion| opinion.isolates != Answer::No).collect::<Vec<_>>())
}

impl Verdict {
    /// Absent where administrators leave it to others.
    fn of(decision: Decision) -> Option<Self> {
        match decision {
            Decision::None => None,
            Decision::Accepted(by) => Some(Self::Accepted { by }),
            Decision::Denied(by) => Some(Self::Denied { by }),
            Decision::Unknown(because) => Some(Self::Unknown { isolating: BTreeSet::new(), because }),
        }
    }
}

/// From the opinions of those that isolate, or may.
fn verdict(opinions: &[Opinion<'_>]) -> Verdict {
    let names = |is_meant: fn(&Opinion<'_>) -> bool| -> BTreeSet<_> {
        opinions.iter().filter(|opinion| is_meant(opinion)).map(Opinion::policy_name).collect()
    };
    let isolating = names(|opinion| opinion.isolates == Answer::Yes);
    let allowing = names(|opinion| opinion.allows == Answer::Yes);
    // One that may isolate and allows lets through what it isolates; but where it does not, another may block.
    let is_sure = opinions.iter().any(|opinion| opinion.isolates == Answer::Yes && opinion.allows == Answer::Yes);
    if opinions.is_empty() {
        Verdict::NotIsolated
    } else if is_sure || allowing.len() == opinions.len() {
        Verdict::Allowed { by: allowing }
    } else if !isolating.is_empty() && opinions.iter().all(|opinion| opinion.allows == Answer::No) {
        Verdict::Blocked { isolating }
    } else {
        Verdict::Unknown { isolating, because: opinions.iter().flat_map(Opinion::dependences).collect() }
    }
}

impl<'a> Connection<'a> {
    /// The Pods that are connected to.
    fn destination(&self) -> &'a Pods {
        match self.direction {
            Direction::Egress => self.peer,
            Direction::Ingress => self.own,
        }
    }

    fn ways(&self) -> Vec<Way<'a>> {
        let known: Vec<_> = self.peer.addresses.iter().copied().map(Some).collect();
        let peers = if known.is_empty() { vec![None] } else { known };
        let to_peer = self.direction == Direction::Egress;
        let ways = self.ports.iter().flat_map(|port| match port.at.filter(|_| to_peer) {
            Some(at) => vec![Way { peer_address: Some(at), port }],
            None => peers.iter().map(|peer_address| Way { peer_address: *peer_address, port }).collect(),
        });
        ways.collect()
    }

    /// Whether both ends are one and the same Pod, as far as is known.
    fn is_to_itself(&self, way: Way<'_>) -> bool {
        let own = match (self.direction, way.port.at, self.own.addresses.as_slice()) {
            (Direction::Ingress, Some(at), _) => Some(at),
            (_, _, [only]) => Some(*only),
            _ => None,
        };
        own.is_some() && own == way.peer_address
    }
}

impl Opinion<'_> {
    fn policy_name(&self) -> String {
        let (namespace, name) = name_of(&self.policy.metadata);
        format!("{namespace}/{name}")
    }

    fn dependences(&self) -> BTreeSet<Dependence> {
        let doubts = [&self.isolates, &self.allows].into_iter().filter_map(|answer| match answer {
            Answer::Unknown(doubts) => Some(doubts),
            Answer::Yes | Answer::No => None,
        });
        doubts.flatten().map(|doubt| Dependence { policy: self.policy_name(), doubt: doubt.clone() }).collect()
    }
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names of cluster-scoped kinds have no slash.
        let kind = if self.policy.contains('/') { "NetworkPolicy " } else { "" };
        write!(f, "{kind}'{}' depends on {}", self.policy, self.doubt)
    }
}

impl Serialize for Dependence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
