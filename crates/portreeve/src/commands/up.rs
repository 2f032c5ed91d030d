//! `portreeve up`: serve a directory, and follow its changes.

use std::net::TcpListener as StdListener;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::status_table;
use crate::access_log::{AccessLog, Lines};
use crate::changes::{Change, changes};
use crate::cli::{LogFormat, UpArgs};
use crate::exit::Exit;
use crate::gateway_admin::{Admin, AdminAddress, Numbers, Witness};
use crate::handover::{Inheritance, Offer};
use crate::open_files::allow_connections;
use crate::output::say;
use crate::standalone::{Snapshot, Standalone, StartError};
use crate::text::Style;

/// Runs the command until a signal comes.
pub async fn run(arguments: UpArgs) -> anyhow::Result<Exit> {
    let (format, drain, admin_address) = (arguments.log_format, arguments.drain(), arguments.admin_address);
    let settings = arguments.limits.settings(allow_connections());
    let input = arguments.input.into_input(arguments.manifests, |name| std::env::var_os(name))?;
    let lines = Arc::new(Lines::start().context("failed to start a thread")?);
    let out = Out { lines: lines.clone(), format };
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;

    say(format_args!("reading {}", input.manifests.display()));
    let state = input.state.clone();
    let taken = if arguments.take_over { take_over(&state).await? } else { None };
    let (inherited, predecessor) = taken.unzip();
    let (inherited, admin_listener) = split_admin(inherited.unwrap_or_default(), admin_address);
    let numbers = Arc::new(Numbers::default());
    let witness = Witness { log: AccessLog { lines, format }, numbers: numbers.clone() };
    let standalone = Standalone::start(input, settings, Arc::new(witness), inherited).await?;
    if let Some(predecessor) = predecessor {
        predecessor.confirm().context("the process that was to be replaced is gone")?;
    }
    let snapshots = standalone.snapshots();
    let admin = Admin { monitor: standalone.monitor(), snapshots: snapshots.clone(), numbers };
    let succession = Succession {
        answering: answer(admin, admin_address, admin_listener).await,
        offer: Offer::open(&state).map_err(|error| say(format_args!("no other process can take over: {error}"))).ok(),
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        followed = out.follow(snapshots) => followed?,
        () = succession.completed(&standalone) => {}
    }
    let limit = drain.as_secs();
    say(format_args!("stopping: open connections may go on for {limit} s; a second signal cuts them"));
    let cut = tokio::select! {
        cut = standalone.shutdown(drain) => cut,
        _ = interrupt.recv() => return Ok(Exit::Interrupted),
        _ = terminate.recv() => return Ok(Exit::Interrupted),
    };
    if cut > 0 {
        say(format_args!("{cut} connections were cut"));
    }
    out.lines.flush();
    Ok(Exit::Good)
}

/// The sockets of the process that serves now, and the process.
async fn take_over(state: &Path) -> anyhow::Result<Option<(Vec<StdListener>, Inheritance)>> {
    let taken = Inheritance::take(state).await.context("failed to take over from the running portreeve")?;
    Ok(taken.map(|mut taken| (std::mem::take(&mut taken.listeners), taken)))
}

/// Which of the sockets is the admin address's.
fn split_admin(listeners: Vec<StdListener>, admin: AdminAddress) -> (Vec<StdListener>, Option<StdListener>) {
    let is_admin = |listener: &StdListener| listener.local_addr().is_ok_and(|at| AdminAddress::At(at) == admin);
    let (mut admin, others): (Vec<_>, Vec<_>) = listeners.into_iter().partition(is_admin);
    (others, admin.pop())
}

/// Where it is asked how it stands.
struct Answering {
    listener: StdListener,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

/// Lets whoever runs it ask how it stands. Serving goes on where that is not possible.
async fn answer(admin: Admin, address: AdminAddress, inherited: Option<StdListener>) -> Option<Answering> {
    let AdminAddress::At(address) = address else { return None };
    let listener = match inherited {
        Some(listener) => listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)),
        None => TcpListener::bind(address).await,
    };
    let twice = listener.and_then(|listener| Ok((listener.as_fd().try_clone_to_owned()?, listener)));
    match twice {
        Ok((copy, listener)) => Some(Answering { listener: copy.into(), task: tokio::spawn(admin.serve(listener)) }),
        Err(error) => {
            say(format_args!(
                "nobody can ask how it stands: {address}: {error}; give another address with --admin-address"
            ));
            None
        }
    }
}

/// What a process needs to be replaced.
struct Succession {
    /// `None`: none can come.
    offer: Option<Offer>,
    answering: Option<Answering>,
}

impl Succession {
    /// Ends once another process serves in this one's place.
    async fn completed(&self, standalone: &Standalone) {
        let Some(offer) = &self.offer else { return std::future::pending().await };
        loop {
            let copy = self.answering.as_ref().and_then(|answering| answering.listener.try_clone().ok());
            let given = match offer.successor().await {
                Ok(successor) => standalone.hand_over(successor, copy.into_iter().collect()).await,
                Err(error) => Err(error),
            };
            match given {
                Ok(()) => break,
                Err(error) => say(format_args!("another process wanted to take over and did not: {error}")),
            }
        }
        say("another process has taken over");
        if let Some(answering) = &self.answering {
            answering.task.abort();
        }
    }
}

/// Where lines go: in text the table and access lines to standard output and changes to standard error, in JSON
/// everything to standard output.
struct Out {
    lines: Arc<Lines>,
    format: LogFormat,
}

impl Out {
    /// Tells how it stands, and whatever changes; ends only with a fault.
    async fn follow(&self, mut snapshots: watch::Receiver<Arc<Snapshot>>) -> anyhow::Result<()> {
        let mut before = snapshots.borrow_and_update().clone();
        self.start(&before);
        loop {
            snapshots.changed().await.map_err(|_| StartError::Fault)?;
            let after = snapshots.borrow_and_update().clone();
            self.changes(changes(&before, &after));
            before = after;
        }
    }

    /// How it stands at first: what is wrong, then the table.
    fn start(&self, snapshot: &Snapshot) {
        let good = snapshot.sockets.iter().filter(|(_, state)| state.is_ok());
        let sockets = good.map(|(port, state)| (port.clone(), state.clone())).collect();
        let all_well = Snapshot { rows: snapshot.rows.clone(), sockets, ..Snapshot::default() };
        self.changes(changes(&all_well, snapshot));
        match self.format {
            LogFormat::Text => {
                let trust = format!("clients trust the local CA with {}", snapshot.ca_certificate.display());
                self.lines.write(format!("{}\n{trust}", status_table(&snapshot.rows, Style::of_stdout())));
            }
            LogFormat::Json => {
                let sockets: Vec<_> = snapshot.sockets.iter().map(|(port, state)| {
                    json!({"gateway": *port.gateway, "port": port.port, "address": state.as_ref().ok(), "error": state.as_ref().err()})
                }).collect();
                let line = json!({"type": "status", "rows": snapshot.rows, "sockets": sockets, "caCertificate": snapshot.ca_certificate});
                self.lines.write(line.to_string());
            }
        }
    }

    fn changes(&self, changes: Vec<Change>) {
        for change in changes {
            match self.format {
                LogFormat::Text => say(format_args!("{} {}", crate::now(), change.text)),
                LogFormat::Json => {
                    let line = json!({"type": "change", "time": crate::now(), "severity": change.severity, "text": change.text});
                    self.lines.write(line.to_string());
                }
            }
        }
    }
}
