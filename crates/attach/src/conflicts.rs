//! Which listeners cannot be told apart, and who keeps the place.

use std::collections::HashMap;
use std::fmt;

use portreeve_names::HostPattern;
use portreeve_table::HostMap;

use crate::listener::{Family, Listener, ListenerFault};
use crate::owners::{Owner, OwnerKind};

/// A listener that cannot be told apart from another one of its port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    #[error("port {port} is taken for another protocol by {winner}; use another port")]
    Protocol { port: u16, winner: Winner },
    #[error("port {port} already has {hosts} in {winner}; use another host name or port")]
    Hostname { port: u16, hosts: Hosts, winner: Winner },
}

/// Who keeps the place, as far as the loser may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Winner {
    /// Nobody: listeners of one object that conflict all lose.
    Nobody,
    /// A listener of the same object.
    Sibling,
    Gateway,
    /// A ListenerSet of the loser's namespace, and its listener.
    Neighbour(String, String),
    /// Somebody whose objects the loser may not read.
    Hidden,
}

/// The host names of a listener, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosts(HostPattern);

impl Conflict {
    /// The reason of `Conflicted=True`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => "ProtocolConflict",
            Self::Hostname { .. } => "HostnameConflict",
        }
    }
}

impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("another listener of the same object, so none of them is accepted"),
            Self::Sibling => f.write_str("another listener of the same object"),
            Self::Gateway => f.write_str("a listener of the Gateway itself"),
            Self::Neighbour(set, listener) => write!(f, "listener '{listener}' of the ListenerSet '{set}'"),
            Self::Hidden => f.write_str("another ListenerSet of the Gateway"),
        }
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HostPattern::Any => f.write_str("a listener for every host name"),
            hosts => write!(f, "host name '{hosts}'"),
        }
    }
}

/// Marks the listeners that lose, Gateway by Gateway in order of precedence.
///
/// Within one object all that conflict lose ("MUST NOT pick one conflicting Listener as the winner"); against objects
/// that come before, the later one loses. What lost within its object keeps its claim, so that nobody takes over a
/// name because its owner wrote it twice. TCP is not supported: it loses to what is, and claims nothing.
pub(crate) fn mark<'a>(owners: &[Owner<'a>], listeners: &mut [Listener<'a>]) {
    for gateway in owners.chunk_by(|left, right| left.gateway_name == right.gateway_name) {
        let mut claims = Claims::default();
        for owner in gateway {
            claims.settle(owner, &mut listeners[owner.listeners.clone()]);
        }
    }
}

/// Marks the TLS listeners that have names in common with another one of their port (GEP-3567).
pub(crate) fn mark_overlaps(owners: &[Owner<'_>], listeners: &mut [Listener<'_>]) {
    let mut ports: HashMap<(&str, u16), HostMap<usize>> = HashMap::new();
    let is_tls = |listener: &Listener<'_>| listener.fault.is_none() && listener.protocol.family() == Some(Family::Tls);
    for (place, listener) in listeners.iter().enumerate().filter(|(_, listener)| is_tls(listener)) {
        let port = ports.entry((&owners[listener.owner].gateway_name, listener.port)).or_default();
        port.insert_first(listener.hosts.clone(), place);
    }
    for hosts in ports.values() {
        for (pattern, place) in hosts.iter() {
            for wider in wider(&pattern, hosts) {
                listeners[wider].overlaps = true;
                listeners[*place].overlaps = true;
            }
        }
    }
}

/// The entries whose pattern covers `pattern`, without its own.
fn wider(pattern: &HostPattern, hosts: &HostMap<usize>) -> Vec<usize> {
    let (HostPattern::Exact(name) | HostPattern::Wildcard(name)) = pattern else { return Vec::new() };
    let exact = hosts.get(&HostPattern::Exact(name.clone())).is_some();
    hosts.matching(Some(name)).skip(usize::from(exact)).copied().collect()
}

/// What is held on each port of one Gateway by the objects that came before.
#[derive(Default)]
struct Claims<'a> {
    ports: HashMap<u16, PortClaims<'a>>,
}

