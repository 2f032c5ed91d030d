//! `cargo xtask fuzz`: the targets of `crates/portreeve/tests/fuzz`, for longer than a test may take.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::run::{cargo, step};

/// Runs each target for so many seconds, from a seed that is another each time.
pub(crate) fn run(only: &str, seconds: u64) -> anyhow::Result<()> {
    let seed = RandomState::new().hash_one(seconds);
    let mut tests = cargo(&["test", "--workspace", "--locked", "--test", "fuzz", "--", "--nocapture", only]);
    tests.env("PORTREEVE_FUZZ_SECONDS", seconds.to_string()).env("PORTREEVE_FUZZ_SEED", seed.to_string());
    step("fuzz", &mut tests)
}
