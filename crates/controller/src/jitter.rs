//! Chance, so that many that failed together do not try again together.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Between three quarters of `pause` and all of it.
pub(crate) fn jitter(pause: Duration) -> Duration {
    // A new `RandomState` hashes nothing to a number that nobody can foresee.
    let chance = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    let share = f64::from(chance) / f64::from(u32::MAX);
    pause.mul_f64(share.mul_add(0.25, 0.75))
}
