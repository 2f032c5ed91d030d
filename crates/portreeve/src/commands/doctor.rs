//! `portreeve doctor`: what people should do on a cluster so that apps can be served there.

use std::io::{self, Write};

use portreeve_controller::kind::{Kind, KindName};
use portreeve_controller::{Circumstances, Duties, Held, Snapshot, cluster_rules, examine_keycloak, inspect, snapshot};
use portreeve_plan::{Advice, LegacyListeners, Severity, examine};
use serde::Serialize;
use serde_json::json;

use super::write_json;
use crate::cli::{DoctorArgs, Output};
use crate::cluster::Connection;
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
    let connection = Connection::new(&arguments.cluster).await?;
    let client = &connection.client;
    let (config, tenants) = (arguments.operator.config()?, arguments.operator.serves_tenants());
    let migration = config.legacy_listeners != LegacyListeners::Keep;
    let needed = cluster_rules(Duties { migration, tenants });
    let inspection = inspect(client, &needed).await.map_err(|error| connection.failed(error))?;
    // Without that of Tenants the operator works, while it serves none.
    let of_tenants = Kind::of(KindName::Tenant).definition();
    let needs = |definition: &str| tenants || definition != of_tenants;
    let severity = |definition: &str| if needs(definition) { Severity::Required } else { Severity::Advised };
    let tls_routes = arguments.operator.choices.tls_routes();
    let told = Circumstances { config, tls_routes, tenants, ..Circumstances::default() };
    let Snapshot { world, unread, undefined, .. } =
        snapshot(client, told, crate::now()).await.map_err(|error| connection.failed(error))?;
    for (kind, why) in unread {
        say(format_args!("warning: {kind} could not be read, and what depends on it is not examined: {why}"));
    }
    let definitions = undefined.iter().map(|definition| lacking(definition, severity(definition))).collect();
    let mut advice = [examine(&world), inspection.advice(), definitions].concat();
    // Before any app asks for sign-in, a platform need not have a Keycloak.
    let signs_in = world.apps.iter().any(|app| app.spec.auth.as_ref().is_some_and(|auth| auth.enabled));
    if let Some(keycloak) = arguments.operator.choices.keycloak().filter(|_| signs_in) {
        let told = world.config.login.as_ref().and_then(|login| login.keycloak.as_ref());
        let browsers = told.and_then(|keycloak| keycloak.external_realm_url.as_deref());
        advice.extend(examine_keycloak(client, &keycloak, browsers, &world).await);
    }
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

/// What to do where a kind of owners is not defined.
fn lacking(definition: &str, severity: Severity) -> Advice {
    let finding = format!("the cluster lacks the CRD {definition}");
    Advice::new(severity, "definitions", finding, "install the chart of Portreeve, which has it")
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
