//! How many connections and requests are open at each endpoint.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts of everything that is open; endpoints without anything are not in it.
#[derive(Clone, Default)]
pub(crate) struct Loads(Arc<Mutex<HashMap<SocketAddr, usize>>>);

/// One connection or request, counted until this is dropped.
pub(crate) struct Load {
    loads: Loads,
    endpoint: SocketAddr,
}

impl Loads {
    /// Counts one more at `endpoint`.
    pub(crate) fn add(&self, endpoint: SocketAddr) -> Load {
        *self.counts().entry(endpoint).or_default() += 1;
        Load { loads: self.clone(), endpoint }
    }

    /// Puts those with the least to do first, and leaves equals in their order.
    pub(crate) fn sort(&self, endpoints: &mut [SocketAddr]) {
        let counts = self.counts();
        endpoints.sort_by_key(|endpoint| counts.get(endpoint).copied().unwrap_or_default());
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<SocketAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let mut counts = self.loads.counts();
        if let Some(count) = counts.get_mut(&self.endpoint) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.endpoint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_comes_first_and_nothing_is_kept() {
        let [a, b, c] = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"].map(|text| text.parse().unwrap());
        let loads = Loads::default();
        let open = [loads.add(a), loads.add(a), loads.add(c)];
        let mut endpoints = [a, c, b];
        loads.sort(&mut endpoints);
        assert_eq!(endpoints, [b, c, a]);
        drop(open);
        assert!(loads.counts().is_empty());
    }
}
