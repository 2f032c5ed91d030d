//! A program that runs for a test.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};

/// A running program with everything that it starts in its process group; ended when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Starts `command` in a process group of its own.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<Self> {
        let child = command.process_group(0).stdin(Stdio::null()).spawn();
        let child = child.with_context(|| format!("failed to start {command:?}"))?;
        Ok(Self { child })
    }

    /// As `start`, with what it prints appended to a file.
    pub(crate) fn start_logged(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("failed to open {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        Self::start(command)
    }

    /// The process that was started.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Stops it from running without ending it, as if its machine hung.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it run again.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process has a number")?;
        kill_process_group(group, signal).with_context(|| format!("failed to send {signal:?} to {}", self.child.id()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