struct PortClaims<'a> {
    /// Absent: one object wants several at once, so nobody can have any.
    family: Option<Family>,
    holder: Holder<'a>,
    hosts: HashMap<HostPattern, Holder<'a>>,
}

#[derive(Clone, Copy)]
struct Holder<'a> {
    owner: OwnerKind,
    namespace: &'a str,
    name: &'a str,
    listener: &'a str,
}

/// What the listeners of one object want of one port.
#[derive(Default)]
struct Wishes {
    http: bool,
    tls: bool,
    hosts: HashMap<HostPattern, usize>,
}

impl<'a> Claims<'a> {
    fn settle(&mut self, owner: &Owner<'a>, own: &mut [Listener<'a>]) {
        let mut contenders: Vec<_> = own
            .iter_mut()
            .filter(|listener| listener.fault.is_none() && listener.protocol.family().is_some())
            .filter_map(|listener| match self.conflict(owner, listener) {
                Some(conflict) => {
                    listener.fault = Some(ListenerFault::Conflicted(conflict));
                    None
                }
                None => Some(listener),
            })
            .collect();
        let wishes = Wishes::by_port(&contenders);
        for listener in &mut contenders {
            listener.fault = wishes[&listener.port].conflict(listener).map(ListenerFault::Conflicted);
        }
        for listener in contenders {
            self.take(owner, listener, &wishes[&listener.port]);
        }
    }

    fn conflict(&self, owner: &Owner<'_>, listener: &Listener<'_>) -> Option<Conflict> {
        let port = self.ports.get(&listener.port)?;
        if port.family != listener.protocol.family() {
            return Some(Conflict::Protocol { port: listener.port, winner: port.holder.seen_by(owner) });
        }
        let holder = port.hosts.get(&listener.hosts)?;
        let hosts = Hosts(listener.hosts.clone());
        Some(Conflict::Hostname { port: listener.port, hosts, winner: holder.seen_by(owner) })
    }

    fn take(&mut self, owner: &Owner<'a>, listener: &Listener<'a>, wishes: &Wishes) {
        if listener.protocol.family() == Some(Family::Tcp) {
            return;
        }
        let (namespace, name) = owner.name();
        let holder = Holder { owner: owner.kind(), namespace, name, listener: listener.name };
        let family = if wishes.http && wishes.tls { None } else { listener.protocol.family() };
        let new = || PortClaims { family, holder, hosts: HashMap::new() };
        let port = self.ports.entry(listener.port).or_insert_with(new);
        port.hosts.entry(listener.hosts.clone()).or_insert(holder);
    }
}

impl Holder<'_> {
    fn seen_by(&self, loser: &Owner<'_>) -> Winner {
        match self.owner {
            OwnerKind::Gateway => Winner::Gateway,
            OwnerKind::ListenerSet if self.namespace == loser.name().0 => {
                Winner::Neighbour(self.name.to_owned(), self.listener.to_owned())
            }
            OwnerKind::ListenerSet => Winner::Hidden,
        }
    }
}

impl Wishes {
    fn by_port(listeners: &[&mut Listener<'_>]) -> HashMap<u16, Self> {
        let mut ports: HashMap<u16, Self> = HashMap::new();
        for listener in listeners {
            let port = ports.entry(listener.port).or_default();
            port.http |= listener.protocol.family() == Some(Family::Http);
            port.tls |= listener.protocol.family() == Some(Family::Tls);
            if listener.protocol.family() != Some(Family::Tcp) {
                *port.hosts.entry(listener.hosts.clone()).or_default() += 1;
            }
        }
        ports
    }

    fn conflict(&self, listener: &Listener<'_>) -> Option<Conflict> {
        let port = listener.port;
        let tcp = listener.protocol.family() == Some(Family::Tcp);
        if tcp && (self.http || self.tls) {
            return Some(Conflict::Protocol { port, winner: Winner::Sibling });
        }
        if self.http && self.tls {
            return Some(Conflict::Protocol { port, winner: Winner::Nobody });
        }
        let rivals = self.hosts.get(&listener.hosts).copied().unwrap_or_default();
        let hosts = Hosts(listener.hosts.clone());
        (!tcp && rivals > 1).then_some(Conflict::Hostname { port, hosts, winner: Winner::Nobody })
    }
}
