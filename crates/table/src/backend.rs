use std::net::SocketAddr;
use std::sync::Arc;

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
}

/// Why a backend cannot be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendFault {
    /// The reference is wrong: no such Service, not allowed, or not a Service. HTTP answers 500.
    #[error("the backend reference does not resolve")]
    Unresolved,
    /// The Service is there and has no ready endpoint. HTTP answers 503.
    #[error("the Service has no ready endpoint")]
    NoEndpoint,
}

impl Backends {
    /// Chooses by weight; `seed` may be any number, and successive seeds visit every backend in proportion.
    ///
    /// `None` when there is no backend with a weight above 0: HTTP answers 500, TLS is closed.
    pub fn choose(&self, seed: u64) -> Option<&Backend> {
        let total: u64 = self.entries.iter().map(|backend| u64::from(backend.weight)).sum();
        let mut point = seed.checked_rem(total)?;
        self.entries.iter().find(|backend| {
            let weight = u64::from(backend.weight);
            let here = point < weight;
            point = point.saturating_sub(weight);
            here
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(service: &str, weight: u32) -> Backend {
        Backend { service: service.into(), weight, endpoints: Err(BackendFault::NoEndpoint) }
    }

    #[test]
    fn the_choice_follows_the_weights() {
        let backends = Backends { entries: vec![backend("a", 1), backend("b", 0), backend("c", 3)] };
        let chosen: Vec<_> = (0..8).map(|seed| backends.choose(seed).unwrap().service.to_string()).collect();
        assert_eq!(chosen, ["a", "c", "c", "c", "a", "c", "c", "c"]);
    }

    #[test]
    fn no_weight_is_no_choice() {
        assert_eq!(Backends::default().choose(7), None);
        assert_eq!(Backends { entries: vec![backend("a", 0)] }.choose(7), None);
    }
}
