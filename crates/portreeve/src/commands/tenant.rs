//! `portreeve tenant`: what people ask of the operator for one tenant.

use std::time::Duration;

use anyhow::Context;
use kube::Api;
use kube::api::{Patch, PatchParams};
use portreeve_api::Tenant;
use portreeve_api::conditions::{MOVING, reasons};
use portreeve_api::names::labels::MOVE_TO;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cli::{MoveArgs, TenantCommand, TenantCommandArgs};
use crate::cluster::Connection;
use crate::exit::Exit;
use crate::output::say;

/// How often a tenant is looked at while it moves.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the operator may take to say that a tenant cannot be moved.
const ANSWER: Duration = Duration::from_secs(15);

/// Runs the command.
pub async fn run(arguments: TenantCommandArgs) -> anyhow::Result<Exit> {
    let TenantCommand::Move(arguments) = arguments.command;
    let connection = Connection::new(&arguments.cluster).await?;
    let tenants: Api<Tenant> = Api::all(connection.client.clone());
    let patch = json!({ "metadata": { "annotations": { MOVE_TO: arguments.to } } });
    tenants
        .patch(&arguments.tenant, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map_err(|error| connection.failed(error))
        .with_context(|| format!("failed to ask for Tenant {} to be moved", arguments.tenant))?;
    if arguments.no_wait {
        return Ok(Exit::Good);
    }
    wait(&tenants, &connection, &arguments).await
}

/// How a move stands, as the Tenant's status says.
enum Standing {
    Arrived,
    Blocked(String),
    /// What it waits for.
    Under(String),
    /// The operator has not said anything about it.
    Unknown,
}

async fn wait(tenants: &Api<Tenant>, connection: &Connection, arguments: &MoveArgs) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let mut told = String::new();
    while begun.elapsed() < Duration::from_secs(arguments.timeout) {
        let tenant = tenants.get(&arguments.tenant).await.map_err(|error| connection.failed(error))?;
        match standing(&tenant, &arguments.to) {
            Standing::Arrived => {
                say(format_args!("Tenant {} is served by Gateway {}", arguments.tenant, arguments.to));
                return Ok(Exit::Good);
            }
            Standing::Under(step) if step != told => {
                say(format_args!("{step}"));
                told = step;
            }
            // What was said before the request may be about another one.
            Standing::Blocked(why) if begun.elapsed() > ANSWER => {
                say(format_args!("Tenant {} is not moved: {why}", arguments.tenant));
                return Ok(Exit::Refused);
            }
            _ => {}
        }
        sleep(INTERVAL).await;
    }
    say(format_args!("Tenant {} has not arrived yet; the operator goes on", arguments.tenant));
    Ok(Exit::Refused)
}

fn standing(tenant: &Tenant, to: &str) -> Standing {
    let Some(status) = &tenant.status else { return Standing::Unknown };
    match status.conditions.iter().find(|condition| condition.type_ == MOVING) {
        Some(condition) if condition.reason == reasons::MOVE_BLOCKED => Standing::Blocked(condition.message.clone()),
        Some(condition) => Standing::Under(condition.message.clone()),
        None if status.apps_gateway.as_ref().is_some_and(|gateway| gateway.name == to) => Standing::Arrived,
        None => Standing::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(gateway: &str, moving: Option<&str>) -> Tenant {
        let conditions: Vec<_> = moving
            .map(|reason| {
                json!({
                    "type": "Moving", "status": "True", "reason": reason, "message": "why",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .into_iter()
            .collect();
        let status = json!({ "appsGateway": { "name": gateway, "namespace": "gw" }, "conditions": conditions });
        let object = json!({
            "apiVersion": "kubespaces.io/v1alpha1", "kind": "Tenant", "metadata": { "name": "acme" },
            "spec": { "owner": "jo" }, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_tenant_has_arrived_when_nothing_is_left_to_do() {
        let is = |gateway: &str, moving: Option<&str>| match standing(&tenant(gateway, moving), "apps-2") {
            Standing::Arrived => "arrived",
            Standing::Blocked(_) => "blocked",
            Standing::Under(_) => "under way",
            Standing::Unknown => "unknown",
        };
        assert_eq!(is("apps", None), "unknown");
        assert_eq!(is("apps", Some(reasons::MOVE_PREPARING)), "under way");
        assert_eq!(is("apps-2", Some(reasons::MOVE_FOLLOWING)), "under way");
        assert_eq!(is("apps", Some(reasons::MOVE_BLOCKED)), "blocked");
        assert_eq!(is("apps-2", None), "arrived");
    }
}
