//! The controller's numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What [`Metrics::encode`] gives.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the durations of plans, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The controller's numbers. All labels are bounded: kinds, verbs, and reasons of the contract.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    plans: Histogram,
    writes: Family<WriteLabels, Counter>,
    not_ready: Family<ReasonLabels, Gauge>,
    waiting: Gauge,
    objects: Family<KindLabels, Gauge>,
    unreadable: Family<KindLabels, Gauge>,
    leader: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: String,
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    kind: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

/// How many objects of a kind are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindCount {
    pub(crate) kind: &'static str,
    pub(crate) objects: usize,
    pub(crate) unreadable: usize,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("portreeve"),
            plans: Histogram::new(BOUNDS),
            writes: Family::default(),
            not_ready: Family::default(),
            waiting: Gauge::default(),
            objects: Family::default(),
            unreadable: Family::default(),
            leader: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("reconcile_seconds", "How long planning took; its count is how often", metrics.plans.clone());
        registry.register("writes", "Requests that write, by what became of them", metrics.writes.clone());
        registry.register("owners_not_ready", "Owners whose Ready is False, by reason", metrics.not_ready.clone());
        registry.register("writes_waiting", "Writes that failed and wait for their next try", metrics.waiting.clone());
        registry.register("cache_objects", "Objects that are known", metrics.objects.clone());
        registry.register(
            "unreadable_objects",
            "Objects that are not what their kind says, and left out",
            metrics.unreadable.clone(),
        );
        registry.register("leader", "1 while this replica may write", metrics.leader.clone());
        metrics
    }

    pub(crate) fn planned(&self, took: Duration) {
        self.plans.observe(took.as_secs_f64());
    }

    pub(crate) fn wrote(&self, kind: &str, verb: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind: kind.to_owned(), verb, result }).inc();
    }

    pub(crate) fn waiting(&self, writes: usize) {
        self.waiting.set(number(writes));
    }

    pub(crate) fn leading(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// `counts` names every kind that is watched.
    pub(crate) fn known(&self, counts: &[KindCount]) {
        self.objects.clear();
        self.unreadable.clear();
        for KindCount { kind, objects, unreadable } in counts.iter().copied() {
            self.objects.get_or_create(&KindLabels { kind }).set(number(objects));
            self.unreadable.get_or_create(&KindLabels { kind }).set(number(unreadable));
        }
    }

    /// `counts` names every reason that there is, by kind.
    pub(crate) fn not_ready(&self, counts: BTreeMap<(&'static str, &str), usize>) {
        self.not_ready.clear();
        for ((kind, reason), count) in counts {
            self.not_ready.get_or_create(&ReasonLabels { kind, reason: reason.to_owned() }).set(number(count));
        }
    }

    /// As Prometheus reads it.
    pub(crate) fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_prometheus_reads_them() {
        let metrics = Metrics::new();
        metrics.wrote("HTTPRoute", "apply", "ok");
        metrics.planned(Duration::from_millis(2));
        metrics.not_ready([(("NebariApp", "ServiceNotFound"), 3)].into());
        metrics.known(&[KindCount { kind: "Secret", objects: 7, unreadable: 1 }]);
        metrics.leading(true);
        let text = metrics.encode().unwrap();
        for line in [
            r#"portreeve_writes_total{kind="HTTPRoute",verb="apply",result="ok"} 1"#,
            r#"portreeve_owners_not_ready{kind="NebariApp",reason="ServiceNotFound"} 3"#,
            r#"portreeve_cache_objects{kind="Secret"} 7"#,
            r#"portreeve_unreadable_objects{kind="Secret"} 1"#,
            "portreeve_reconcile_seconds_count 1",
            "portreeve_leader 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }
}
