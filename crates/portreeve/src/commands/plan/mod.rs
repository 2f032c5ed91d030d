//! `portreeve plan`: what serving a directory, or the operator in a cluster, would write.

mod cluster;

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::{look, status_table, write_json};
use crate::cli::{Output, PlanArgs, Source};
use crate::difference::{self, Difference, of_world};
use crate::exit::Exit;
use crate::input::Input;
use crate::manifest::Finding;
use crate::offline::Offline;
use crate::output::{print, say};
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
pub async fn run(arguments: PlanArgs) -> anyhow::Result<Exit> {
    let PlanArgs { manifests, output, diff, cluster, choices, input } = arguments;
    match input.into_source(manifests, cluster, &choices, |name| std::env::var_os(name))? {
        Source::Directory(input) => directory(&input, output, diff),
        Source::Cluster(source) => cluster::run(*source, output, diff).await,
    }
}

fn directory(input: &Input, output: Output, diff: bool) -> anyhow::Result<Exit> {
    let planned = look(input)?;
    let rows = rows(&planned.world, &planned.converged.table, &planned.sockets);
    for finding in &planned.findings {
        say(finding);
    }
    let warnings: Vec<_> =
        planned.converged.warnings.iter().map(|warning| format!("{}: {}", warning.subject, warning.message)).collect();
    for warning in &warnings {
        say(format_args!("warning: {warning}"));
    }
    if diff {
        let found = write_difference(&of_world(&planned.world))?;
        return Ok(fault(&planned).unwrap_or(found));
    }
    let printed = Printed {
        objects: planned.world.applied().map(|(_, body)| body).collect(),
        statuses: statuses(&planned.world),
        rows: &rows,
        findings: &planned.findings,
        warnings,
    };
    print(|out| match output {
        Output::Json => write_json(out, &printed),
        Output::Yaml => write_yaml(out, &printed),
        Output::Table => write_table(out, &printed, Style::of_stdout()),
    })?;
    Ok(exit(&planned, &rows))
}

/// Prints what would change, and says whether anything would.
fn write_difference(differences: &[Difference]) -> anyhow::Result<Exit> {
    print(|out| difference::write(out, differences))?;
    Ok(if differences.is_empty() { Exit::Good } else { Exit::Refused })
}

fn exit(planned: &Offline, rows: &[Row]) -> Exit {
    let is_ready = rows.iter().all(|row| row.state == State::Ready);
    fault(planned).unwrap_or(if is_ready { Exit::Good } else { Exit::Refused })
}

/// Why the plan is not good for anything, if it is not.
fn fault(planned: &Offline) -> Option<Exit> {
    if let Some(unsettled) = &planned.converged.unsettled {
        say(unsettled);
        return Some(Exit::Fault);
    }
    planned.findings.iter().any(Finding::is_error).then_some(Exit::BadInput)
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

fn write_yaml(out: &mut dyn Write, printed: &Printed<'_>) -> io::Result<()> {
    for value in printed.objects.iter().copied().chain(&printed.statuses) {
        let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
        write!(out, "---\n{text}")?;
    }
    Ok(())
}

fn write_table(out: &mut dyn Write, printed: &Printed<'_>, style: Style) -> io::Result<()> {
    let mut objects = style.table(&["WOULD APPLY", "NAMESPACE", "NAME"]);
    for object in &printed.objects {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        objects.add_row([text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])]);
    }
    writeln!(out, "{}", status_table(printed.rows, style))?;
    if printed.objects.is_empty() { Ok(()) } else { writeln!(out, "{objects}") }
}
