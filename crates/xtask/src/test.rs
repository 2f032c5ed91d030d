//! `cargo xtask test`: every test.

use crate::run::{cargo, step};
use crate::tools;

/// Installs the clients, builds the binary that the end-to-end tests start, runs all tests.
pub(crate) fn run() -> anyhow::Result<()> {
    tools::ensure_clients()?;
    step("build portreeve and all tests", &mut cargo(&["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    step("build the binary under test", &mut cargo(&["build", "--package", "portreeve", "--locked", "--quiet"]))?;
    step("run all tests", &mut cargo(&["test", "--workspace", "--locked"]))
}
