//! The binary under test as an operator.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

use portreeve_testkit::Bed;

/// The binary that this test was built with.
const PROGRAM: &str = env!("CARGO_BIN_EXE_portreeve");

/// A running `portreeve controller`; killed when it is dropped.
pub(crate) struct Operator(portreeve_testkit::Operator);

impl Operator {
    /// Starts it with the rights of the administrator. No two that run in one bed may have the same name; one of a name that
    /// ran before appends to its log.
    pub(crate) fn start(bed: &Bed, name: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_as(bed, name, &bed.kubeconfig(), arguments)
    }

    /// Starts it with the rights of a kubeconfig.
    pub(crate) fn start_as(bed: &Bed, name: &str, kubeconfig: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        portreeve_testkit::Operator::start(bed, name, Path::new(PROGRAM), kubeconfig, arguments).map(Self)
    }

    /// Starts the binary as `with` says. It must serve its probes at port 8081.
    pub(crate) fn start_with(
        bed: &Bed,
        name: &str,
        with: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Self> {
        portreeve_testkit::Operator::start_with(bed, name, Path::new(PROGRAM), with).map(Self)
    }

    /// Asks it to end and waits until it has; fails when its exit status is not 0, or it takes too long.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        self.0.stop().await
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Deref for Operator {
    type Target = portreeve_testkit::Operator;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Operator {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
