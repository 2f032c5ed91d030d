//! Who may come in: places for connections, in total and for each peer, before and after it is known what they want.
//!
//! Whoever is in stays; where there is no place, the newcomer is refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::observe::{Limit, Places};
use crate::settings::Settings;

/// How many bits of an IPv6 address say whose it is: a network of its own is the least that anybody has.
const IPV6_NETWORK_BITS: u32 = 64;

/// Keeps count, and says who may come in.
pub(crate) struct Admission {
    limits: Limits,
    counts: Mutex<Counts>,
}

struct Limits {
    total: Places,
    peer: Places,
}

#[derive(Default)]
struct Counts {
    total: Places,
    /// Only those that have a place.
    peers: HashMap<IpAddr, Places>,
}

/// The place of one connection; it is free again when this is dropped.
pub(crate) struct Place {
    admission: Arc<Admission>,
    /// Whose it is, once that is known.
    peer: OnceLock<IpAddr>,
    waiting: AtomicBool,
}

impl Admission {
    pub(crate) fn new(settings: &Settings) -> Self {
        let total = Places { open: settings.max_connections, waiting: settings.max_waiting };
        let peer = Places { open: settings.max_connections_per_peer, waiting: settings.max_waiting_per_peer };
        Self { limits: Limits { total, peer }, counts: Mutex::default() }
    }

    /// A place for a connection of which nothing is known yet.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Place, Limit> {
        let mut counts = self.counts();
        counts.total.add(&self.limits.total).map_err(|limit| match limit {
            Full::Open => Limit::Connections,
            Full::Waiting => Limit::Waiting,
        })?;
        Ok(Place { admission: self.clone(), peer: OnceLock::new(), waiting: AtomicBool::new(true) })
    }

    /// What is taken at this moment.
    pub(crate) fn taken(&self) -> Places {
        self.counts().total
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Nothing here panics between two changes that belong together.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Counts it for its peer too, once and while it still waits.
    pub(crate) fn count_for(&self, peer: IpAddr) -> Result<(), Limit> {
        let (peer, mut counts) = (party(peer), self.admission.counts());
        if self.peer.get().is_some() {
            return Ok(());
        }
        let places = counts.peers.entry(peer).or_default();
        match places.add(&self.admission.limits.peer) {
            Ok(()) => {
                // Under the lock, so that nobody else can have set it.
                let _ = self.peer.set(peer);
                Ok(())
            }
            Err(full) => {
                counts.forget_if_empty(peer);
                Err(match full {
                    Full::Open => Limit::PeerConnections,
                    Full::Waiting => Limit::PeerWaiting,
                })
            }
        }
    }

    /// It is known what the connection wants: its name, where TLS goes through; else, with TLS behind it, its first request or
    /// bytes for a backend. From here on it keeps nobody from asking.
    pub(crate) fn settle(&self) {
        if self.waiting.swap(false, Ordering::Relaxed) {
            let mut counts = self.admission.counts();
            counts.total.waiting -= 1;
            if let Some(places) = self.peer.get().and_then(|peer| counts.peers.get_mut(peer)) {
                places.waiting -= 1;
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.settle();
        let mut counts = self.admission.counts();
        counts.total.open -= 1;
        if let Some(peer) = self.peer.get() {
            if let Some(places) = counts.peers.get_mut(peer) {
                places.open -= 1;
            }
            counts.forget_if_empty(*peer);
        }
    }
}

enum Full {
    Open,
    Waiting,
}

impl Places {
    fn add(&mut self, limit: &Self) -> Result<(), Full> {
        if self.open >= limit.open {
            return Err(Full::Open);
        }
        if self.waiting >= limit.waiting {
            return Err(Full::Waiting);
        }
        self.open += 1;
        self.waiting += 1;
        Ok(())
    }
}

impl Counts {
    fn forget_if_empty(&mut self, peer: IpAddr) {
        if self.peers.get(&peer).is_some_and(|places| places.open == 0) {
            self.peers.remove(&peer);
        }
    }
}

/// Who counts as one peer.
fn party(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let host_bits = u128::BITS - IPV6_NETWORK_BITS;
            Ipv6Addr::from_bits(address.to_bits() >> host_bits << host_bits).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(total: (usize, usize), peer: (usize, usize)) -> Arc<Admission> {
        Arc::new(Admission::new(&Settings {
            max_connections: total.0,
            max_waiting: total.1,
            max_connections_per_peer: peer.0,
            max_waiting_per_peer: peer.1,
            ..Settings::default()
        }))
    }

    fn enter(admission: &Arc<Admission>, peer: &str) -> Result<Place, Limit> {
        let peer = peer.parse().unwrap_or_else(|error| panic!("{peer}: {error}"));
        let place = admission.enter()?;
        place.count_for(peer)?;
        Ok(place)
    }

    #[test]
    fn each_limit_says_which_it_is_and_ends_with_who_leaves() {
        let few = admission((2, 9), (9, 9));
        let (first, _second) = (enter(&few, "192.0.2.1").unwrap(), enter(&few, "192.0.2.2").unwrap());
        assert_eq!(enter(&few, "192.0.2.3").err(), Some(Limit::Connections));
        drop(first);
        enter(&few, "192.0.2.3").unwrap();

        let one_waits = admission((9, 1), (9, 9));
        let first = enter(&one_waits, "192.0.2.1").unwrap();
        assert_eq!(enter(&one_waits, "192.0.2.2").err(), Some(Limit::Waiting));
        first.settle();
        enter(&one_waits, "192.0.2.2").unwrap();

        let two_each = admission((9, 9), (2, 1));
        let first = enter(&two_each, "192.0.2.1").unwrap();
        assert_eq!(enter(&two_each, "::ffff:192.0.2.1").err(), Some(Limit::PeerWaiting));
        first.settle();
        let _second = enter(&two_each, "192.0.2.1").unwrap();
        assert_eq!(enter(&two_each, "192.0.2.1").err(), Some(Limit::PeerConnections));
        enter(&two_each, "192.0.2.2").unwrap();
    }

    #[test]
    fn a_network_is_one_peer() {
        let one_each = admission((9, 9), (1, 1));
        let _first = enter(&one_each, "2001:db8::1").unwrap();
        assert!(enter(&one_each, "2001:db8::ffff:1").is_err());
        enter(&one_each, "2001:db8:0:1::1").unwrap();
    }

    #[test]
    fn nothing_is_kept_of_those_who_left() {
        let admission = admission((9, 9), (1, 1));
        let place = enter(&admission, "192.0.2.1").unwrap();
        assert!(enter(&admission, "192.0.2.1").is_err());
        drop(place);
        drop(admission.enter().unwrap());
        assert_eq!(admission.taken(), Places::default());
        assert!(admission.counts().peers.is_empty());
    }
}
