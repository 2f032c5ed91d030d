//! All claims of all owners side by side: who holds which name, which port, which place.
//!
//! Three steps in order, each for the claims that the one before has let pass:
//!
//! 1. *Names.* A name has one owner, across all ports, Gateways and kinds of owner. Wildcards overlap with what they
//!    stand for, in both directions.
//! 2. *Ports.* An exclusive listener has its port on its Gateway alone; others share. One owner's own claims meet here
//!    too: two listeners of the same port and name would be refused by the gateway.
//! 3. *Places.* A Gateway has room for so many entries.
//!
//! In each step the holder comes first, then age, then kind, namespace and name. A name stays its owner's even while
//! the owner does not get the place that it wants.

mod name_index;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use portreeve_names::HostPattern;

use crate::claim::{Claim, GatewayName, Incumbency, OwnerKind, Seat, Usage, Verdict};
pub(crate) use name_index::NameIndex;

/// How many more entries each Gateway can take beside those of others; a Gateway that is not named takes none.
pub type Rooms = BTreeMap<GatewayName, usize>;

/// Settles every claim; the verdicts are in the order of the claims, and their content does not depend on it.
///
/// Takes time in proportion to the claims and the labels of their names, but for sorting.
pub fn arbitrate(claims: &[Claim], rooms: &Rooms) -> Vec<Verdict> {
    let mut hearing = Hearing { claims, groups: groups(claims), verdicts: vec![Verdict::Granted; claims.len()] };
    hearing.settle_names();
    hearing.settle_ports();
    hearing.settle_rooms(rooms);
    hearing.verdicts
}

struct Hearing<'a> {
    claims: &'a [Claim],
    /// A number for each claim's group, so that comparing them is cheap.
    groups: Vec<usize>,
    verdicts: Vec<Verdict>,
}

/// What is granted on one port of one Gateway.
#[derive(Default)]
struct PortHolders<'a> {
    /// The first claim of each of the first two groups.
    holders: Vec<usize>,
    exclusive: Option<usize>,
    /// Who has which name, and whether it is a listener of its own.
    listeners: HashMap<&'a HostPattern, usize>,
}

impl<'a> Hearing<'a> {
    fn settle_names(&mut self) {
        let mut index = NameIndex::default();
        let mut refused = Vec::new();
        for claim in self.in_order(|claim| Some(self.claims[claim].name_held)) {
            let (hosts, group) = (&self.claims[claim].hosts, self.groups[claim]);
            match index.conflict(group, hosts) {
                Some(_) => refused.push(claim),
                None => index.insert(claim, group, hosts),
            }
        }
        // The holder that is named is looked up when all are known: a younger holder that is recorded next time, and
        // so heard earlier, must not change what the loser was told.
        for claim in refused {
            if let Some(holder) = index.conflict(self.groups[claim], &self.claims[claim].hosts) {
                self.verdicts[claim] = Verdict::NameTaken(holder);
            }
        }
    }

    fn settle_ports(&mut self) {
        let mut ports: HashMap<(&GatewayName, u16), PortHolders<'a>> = HashMap::new();
        let mut refused = Vec::new();
        let loners = self.loners();
        for claim in self.in_order(|claim| self.port_right(claim, &loners)) {
            let Some(seat) = &self.claims[claim].seat else { continue };
            let port = ports.entry((&seat.gateway, seat.port)).or_default();
            match self.port_conflict(port, claim, seat.usage) {
                Some(_) => refused.push((claim, seat)),
                None => self.take_port(port, claim, seat.usage),
            }
        }
        for (claim, seat) in refused {
            let port = &ports[&(&seat.gateway, seat.port)];
            if let Some(refusal) = self.port_conflict(port, claim, seat.usage) {
                self.verdicts[claim] = refusal;
            }
        }
    }

