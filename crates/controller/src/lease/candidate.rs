//! One candidate for one lease: decides, and knows no clock but the one that it is given.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::LeaseName;

/// How long a lease is valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// For how long others leave it alone after a renewal that they have seen.
    pub(super) duration: Duration,
    /// For how long the holder believes that it has it, after a renewal; shorter than `duration`.
    pub(super) renew_deadline: Duration,
    /// How often it is looked at.
    pub(super) retry: Duration,
}

/// A lease as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Empty: nobody.
    pub(super) holder: String,
    /// For how long its holder asks to be left alone.
    pub(super) duration: Duration,
    /// It changes with every renewal.
    pub(super) version: String,
}

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// There is no lease: make it.
    Create,
    /// Nobody holds it any more: take it.
    Take,
    /// It is held: renew it.
    Renew,
    /// Another holds it.
    Wait,
}

/// A candidate for a lease, or its holder.
#[derive(Debug)]
pub(super) struct Candidate {
    lease: LeaseName,
    identity: String,
    timing: Timing,
    /// The lease as it was last, and since when it is so. The times in it are a foreign clock's and are not read.
    seen: Option<(Found, Instant)>,
    renewed: Option<Instant>,
}

impl Candidate {
    pub(super) fn new(lease: &LeaseName, identity: &str, timing: Timing) -> Self {
        Self { lease: lease.clone(), identity: identity.to_owned(), timing, seen: None, renewed: None }
    }

    pub(super) fn lease(&self) -> &LeaseName {
        &self.lease
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Takes in how the lease was found.
    pub(super) fn observe(&mut self, found: Option<Found>, now: Instant) -> Move {
        let Some(found) = found else {
            (self.seen, self.renewed) = (None, None);
            return Move::Create;
        };
        let since = match &self.seen {
            Some((seen, since)) if *seen == found => *since,
            _ => now,
        };
        let is_over = now.duration_since(since) >= self.timing.duration.max(found.duration);
        let next = match found.holder.as_str() {
            holder if holder == self.identity => Move::Renew,
            "" => Move::Take,
            _ if is_over => Move::Take,
            _ => Move::Wait,
        };
        if next != Move::Renew {
            self.renewed = None;
        }
        self.seen = Some((found, since));
        next
    }

    /// What to write into the lease for this move; nothing for [`Move::Wait`].
    pub(super) fn spec(&self, next: Move, before: Option<&LeaseSpec>, time: MicroTime) -> Option<LeaseSpec> {
        let mut spec = before.cloned().unwrap_or_default();
        match next {
            Move::Wait => return None,
            Move::Renew => {}
            Move::Create | Move::Take => {
                spec.acquire_time = Some(time.clone());
                let taken = i32::from(next == Move::Take);
                spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(taken));
            }
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.timing.duration.as_secs()).ok();
        spec.renew_time = Some(time);
        Some(spec)
    }

    /// Takes in that the lease was written, and when the request for that was sent.
    pub(super) fn wrote(&mut self, found: Found, sent: Instant) {
        self.seen = Some((found, sent));
        self.renewed = Some(sent);
    }

    /// Until when it is held.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.renewed.map(|renewed| renewed + self.timing.renew_deadline)
    }

    /// Whether it is held for sure.
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|deadline| now < deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn of(identity: &str) -> Candidate {
        let lease = LeaseName { namespace: "n".to_owned(), name: "l".to_owned() };
        Candidate::new(&lease, identity, TIMING)
    }

    fn found(holder: &str, version: u32) -> Found {
        let (holder, version) = (holder.to_owned(), version.to_string());
        Found { holder, duration: Duration::from_secs(15), version }
    }

    fn second(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_made_or_taken_when_nobody_holds_it() {
        let (mut candidate, start) = (of("me"), Instant::now());
        assert_eq!(candidate.observe(None, start), Move::Create);
        assert_eq!(candidate.observe(Some(found("", 1)), start), Move::Take);
        assert!(!candidate.holds(start));
        candidate.wrote(found("me", 2), start);
        assert!(candidate.holds(start));
        assert_eq!(candidate.observe(Some(found("me", 2)), second(start, 2)), Move::Renew);
    }

    #[test]
    fn a_holder_that_renews_keeps_it_and_one_that_does_not_loses_it() {
        let (mut candidate, start) = (of("me"), Instant::now());
        assert_eq!(candidate.observe(Some(found("you", 1)), start), Move::Wait);
        assert_eq!(candidate.observe(Some(found("you", 2)), second(start, 14)), Move::Wait);
        assert_eq!(candidate.observe(Some(found("you", 2)), second(start, 28)), Move::Wait);
        assert_eq!(candidate.observe(Some(found("you", 2)), second(start, 29)), Move::Take);
    }

    /// A holder may ask for more time than we would.
    #[test]
    fn the_longer_of_two_durations_counts() {
        let (mut candidate, start) = (of("me"), Instant::now());
        let patient = Some(Found { duration: Duration::from_mins(1), ..found("you", 1) });
        candidate.observe(patient.clone(), start);
        assert_eq!(candidate.observe(patient.clone(), second(start, 59)), Move::Wait);
        assert_eq!(candidate.observe(patient, second(start, 60)), Move::Take);
    }

    #[test]
    fn a_holder_that_cannot_renew_stops_before_another_may_take_it() {
        let (mut candidate, start) = (of("me"), Instant::now());
        candidate.wrote(found("me", 1), start);
        assert!(candidate.holds(start + Duration::from_millis(9_999)));
        assert!(!candidate.holds(second(start, 10)));
        let mut other = of("you");
        other.observe(Some(found("me", 1)), start);
        assert_eq!(other.observe(Some(found("me", 1)), second(start, 14)), Move::Wait);
    }

    #[test]
    fn who_finds_another_in_its_place_has_lost_it_at_once() {
        let (mut candidate, start) = (of("me"), Instant::now());
        candidate.wrote(found("me", 1), start);
        assert_eq!(candidate.observe(Some(found("you", 2)), second(start, 1)), Move::Wait);
        assert!(!candidate.holds(second(start, 1)));
        candidate.wrote(found("me", 3), start);
        assert_eq!(candidate.observe(None, second(start, 1)), Move::Create);
        assert!(!candidate.holds(second(start, 1)));
    }

    #[test]
    fn transitions_count_only_changes_of_the_holder() {
        let candidate = of("me");
        let before = LeaseSpec { lease_transitions: Some(4), ..LeaseSpec::default() };
        let time = || MicroTime(jiff::Timestamp::UNIX_EPOCH);
        let transitions = |next, before| candidate.spec(next, before, time()).unwrap().lease_transitions;
        assert_eq!(transitions(Move::Take, Some(&before)), Some(5));
        assert_eq!(transitions(Move::Renew, Some(&before)), Some(4));
        assert_eq!(transitions(Move::Create, None), Some(0));
        assert_eq!(candidate.spec(Move::Wait, Some(&before), time()), None);
    }
}
