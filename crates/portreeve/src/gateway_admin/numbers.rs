//! The gateway's numbers.

use std::fmt;

use portreeve_gateway::{AccessRecord, Monitor, Observer};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::report::SocketStates;

/// Upper bounds of the durations of requests, in seconds.
const BOUNDS: [f64; 9] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Counts what ends. All labels are bounded: what it was, and reasons of the contract; no name, no address.
#[derive(Debug)]
pub struct Numbers {
    registry: Registry,
    finished: Family<Finished, Counter>,
    requests: Family<Requests, Counter>,
    bytes: Family<Bytes, Counter>,
    seconds: Histogram,
    connections: Gauge,
    waiting: Gauge,
    tunnels: Gauge,
    ports: Family<Ports, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Finished {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Requests {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bytes {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ports {
    state: &'static str,
}

impl Default for Numbers {
    fn default() -> Self {
        let mut numbers = Self {
            registry: Registry::with_prefix("portreeve_gateway"),
            finished: Family::default(),
            requests: Family::default(),
            bytes: Family::default(),
            seconds: Histogram::new(BOUNDS),
            connections: Gauge::default(),
            waiting: Gauge::default(),
            tunnels: Gauge::default(),
            ports: Family::default(),
        };
        numbers.register();
        numbers
    }
}

impl Numbers {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "finished",
            "Connections and requests that ended, by what came of them",
            self.finished.clone(),
        );
        registry.register("requests", "HTTP requests that were answered, by class of status", self.requests.clone());
        registry.register("bytes", "Bytes carried by what has ended", self.bytes.clone());
        registry.register("request_seconds", "How long HTTP requests took", self.seconds.clone());
        registry.register("connections", "Client connections that are open", self.connections.clone());
        registry.register("connections_waiting", "Those that have not said what they want", self.waiting.clone());
        registry.register("tunnels", "Tunnels that are open", self.tunnels.clone());
        registry.register("ports", "Ports of Gateways, by whether they listen", self.ports.clone());
    }

    /// As Prometheus reads it, at this moment.
    pub(super) fn encode(&self, monitor: &Monitor, sockets: &SocketStates) -> Result<String, fmt::Error> {
        let places = monitor.connections();
        self.connections.set(number(places.open));
        self.waiting.set(number(places.waiting));
        self.tunnels.set(number(monitor.tunnels().len()));
        let listening = sockets.values().filter(|state| state.is_ok()).count();
        self.ports.get_or_create(&Ports { state: "listening" }).set(number(listening));
        self.ports.get_or_create(&Ports { state: "failed" }).set(number(sockets.len() - listening));
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

impl Observer for Numbers {
    fn finished(&self, record: &AccessRecord) {
        let kind = match &record.request {
            Some(request) => {
                let code = request.status.map_or("none", |status| match status.as_u16() / 100 {
                    1 => "1xx",
                    2 => "2xx",
                    3 => "3xx",
                    4 => "4xx",
                    _ => "5xx",
                });
                self.requests.get_or_create(&Requests { code }).inc();
                self.seconds.observe(record.duration.as_secs_f64());
                "request"
            }
            None => "connection",
        };
        self.finished.get_or_create(&Finished { kind, outcome: record.outcome.reason() }).inc();
        self.bytes.get_or_create(&Bytes { direction: "received" }).inc_by(record.traffic.received);
        self.bytes.get_or_create(&Bytes { direction: "sent" }).inc_by(record.traffic.sent);
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
