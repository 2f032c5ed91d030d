//! `portreeve doctor`: what people should do on a cluster so that apps can be served there.

use std::io::{self, Write};

use anyhow::Context;
use kube::Client;
use portreeve_controller::{Circumstances, Duties, Held, Snapshot, cluster_rules, inspect, snapshot};
use portreeve_plan::{Advice, LegacyListeners, Severity, examine};
use serde::Serialize;
use serde_json::json;

use super::write_json;
use crate::cli::{DoctorArgs, Output};
use crate::cluster::cluster;
use crate::exit::Exit;
use crate::output::{print, say};
use crate::text::Style;

/// What is printed.
#[derive(Serialize)]
struct Printed {
    advice: Vec<Advice>,
    /// Who holds the leases of the operator and of those that it replaces.
    leases: Vec<serde_json::Value>,
}

/// Runs the command.
pub async fn run(arguments: DoctorArgs) -> anyhow::Result<Exit> {
    let cluster = cluster(arguments.kubeconfig.as_deref()).await.context("failed to find out which cluster to use")?;
    let client = Client::try_from(cluster).context("failed to prepare the connection to the API server")?;
    let config = arguments.operator.config();
    let migration = config.legacy_listeners != LegacyListeners::Keep;
    let needed = cluster_rules(Duties { migration, ..Duties::default() });
    let inspection = inspect(&client, &needed).await.context("failed to ask the API server")?;
    let told = Circumstances { config, tls_routes: arguments.operator.tls_routes(), tenants: false };
    let Snapshot { world, unread, .. } =
        snapshot(&client, told, crate::now()).await.context("failed to read the cluster")?;
    for (kind, why) in unread {
        say(format_args!("warning: {kind} could not be read, and what depends on it is not examined: {why}"));
    }
    let mut advice = [examine(&world), inspection.advice()].concat();
    advice.sort();
    let leases = inspection.leases.iter().map(|Held { lease, holder }| json!({"lease": lease, "holder": holder}));
    let is_well = advice.iter().all(|advice| advice.severity != Severity::Required);
    let printed = Printed { leases: leases.collect(), advice };
    print(|out| match arguments.output {
        Output::Json => write_json(out, &printed),
        Output::Yaml => out.write_all(serde_saphyr::to_string(&printed).map_err(io::Error::other)?.as_bytes()),
        Output::Table => write_table(out, &printed.advice, &inspection.leases, Style::of_stdout()),
    })?;
    Ok(if is_well { Exit::Good } else { Exit::Refused })
}

fn write_table(out: &mut dyn Write, advice: &[Advice], leases: &[Held], style: Style) -> io::Result<()> {
    if advice.is_empty() {
        writeln!(out, "nothing is to be done")?;
    } else {
        let mut table = style.table(&["", "SUBJECT", "FINDING"]);
        for one in advice {
            let finding = format!("{}\nto do: {}", one.finding, one.action);
            table.add_row([word(one.severity), &one.subject, &finding]);
        }
        writeln!(out, "{table}")?;
    }
    for one in advice {
        if let Some(yaml) = &one.yaml {
            writeln!(out, "\n# {}: {}\n{}", one.subject, one.finding, yaml.trim_end())?;
        }
    }
    for Held { lease, holder } in leases {
        writeln!(out, "lease {lease} is held by {}", holder.as_deref().unwrap_or("nobody"))?;
    }
    Ok(())
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Required => "required",
        Severity::Advised => "advised",
    }
}
