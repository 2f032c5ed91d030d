use std::net::SocketAddr;
use std::sync::Arc;

use crate::proxy_protocol::ProxyVersion;

/// The weighted choice that a route's rule leaves: which Service takes a connection or a request.
///
/// A backend that cannot be used keeps its weight: its share is refused, not handed to the others (Gateway API,
/// `backendRefs`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backends {
    /// In the order of the route; may be empty.
    pub entries: Vec<Backend>,
}

/// One Service of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Which Service, as `namespace/name:port`, for logs and explanations.
    pub service: Arc<str>,
    /// Its share; 0 takes nothing.
    pub weight: u32,
    /// The ready endpoints, never empty; or why there are none to dial.
    pub endpoints: Result<Arc<[SocketAddr]>, BackendFault>,
    /// How it wants to be spoken to.
    pub options: BackendOptions,
}

/// How a Service wants to be spoken to; the default is what every Service takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendOptions {
    /// Which endpoint takes the next connection or request.
    pub balance: Balance,
    /// The header that says, before the first byte of a tunnel, who the client is. Not for HTTP, whose connections to
    /// backends carry the requests of many clients.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Whether HTTP requests go on as HTTP/2 from the first byte (`h2c`), as gRPC needs it, and not as HTTP/1.1.
    pub http2: bool,
}

/// Which of a Service's endpoints takes the next connection or request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// All as often as each other.
    #[default]
    Even,
    /// The one that has the fewest open, of those that this process opened; for connections that live long and weigh
    /// differently.
    LeastConnections,
}

/// Why a backend cannot be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BackendFault {
    /// The reference is wrong: no such Service, not allowed, or not a Service. HTTP answers 500.
    #[error("the backend reference does not resolve")]
    Unresolved,
    /// The Service is there and has no ready endpoint. HTTP answers 503.
    #[error("the Service has no ready endpoint")]
    NoEndpoint,
}

/// What [`Backends::choose`] came to.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The Service.
    pub backend: &'a Backend,
    /// What is left of the point: where within the backend's share it lies.
    rest: u64,
}

impl Backends {
    /// Chooses by weight: every backend has its part of the whole range of `u64`, and `point` lies in one of them.
    ///
    /// Points that are spread evenly over the range give every backend its share. `None` when there is no backend
    /// with a weight above 0: HTTP answers 500, TLS is closed.
    pub fn choose(&self, point: u64) -> Option<Choice<'_>> {
        let total = self.entries.iter().map(|backend| u64::from(backend.weight)).sum();
        let (mut place, rest) = scale(point, total);
        let backend = self.entries.iter().find(|backend| {
            let weight = u64::from(backend.weight);
            let here = place < weight;
            place = place.saturating_sub(weight);
            here
        })?;
        Some(Choice { backend, rest })
    }
}

impl<'a> Choice<'a> {
    /// Every endpoint once, in the order in which to try them; the first is spread as evenly as the points were.
    pub fn endpoints(&self) -> Result<impl Iterator<Item = SocketAddr> + use<'a>, BackendFault> {
        let endpoints = self.backend.endpoints.as_deref().map_err(|fault| *fault)?;
        let (first, _) = scale(self.rest, endpoints.len() as u64);
        let (before, after) = endpoints.split_at(usize::try_from(first).unwrap_or_default());
        Ok(after.iter().chain(before).copied())
    }
}

/// Cuts the range of `u64` into `parts` equal ones: which of them `point` lies in, and where within it.
fn scale(point: u64, parts: u64) -> (u64, u64) {
    let (rest, part) = point.carrying_mul(parts, 0);
    (part, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points in the middle of each of `count` equal parts of the range.
    fn points(count: u64) -> impl Iterator<Item = u64> {
        let part = u64::MAX / count;
        (0..count).map(move |index| index * part + part / 2)
    }

    fn backend(service: &str, weight: u32, endpoints: &[&str]) -> Backend {
        let endpoints: Arc<[SocketAddr]> = endpoints.iter().map(|endpoint| endpoint.parse().unwrap()).collect();
        let endpoints = if endpoints.is_empty() { Err(BackendFault::NoEndpoint) } else { Ok(endpoints) };
        Backend { service: service.into(), weight, endpoints, options: BackendOptions::default() }
    }

    #[test]
    fn the_choice_follows_the_weights() {
        let backends = Backends { entries: vec![backend("a", 1, &[]), backend("b", 0, &[]), backend("c", 3, &[])] };
        let chosen: Vec<_> = points(8).map(|point| &*backends.choose(point).unwrap().backend.service).collect();
        assert_eq!(chosen, ["a", "a", "c", "c", "c", "c", "c", "c"]);
    }

    #[test]
    fn no_weight_is_no_choice() {
        assert!(Backends::default().choose(7).is_none());
        assert!(Backends { entries: vec![backend("a", 0, &[])] }.choose(u64::MAX).is_none());
    }

    #[test]
    fn within_a_backend_every_endpoint_is_first_in_turn() {
        let endpoints = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"];
        let backends = Backends { entries: vec![backend("a", 1, &["192.0.2.9:1"]), backend("b", 2, &endpoints)] };
        let orders: Vec<Vec<String>> = points(9)
            .map(|point| backends.choose(point).unwrap().endpoints().unwrap().map(|one| one.to_string()).collect())
            .collect();
        assert!(orders[..3].iter().all(|order| order == &["192.0.2.9:1"]));
        let firsts = |first: &str| orders[3..].iter().filter(|order| order[0] == first).count();
        assert_eq!(endpoints.map(firsts), [2, 2, 2]);
        assert!(orders.contains(&vec!["192.0.2.2:1".into(), "192.0.2.3:1".into(), "192.0.2.1:1".into()]));
    }

    #[test]
    fn a_backend_without_endpoints_keeps_its_share_and_says_why() {
        let backends = Backends { entries: vec![backend("a", 1, &[])] };
        assert_eq!(backends.choose(0).unwrap().endpoints().err(), Some(BackendFault::NoEndpoint));
    }
}