    fn port_conflict(&self, port: &PortHolders<'_>, claim: usize, usage: Usage) -> Option<Verdict> {
        let foreign = |holder: &usize| self.groups[*holder] != self.groups[claim];
        if let Some(holder) = port.exclusive.filter(foreign) {
            return Some(Verdict::PortTaken(holder));
        }
        if usage == Usage::Exclusive
            && let Some(holder) = port.holders.iter().copied().find(foreign)
        {
            return Some(Verdict::PortTaken(holder));
        }
        let twin = *port.listeners.get(&self.claims[claim].hosts)?;
        let both_borrow = [twin, claim].iter().all(|claim| self.usage(*claim) == Some(Usage::Borrowed));
        (!both_borrow).then_some(Verdict::Duplicate(twin))
    }

    fn take_port(&self, port: &mut PortHolders<'a>, claim: usize, usage: Usage) {
        if port.holders.len() < 2 && port.holders.iter().all(|holder| self.groups[*holder] != self.groups[claim]) {
            port.holders.push(claim);
        }
        if usage == Usage::Exclusive {
            port.exclusive.get_or_insert(claim);
        }
        port.listeners.entry(&self.claims[claim].hosts).or_insert(claim);
    }

    fn settle_rooms(&mut self, rooms: &Rooms) {
        let mut left = rooms.clone();
        for claim in self.in_order(|claim| self.port_held(claim)) {
            let Some(Seat { gateway, usage: Usage::Entry, .. }) = &self.claims[claim].seat else { continue };
            match left.get_mut(gateway) {
                Some(room) if *room > 0 => *room -= 1,
                _ => self.verdicts[claim] = Verdict::GatewayFull,
            }
        }
    }

    /// The groups that hold a port and now want it alone.
    fn loners(&self) -> HashSet<(usize, &'a GatewayName, u16)> {
        let seats =
            self.claims.iter().zip(&self.groups).filter_map(|(claim, group)| Some((group, claim.seat.as_ref()?)));
        let alone = seats.filter(|(_, seat)| seat.usage == Usage::Exclusive && seat.port_held.recorded().is_some());
        alone.map(|(group, seat)| (*group, &seat.gateway, seat.port)).collect()
    }

    /// Who comes first on a port. Of the holders those that share it come before those that want it alone: these were
    /// granted it beside the others, so they shared it too and have changed their minds since, which drives nobody out.
    fn port_right(
        &self,
        claim: usize,
        loners: &HashSet<(usize, &GatewayName, u16)>,
    ) -> Option<(bool, bool, Incumbency)> {
        let Seat { gateway, port, port_held, .. } = self.claims[claim].seat.as_ref()?;
        let is_holder = port_held.recorded().is_some();
        Some((!is_holder, is_holder && loners.contains(&(self.groups[claim], gateway, *port)), *port_held))
    }

    fn port_held(&self, claim: usize) -> Option<Incumbency> {
        self.claims[claim].seat.as_ref().map(|seat| seat.port_held)
    }

    fn usage(&self, claim: usize) -> Option<Usage> {
        self.claims[claim].seat.as_ref().map(|seat| seat.usage)
    }

    /// The claims that are still granted and to which `held` applies, the one with the best right first.
    fn in_order<Held: Ord>(&self, held: impl Fn(usize) -> Option<Held>) -> Vec<usize> {
        let granted = (0..self.claims.len()).filter(|claim| self.verdicts[*claim] == Verdict::Granted);
        let mut order: Vec<(Held, usize)> = granted.filter_map(|claim| Some((held(claim)?, claim))).collect();
        order.sort_by(|(left_held, left), (right_held, right)| {
            left_held.cmp(right_held).then_with(|| by_age(&self.claims[*left], &self.claims[*right]))
        });
        order.into_iter().map(|(_, claim)| claim).collect()
    }
}

/// By the age of the owner; among claims of one owner, in the order in which it wrote them.
fn by_age(left: &Claim, right: &Claim) -> Ordering {
    left.owner.by_age(&right.owner).then_with(|| left.position.cmp(&right.position))
}

fn groups(claims: &[Claim]) -> Vec<usize> {
    let mut numbers: HashMap<(OwnerKind, &str), usize> = HashMap::new();
    claims
        .iter()
        .map(|claim| {
            let next = numbers.len();
            *numbers.entry(claim.owner.group()).or_insert(next)
        })
        .collect()
}
