//! When to plan.

use std::time::{Duration, Instant};

/// How long to wait for more changes after the first.
const DEBOUNCE: Duration = Duration::from_millis(5);
/// While the API server cannot be reached: the first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// When to plan: soon after a change, but at most half of the time.
#[derive(Debug, Default)]
pub(super) struct Pace {
    changed: Option<Instant>,
    alarm: Option<Instant>,
    not_before: Option<Instant>,
    failures: u32,
}

impl Pace {
    /// Something has changed.
    pub(super) fn changed(&mut self, now: Instant) {
        self.changed.get_or_insert(now);
    }

    /// Plan at this time at the latest; asked again in each round.
    pub(super) fn wake_at(&mut self, alarm: Option<Instant>) {
        self.alarm = [self.alarm, alarm].into_iter().flatten().min();
    }

    /// A plan is being made of all that is known now.
    pub(super) fn started(&mut self) {
        (self.changed, self.alarm) = (None, None);
    }

    /// It took this long: rest as long.
    pub(super) fn planned(&mut self, took: Duration, now: Instant) {
        self.not_before = Some(now + took);
    }

    /// The API server did not answer: try again later, and later still the next time.
    pub(super) fn unavailable(&mut self, now: Instant, jitter: impl Fn(Duration) -> Duration) {
        let pause = PAUSE.0.saturating_mul(2_u32.saturating_pow(self.failures)).min(PAUSE.1);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + jitter(pause));
        self.changed(now);
    }

    /// It does answer.
    pub(super) fn available(&mut self) {
        self.failures = 0;
    }

    /// When the next plan is due, if any.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = [self.changed.map(|changed| changed + DEBOUNCE), self.alarm].into_iter().flatten().min()?;
        Some(self.not_before.map_or(due, |rested| rested.max(due)))
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next().is_some_and(|next| next <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn planning_takes_at_most_half_of_the_time() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.next(), None);
        pace.changed(start);
        pace.changed(after(start, 4));
        assert_eq!(pace.next(), Some(after(start, 5)));
        assert!(!pace.is_due(after(start, 4)) && pace.is_due(after(start, 5)));
        pace.started();
        pace.planned(Duration::from_millis(300), after(start, 305));
        assert_eq!(pace.next(), None);
        pace.changed(after(start, 310));
        assert_eq!(pace.next(), Some(after(start, 605)));
        pace.changed(after(start, 900));
        pace.started();
        pace.changed(after(start, 900));
        assert_eq!(pace.next(), Some(after(start, 905)));
    }

    #[test]
    fn the_earliest_alarm_counts_and_is_asked_for_anew() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        pace.wake_at(Some(after(start, 60)));
        pace.wake_at(Some(after(start, 30)));
        pace.wake_at(None);
        assert_eq!(pace.next(), Some(after(start, 30)));
        pace.started();
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn while_nobody_answers_it_waits_longer_each_time() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let exact = |pause| pause;
        pace.unavailable(start, exact);
        assert_eq!(pace.next(), Some(after(start, 500)));
        pace.unavailable(start, exact);
        assert_eq!(pace.next(), Some(after(start, 1000)));
        pace.available();
        pace.unavailable(start, exact);
        assert_eq!(pace.next(), Some(after(start, 500)));
    }
}
