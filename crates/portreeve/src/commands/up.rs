//! `portreeve up`: serve a directory, and follow its changes.

use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::status_table;
use crate::access_log::{AccessLog, Lines};
use crate::changes::{Change, changes};
use crate::cli::{LogFormat, UpArgs};
use crate::exit::Exit;
use crate::output::say;
use crate::standalone::{Snapshot, Standalone, StartError};
use crate::text::Style;

/// Runs the command until a signal comes.
pub async fn run(arguments: UpArgs) -> anyhow::Result<Exit> {
    let (format, drain) = (arguments.log_format, arguments.drain());
    let input = arguments.input.into_input(arguments.manifests, |name| std::env::var_os(name))?;
    let lines = Arc::new(Lines::start().context("failed to start a thread")?);
    let out = Out { lines: lines.clone(), format };
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;

    say(format_args!("reading {}", input.manifests.display()));
    let standalone = Standalone::start(input, Arc::new(AccessLog { lines, format })).await?;
    let mut snapshots = standalone.snapshots();
    let mut before = snapshots.borrow_and_update().clone();
    out.start(&before);
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            alive = snapshots.changed() => {
                alive.map_err(|_| StartError::Fault)?;
                let after = snapshots.borrow_and_update().clone();
                out.changes(changes(&before, &after));
                before = after;
            }
        }
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

/// Where lines go: in text the table and access lines to standard output and changes to standard error, in JSON
/// everything to standard output.
struct Out {
    lines: Arc<Lines>,
    format: LogFormat,
}

impl Out {
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
