//! What the operator would write in a cluster as it is now.

use std::io::{self, Write};

use portreeve_plan::{ObjectRef, Plan, StatusWrite, plan};
use serde::Serialize;
use serde_json::Value;

use super::super::{status_table, write_json};
use super::write_difference;
use crate::cli::{ClusterSource, Output};
use crate::difference::{Difference, Live, of_plan};
use crate::exit::Exit;
use crate::live;
use crate::output::print;
use crate::report::{Row, State, owner_rows};
use crate::text::Style;

/// What is printed.
#[derive(Serialize)]
struct Printed<'a> {
    /// Every body that would be applied.
    objects: Vec<&'a Value>,
    /// Every status that would be written.
    statuses: &'a [StatusWrite],
    /// What would be deleted.
    deletes: &'a [ObjectRef],
    /// How every owner would stand.
    rows: &'a [Row],
}

/// Reads the cluster and prints the plan, or what it would change.
pub(super) async fn run(source: ClusterSource, output: Output, diff: bool) -> anyhow::Result<Exit> {
    let live = live::read(source).await?;
    live.expect_all()?;
    let plan = plan(&live.world);
    let objects = Live::new(&live.objects);
    let differences = of_plan(&plan, &objects);
    if diff {
        return write_difference(&differences);
    }
    let rows = rows(&live.objects, &plan);
    let printed = Printed {
        objects: plan.apply.iter().map(|apply| &apply.body).collect(),
        statuses: &plan.statuses,
        deletes: &plan.delete,
        rows: &rows,
    };
    print(|out| match output {
        Output::Json => write_json(out, &printed),
        Output::Yaml => write_yaml(out, &printed),
        Output::Table => write_table(out, &rows, &differences, Style::of_stdout()),
    })?;
    Ok(if rows.iter().all(|row| row.state == State::Ready) { Exit::Good } else { Exit::Refused })
}

/// How every owner would stand.
fn rows(objects: &[Value], plan: &Plan) -> Vec<Row> {
    let owners = objects.iter().filter(|object| matches!(object["kind"].as_str(), Some("NebariApp" | "Tenant")));
    let owners: Vec<_> = owners.map(|object| with_status(object, plan)).collect();
    owner_rows(owners.iter().map(|(owner, object)| (owner, object)))
}

/// The object with the status that would be written, where one would be.
fn with_status(object: &Value, plan: &Plan) -> (ObjectRef, Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owner = ObjectRef {
        api_version: text(&object["apiVersion"]),
        kind: text(&object["kind"]),
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        name: text(&object["metadata"]["name"]),
    };
    let mut object = object.clone();
    if let Some(write) = plan.statuses.iter().find(|write| write.object == owner) {
        object["status"] = write.status.clone();
    }
    (owner, object)
}

fn write_yaml(out: &mut dyn Write, printed: &Printed<'_>) -> io::Result<()> {
    for value in &printed.objects {
        write!(out, "---\n{}", serde_saphyr::to_string(value).map_err(io::Error::other)?)?;
    }
    for StatusWrite { object, status } in printed.statuses {
        let status = serde_json::json!({
            "apiVersion": object.api_version, "kind": object.kind,
            "metadata": {"name": object.name, "namespace": object.namespace}, "status": status,
        });
        write!(out, "---\n{}", serde_saphyr::to_string(&status).map_err(io::Error::other)?)?;
    }
    printed.deletes.iter().try_for_each(|object| writeln!(out, "# would delete {object}"))
}

fn write_table(out: &mut dyn Write, rows: &[Row], differences: &[Difference], style: Style) -> io::Result<()> {
    writeln!(out, "{}", status_table(rows, style))?;
    if differences.is_empty() {
        return writeln!(out, "nothing would be written");
    }
    let mut table = style.table(&["WOULD", "KIND", "NAMESPACE", "NAME"]);
    for difference in differences {
        let ObjectRef { kind, namespace, name, .. } = &difference.object;
        table.add_row([difference.verb(), kind, namespace.as_deref().unwrap_or("-"), name]);
    }
    writeln!(out, "{table}")
}
