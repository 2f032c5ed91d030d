//! Running other programs, with the time that each step took.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// A cargo command in the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs one step to its end and prints how long it took; fails when the program does.
pub(crate) fn step(name: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("==> {name}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("failed to start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{name} failed: {} ended with {status}", command.get_program().display());
    }
    eprintln!("    {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
