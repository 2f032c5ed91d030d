//! `cargo xtask test`: every test.

use crate::bed;
use crate::run::{cargo, step};

/// Where random cases of properties begin when nobody says otherwise: a change is judged by what it changes. Others are tried by
/// `cargo xtask soak random`.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "20261130");

/// Installs the real programs and clients, builds the binary that the end-to-end tests start, runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    bed::run(&[])?;
    step("build portreeve and all tests", &mut cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    step("build the binary under test", &mut cargo(&["build", "--package", "portreeve", "--locked", "--quiet"]))?;
    let mut tests = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    if std::env::var_os(SEED.0).is_none() {
        tests.env(SEED.0, SEED.1);
    }
    step("run all tests", &mut tests)
}
