//! `portreeve plan`: the objects and statuses that serving a directory would write.

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use super::{look, print_json, status_table};
use crate::cli::{Output, PlanArgs};
use crate::exit::Exit;
use crate::manifest::Finding;
use crate::offline::Offline;
use crate::report::{Row, State, rows};
use crate::text::Style;
use crate::world::World;

/// What is printed.
#[derive(Serialize)]
struct Printed<'a> {
    /// Every object that would be written, whole.
    objects: Vec<&'a Value>,
    /// Every status, with the identity of its object.
    statuses: Vec<Value>,
    /// How every owner would stand.
    rows: &'a [Row],
    findings: &'a [Finding],
    warnings: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: PlanArgs) -> anyhow::Result<Exit> {
    let input = arguments.input.into_input(|name| std::env::var_os(name))?;
    let planned = look(&input)?;
    let rows = rows(&planned.world, &planned.converged.table, &planned.sockets);
    for finding in &planned.findings {
        eprintln!("{finding}");
    }
    let warnings: Vec<_> =
        planned.converged.warnings.iter().map(|warning| format!("{}: {}", warning.subject, warning.message)).collect();
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    let printed = Printed {
        objects: planned.world.applied().map(|(_, body)| body).collect(),
        statuses: statuses(&planned.world),
        rows: &rows,
        findings: &planned.findings,
        warnings,
    };
    match arguments.output {
        Output::Json => print_json(&printed),
        Output::Yaml => print_yaml(&printed),
        Output::Table => print_table(&printed, Style::of_stdout()),
    }
    .context("failed to write to standard output")?;
    Ok(exit(&planned, &rows))
}

fn exit(planned: &Offline, rows: &[Row]) -> Exit {
    if let Some(unsettled) = &planned.converged.unsettled {
        eprintln!("{unsettled}");
        return Exit::Fault;
    }
    if planned.findings.iter().any(Finding::is_error) {
        return Exit::BadInput;
    }
    if rows.iter().all(|row| row.state == State::Ready) { Exit::Good } else { Exit::Refused }
}

fn statuses(world: &World) -> Vec<Value> {
    let with_status = world.objects().filter(|(_, value)| !value["status"].is_null());
    let identity =
        |value: &Value| json!({"name": value["metadata"]["name"], "namespace": value["metadata"]["namespace"]});
    with_status
        .map(|(_, value)| {
            let mut metadata = identity(value);
            if metadata["namespace"].is_null() {
                metadata = json!({"name": metadata["name"]});
            }
            json!({"apiVersion": value["apiVersion"], "kind": value["kind"], "metadata": metadata, "status": value["status"]})
        })
        .collect()
}

fn print_yaml(printed: &Printed<'_>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for value in printed.objects.iter().copied().chain(&printed.statuses) {
        let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
        write!(stdout, "---\n{text}")?;
    }
    Ok(())
}

fn print_table(printed: &Printed<'_>, style: Style) -> io::Result<()> {
    let mut objects = style.table(&["WOULD APPLY", "NAMESPACE", "NAME"]);
    for object in &printed.objects {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        objects.add_row([text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])]);
    }
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", status_table(printed.rows, style))?;
    if printed.objects.is_empty() { Ok(()) } else { writeln!(stdout, "{objects}") }
}
