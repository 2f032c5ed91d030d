//! `cargo xtask test`: every test.

use crate::bed;
use crate::run::{cargo, step};

/// Installs the real programs and clients, builds the binary that the end-to-end tests start, runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    bed::run(&[])?;
    step("build portreeve and all tests", &mut cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    step("build the binary under test", &mut cargo(&["build", "--package", "portreeve", "--locked", "--quiet"]))?;
    step("run all tests", &mut cargo(&["test", "--workspace", "--locked"]))
}
