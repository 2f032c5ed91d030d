//! Running other programs, with the time that each step took.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

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

/// How often a step that has a limit is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Runs one step to its end and prints how long it took; fails when the program does.
pub(crate) fn step(name: &str, command: &mut Command) -> anyhow::Result<()> {
    timed(name, command, |command| Ok(command.status()?))
}

/// The same for a step that waits for a network: it is ended, and fails, when it takes longer than `limit`.
pub(crate) fn step_within(limit: Duration, name: &str, command: &mut Command) -> anyhow::Result<()> {
    timed(name, command, |command| {
        let (mut child, start) = (command.spawn()?, Instant::now());
        while start.elapsed() < limit {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
        child.kill()?;
        child.wait()?;
        bail!("it took longer than {} s", limit.as_secs())
    })
}

fn timed(
    name: &str,
    command: &mut Command,
    run: impl FnOnce(&mut Command) -> anyhow::Result<ExitStatus>,
) -> anyhow::Result<()> {
    eprintln!("==> {name}");
    let start = Instant::now();
    let status = run(command).with_context(|| format!("{name}: failed to run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{name} failed: {} ended with {status}", command.get_program().display());
    }
    eprintln!("    {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
