//! Which ports of Gateways answer, as far as that can be known from here.
//!
//! The rule: a port has failed when it answers at none of its Gateway's addresses and, at one of these, nothing but the
//! port itself can be the reason. That is so where another port of the Gateway answers at the same address, or where
//! this one did earlier. Whatever cannot be reached from here at all (another network, a NetworkPolicy) is not known, and
//! what is not known is no failure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use portreeve_plan::GatewayPorts;
use portreeve_plan::claim::GatewayName;

/// How often in a row a port must fail before that counts: a gateway says that it has a listener before its sockets do.
/// With [`PAUSE`] this takes at least five seconds.
const PATIENCE: u32 = 4;
/// After a failure: the first pause, which doubles each time, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// How long an answer is good for.
const GOOD_FOR: Duration = Duration::from_secs(30);

/// Ports that have failed, and why.
pub(crate) type FailedPorts = BTreeMap<(GatewayName, u16), String>;

/// One port at one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) gateway: GatewayName,
    pub(crate) port: u16,
    pub(crate) address: String,
}

/// What is known of every port that is dialled.
#[derive(Debug, Default)]
pub(crate) struct Book(BTreeMap<Place, Record>);

#[derive(Debug)]
struct Record {
    due: Instant,
    /// Whether it has ever answered.
    has_answered: bool,
    /// The last outcome.
    last: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Untried,
    Answered,
    Failed { times: u32, why: String },
}

impl Book {
    /// Dials exactly these from now on. `remembered` is what was known of ports before this process knew anything: it holds
    /// until they answer.
    pub(crate) fn aim(&mut self, targets: &[GatewayPorts], remembered: &FailedPorts, now: Instant) {
        let places: BTreeSet<_> = targets.iter().flat_map(places).collect();
        self.0.retain(|place, _| places.contains(place));
        for place in places {
            let before = remembered.get(&(place.gateway.clone(), place.port));
            self.0.entry(place).or_insert_with(|| Record {
                due: now,
                has_answered: before.is_some(),
                last: before.map_or(Outcome::Untried, |why| Outcome::Failed { times: PATIENCE, why: why.clone() }),
            });
        }
    }

    /// What is to be dialled now.
    pub(crate) fn due(&self, now: Instant) -> Vec<Place> {
        self.0.iter().filter(|(_, record)| record.due <= now).map(|(place, _)| place.clone()).collect()
    }

    /// When something is to be dialled next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().map(|record| record.due).min()
    }

    /// Takes in what came of dialling.
    pub(crate) fn note(
        &mut self,
        place: &Place,
        result: Result<(), String>,
        now: Instant,
        jitter: impl Fn(Duration) -> Duration,
    ) {
        let Some(record) = self.0.get_mut(place) else { return };
        let before = match &record.last {
            Outcome::Failed { times, .. } => *times,
            Outcome::Untried | Outcome::Answered => 0,
        };
        let pause = match result {
            Ok(()) => {
                (record.has_answered, record.last) = (true, Outcome::Answered);
                GOOD_FOR
            }
            Err(why) => {
                record.last = Outcome::Failed { times: before.saturating_add(1), why };
                PAUSE.0.saturating_mul(2_u32.saturating_pow(before)).min(PAUSE.1)
            }
        };
        record.due = now + jitter(pause);
    }

    /// The ports that have failed, by the rule above.
    pub(crate) fn failed(&self) -> FailedPorts {
        let mut ports: BTreeMap<(&GatewayName, u16), Vec<(&Place, &Record)>> = BTreeMap::new();
        for (place, record) in &self.0 {
            ports.entry((&place.gateway, place.port)).or_default().push((place, record));
        }
        let reached: BTreeSet<_> = self
            .0
            .iter()
            .filter(|(_, record)| matches!(record.last, Outcome::Answered))
            .map(|(place, _)| (&place.gateway, place.address.as_str()))
            .collect();
        let failed = ports.into_iter().filter_map(|((gateway, port), places)| {
            if !places.iter().all(|(_, record)| record.last.has_failed()) {
                return None;
            }
            let counts = |place: &Place, record: &Record| {
                record.has_answered || reached.contains(&(&place.gateway, place.address.as_str()))
            };
            let why = places.iter().find(|(place, record)| counts(place, record))?.1.last.why()?;
            Some(((gateway.clone(), port), why.to_owned()))
        });
        failed.collect()
    }
}

impl Outcome {
    fn has_failed(&self) -> bool {
        matches!(self, Self::Failed { times, .. } if *times >= PATIENCE)
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Failed { why, .. } => Some(why),
            Self::Untried | Self::Answered => None,
        }
    }
}

