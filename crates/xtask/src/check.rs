//! `cargo xtask check`: what can be said without running the code.

use crate::run::{cargo, step};
use crate::{arrows, tools};

/// Runs the checks in the order of their cost.
pub(crate) fn run() -> anyhow::Result<()> {
    step("formatting", &mut cargo(&["fmt", "--all", "--check"]))?;
    arrows::run()?;
    step(
        "lints",
        &mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"]),
    )?;
    step(
        "documentation",
        cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    arrows::compile_each_alone()?;
    // Advisories need a database that is not on every machine; bans, licences and sources are known from the lock file.
    let mut deny = std::process::Command::new(tools::cargo_deny()?);
    deny.current_dir(crate::run::root());
    step("dependencies", deny.args(["check", "bans", "licenses", "sources"]))
}
