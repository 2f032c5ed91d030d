//! What each command does with what the library can.

pub mod controller;
pub mod doctor;
pub mod kubeconfig;
pub mod plan;
pub mod tenant;
pub mod top;
pub mod trace;
pub mod up;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::cli::{BadArguments, BadTenants};
use crate::exit::Exit;
use crate::input::Input;
use crate::manifest::{Finding, Severity};
use crate::offline::{Offline, OfflineError, offline};
use crate::output::say;
use crate::report::{Row, ServedName, State};
use crate::standalone::StartError;
use crate::text::Style;

/// How a command ends that could not begin.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    let offline = error.downcast_ref::<OfflineError>().map(|error| match error {
        OfflineError::Manifests(_) => Exit::BadInput,
        OfflineError::State(_) | OfflineError::Authority(_) => Exit::Unable,
    });
    let start = error.downcast_ref::<StartError>().map(|error| match error {
        StartError::Manifests(_) | StartError::Sockets(_) => Exit::BadInput,
        StartError::State(_) | StartError::Authority(_) | StartError::Thread(_) => Exit::Unable,
        StartError::Fault => Exit::Fault,
    });
    let question = error.downcast_ref::<trace::BadQuestion>().map(|_| Exit::BadInput);
    let arguments = error.downcast_ref::<BadArguments>().map(|error| match error {
        BadArguments::State(_) => Exit::Unable,
        BadArguments::Twice(_)
        | BadArguments::DirectoryAndCluster
        | BadArguments::NeedsDirectory(_)
        | BadArguments::Tenants(_) => Exit::BadInput,
    });
    let tenants = error.downcast_ref::<BadTenants>().map(|_| Exit::BadInput);
    let controller = error.downcast_ref::<portreeve_controller::Fault>().map(|error| match error {
        portreeve_controller::Fault::Listen { .. } | portreeve_controller::Fault::Certificate(_) => Exit::Unable,
        portreeve_controller::Fault::Engine(_) | portreeve_controller::Fault::Task(_) => Exit::Fault,
    });
    offline.or(start).or(controller).or(question).or(arguments).or(tenants).unwrap_or(Exit::Unable)
}

/// The table of owners.
pub fn status_table(rows: &[Row], style: Style) -> String {
    let mut table = style.table(&["OWNER", "NAMES", "ADDRESS", "STATE", "REASON"]);
    for row in rows {
        let names: Vec<_> = row.names.iter().map(|name| name.name.clone()).collect();
        let address = |name: &ServedName| name.address.map_or_else(|| "-".to_owned(), |address| address.to_string());
        let addresses: Vec<_> = row.names.iter().map(address).collect();
        let state = format!("{} {}", style.state_mark(row.state), row.state);
        table.add_row([row.subject(), names.join("\n"), addresses.join("\n"), state, reason(row)]);
    }
    table.to_string()
}

/// Why a row is as it is; when all is well one word will do.
fn reason(row: &Row) -> String {
    match (row.state, row.message.as_str()) {
        (State::Ready, _) | (_, "") => row.reason.clone(),
        (_, message) => format!("{}: {message}", row.reason),
    }
}

/// What would be for these manifests; whoever waits at a terminal is told what for.
fn look(input: &Input) -> Result<Offline, OfflineError> {
    if io::stderr().is_terminal() {
        say(format_args!("reading {}", input.manifests.display()));
    }
    offline(input, crate::now())
}

/// Says on standard error what is wrong with manifests.
fn complain(findings: &[Finding]) {
    for finding in findings.iter().filter(|finding| finding.severity != Severity::Info) {
        say(finding);
    }
}

/// Writes one JSON value and ends its line.
fn write_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}