fn places(target: &GatewayPorts) -> impl Iterator<Item = Place> {
    target.ports.iter().flat_map(|port| {
        let place = |address: &String| Place { gateway: target.gateway.clone(), port: *port, address: address.clone() };
        target.addresses.iter().map(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: &str = "connection refused";

    fn target(addresses: &[&str], ports: &[u16]) -> GatewayPorts {
        GatewayPorts {
            gateway: GatewayName::new("a", "g"),
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            ports: ports.iter().copied().collect(),
        }
    }

    /// Dials everything several times; says which ports failed in the end.
    fn after(book: &mut Book, rounds: u32, answers: impl Fn(&str, u16) -> bool) -> Vec<u16> {
        for _ in 0..rounds {
            let places: Vec<_> = book.0.keys().cloned().collect();
            for place in places {
                let result = if answers(&place.address, place.port) { Ok(()) } else { Err(REFUSED.to_owned()) };
                book.note(&place, result, Instant::now(), |pause| pause);
            }
        }
        book.failed().into_keys().map(|(_, port)| port).collect()
    }

    fn book(addresses: &[&str], ports: &[u16]) -> Book {
        let mut book = Book::default();
        book.aim(&[target(addresses, ports)], &FailedPorts::new(), Instant::now());
        book
    }

    #[test]
    fn a_port_fails_beside_one_that_answers() {
        let mut book = book(&["x"], &[443, 8786]);
        assert_eq!(after(&mut book, PATIENCE - 1, |_, port| port == 443), [0; 0], "not at once");
        assert_eq!(after(&mut book, 1, |_, port| port == 443), [8786]);
        assert_eq!(book.failed().into_values().collect::<Vec<_>>(), [REFUSED]);
        assert_eq!(after(&mut book, 1, |_, _| true), [0; 0], "one answer is enough");
    }

    #[test]
    fn where_nothing_can_be_reached_nothing_fails() {
        assert_eq!(after(&mut book(&["x", "y"], &[443, 8786]), 20, |_, _| false), [0; 0]);
    }

    #[test]
    fn a_port_that_did_answer_fails_also_alone() {
        let mut book = book(&["x"], &[8786]);
        assert_eq!(after(&mut book, 1, |_, _| true), [0; 0]);
        assert_eq!(after(&mut book, PATIENCE, |_, _| false), [8786]);
    }

    /// That another one did earlier proves nothing: the network may have changed for all.
    #[test]
    fn a_port_that_never_answered_does_not_fail_when_all_others_stop_to_answer() {
        let mut book = book(&["x"], &[443, 8786]);
        assert_eq!(after(&mut book, 1, |_, port| port == 443), [0; 0]);
        assert_eq!(after(&mut book, PATIENCE, |_, _| false), [443]);
    }

    #[test]
    fn one_address_that_answers_is_enough_and_one_out_of_reach_proves_nothing() {
        let mut both = book(&["near", "far"], &[443, 8786]);
        assert_eq!(after(&mut both, PATIENCE, |address, _| address == "near"), [0; 0]);
        let mut refusing = book(&["near", "far"], &[443, 8786]);
        assert_eq!(after(&mut refusing, PATIENCE, |address, port| address == "near" && port == 443), [8786]);
        let mut elsewhere = book(&["near", "far"], &[443, 8786]);
        // At `near` only 443 was ever tried; at `far` nothing is reached.
        elsewhere.0.retain(|place, _| place.port == 443 || place.address == "far");
        assert_eq!(after(&mut elsewhere, PATIENCE, |address, _| address == "near"), [0; 0]);
    }

    #[test]
    fn another_gateway_proves_nothing() {
        let mut book = Book::default();
        let other = GatewayPorts { gateway: GatewayName::new("a", "other"), ..target(&["x"], &[443]) };
        book.aim(&[target(&["x"], &[8786]), other], &FailedPorts::new(), Instant::now());
        assert_eq!(after(&mut book, PATIENCE, |_, port| port == 443), [0; 0]);
    }

    #[test]
    fn what_was_known_before_holds_until_the_port_answers() {
        let gateway = GatewayName::new("a", "g");
        let remembered: FailedPorts = [((gateway, 8786), REFUSED.to_owned())].into();
        let mut book = Book::default();
        book.aim(&[target(&["x"], &[443, 8786])], &remembered, Instant::now());
        assert_eq!(book.failed(), remembered);
        assert_eq!(after(&mut book, 1, |_, _| false), [8786]);
        assert_eq!(after(&mut book, 1, |_, _| true), [0; 0]);
    }

    #[test]
    fn what_fails_is_dialled_again_soon_and_then_seldom() {
        let (mut book, now) = (book(&["x"], &[443]), Instant::now());
        assert_eq!(book.due(now).len(), 1);
        let place = book.due(now).remove(0);
        let pauses = [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs);
        for pause in pauses {
            book.note(&place, Err(REFUSED.to_owned()), now, |pause| pause);
            assert_eq!(book.next(), Some(now + pause));
        }
        book.note(&place, Ok(()), now, |pause| pause);
        assert_eq!((book.next(), book.due(now).len()), (Some(now + GOOD_FOR), 0));
        book.aim(&[], &FailedPorts::new(), now);
        assert_eq!(book.next(), None);
    }
}
