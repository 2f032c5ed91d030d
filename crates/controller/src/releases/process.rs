//! One process that is not waited for for ever.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long a run may take.
const LONGEST: Duration = Duration::from_mins(5);
/// How long it may take to end once it is asked to.
const GRACE: Duration = Duration::from_secs(8);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Why a process has not done its work.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It could not be run.
    #[error("Helm cannot be run: {0}")]
    Start(#[from] io::Error),
    /// It says that it has failed.
    #[error("Helm ended with {0}")]
    Status(ExitStatus),
    /// It was ended since it took too long.
    #[error("Helm did not end in {} minutes and was stopped", LONGEST.as_secs() / 60)]
    TooLong,
    /// It was ended since somebody asked.
    #[error("Helm was stopped")]
    Stopped,
}

/// A process group that is killed when this is dropped.
struct Group(Child);

impl Group {
    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        // It may have ended meanwhile.
        let _ = group.map(|group| kill_process_group(group, signal));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Runs a command to its end, with what it prints in a file; it is ended when it takes too long, or `stop` says so, first
/// with a request and then by force.
pub(super) async fn run(command: Command, output: PathBuf, stop: CancellationToken) -> Result<(), Failure> {
    run_within(command, output, stop, (LONGEST, GRACE)).await
}

async fn run_within(
    mut command: Command,
    output: PathBuf,
    stop: CancellationToken,
    (longest, grace): (Duration, Duration),
) -> Result<(), Failure> {
    let file = File::create(output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    let mut group = Group(command.spawn()?);
    let deadline = Instant::now() + longest;
    let mut asked: Option<(Instant, Failure)> = None;
    loop {
        if let Some(status) = group.0.try_wait()? {
            return match asked {
                _ if status.success() => Ok(()),
                Some((_, why)) => Err(why),
                None => Err(Failure::Status(status)),
            };
        }
        let now = Instant::now();
        match &asked {
            None if stop.is_cancelled() || now > deadline => {
                group.signal(Signal::TERM);
                let why = if stop.is_cancelled() { Failure::Stopped } else { Failure::TooLong };
                asked = Some((now + grace, why));
            }
            Some((until, _)) if now > *until => group.signal(Signal::KILL),
            _ => {}
        }
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn script(text: &str, stop: CancellationToken, limits: (u64, u64)) -> (Result<(), Failure>, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        let limits = (Duration::from_millis(limits.0), Duration::from_millis(limits.1));
        let result = run_within(command, folder.path().join("output"), stop, limits).await;
        (result, std::fs::read_to_string(folder.path().join("output")).unwrap())
    }

    #[tokio::test]
    async fn what_it_prints_and_how_it_ends_is_told() {
        let (result, output) = script("echo out; echo err >&2; exit 3", CancellationToken::new(), (9000, 100)).await;
        assert!(matches!(result, Err(Failure::Status(status)) if status.code() == Some(3)));
        assert_eq!(output, "out\nerr\n");
        assert!(script("true", CancellationToken::new(), (9000, 100)).await.0.is_ok());
    }

    #[tokio::test]
    async fn one_that_hangs_is_killed_with_what_it_has_started() {
        let start = Instant::now();
        let hangs = "trap '' TERM; sleep 60 & sleep 60; sleep 60; sleep 60";
        let (result, _) = script(hangs, CancellationToken::new(), (200, 200)).await;
        assert!(matches!(result, Err(Failure::TooLong)), "{result:?}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn one_that_is_stopped_may_end_by_itself() {
        let stop = CancellationToken::new();
        stop.cancel();
        let waits = "trap 'echo asked; exit 1' TERM; while :; do sleep 0.05; done";
        let (result, output) = script(waits, stop, (9000, 9000)).await;
        assert!(matches!(result, Err(Failure::Stopped)), "{result:?}");
        // The request may come before the shell has set its trap, and some shells tell what has become of a program of theirs.
        assert!(output.ends_with("asked\n") || output.is_empty(), "{output}");
    }
}
