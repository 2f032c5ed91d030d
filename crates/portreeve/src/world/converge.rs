use jiff::Timestamp;
use portreeve_attach::{Attached, DataPlane, Settings, StatusOf, attach};
use portreeve_plan::{Config, Event, ObjectRef, Plan, plan};
use portreeve_table::Table;
use serde::Serialize;
use serde_json::json;

use super::certificates::certify;
use super::{Refused, World};
use crate::authority::Authority;

/// How often plan and attach may answer each other. A world settles in a handful of rounds; this many is a fault.
const MAX_ROUNDS: usize = 40;
/// The `apiVersion` of what routes and listeners are written as.
const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";
/// Likewise of policies.
const ENVOY_GATEWAY: &str = "gateway.envoyproxy.io/v1alpha1";

/// What a world converges under.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// What the platform has configured.
    pub config: &'a Config,
    /// Which Gateways are served.
    pub settings: &'a Settings,
    /// What became of the sockets.
    pub data_plane: &'a DataPlane,
    /// The clock, read once.
    pub now: Timestamp,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Converged {
    /// What is to be served.
    pub table: Table,
    /// What a person should know and no status can say.
    pub warnings: Vec<portreeve_attach::Warning>,
    /// What happened on the way.
    pub events: Vec<Event>,
    /// How often plan and attach were asked.
    pub rounds: usize,
    /// When to converge again although nothing has changed.
    pub wake_at: Option<Timestamp>,
    /// Set when Portreeve is at fault; what is served is then only as good as the last round.
    pub unsettled: Option<Unsettled>,
}

/// Portreeve went on writing, or wrote what an API server would not take. Not the author's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Portreeve did not come to rest, which is a fault of Portreeve: {}", .writes.join("; "))]
pub struct Unsettled {
    /// What it would write next, or could not.
    pub writes: Vec<String>,
}

/// Plans, writes and attaches until there is nothing left to write.
pub fn converge(world: &mut World, authority: &mut Authority, environment: Environment<'_>) -> Converged {
    let mut converged = Converged::default();
    for round in 1..=MAX_ROUNDS {
        converged.rounds = round;
        let mut plan = plan(&world.plan_world(environment.now, environment.config));
        converged.events.append(&mut plan.events);
        let mut refused = Vec::new();
        let mut changed = execute(world, &plan, environment.now, &mut refused);
        changed |= certify(world, authority, environment.now);
        let attached = attach(&world.attach_objects(), environment.settings, environment.data_plane, environment.now);
        changed |= write_statuses(world, &attached, &mut refused);
        converged.table = attached.table;
        converged.warnings = attached.warnings;
        converged.wake_at = plan.wake_at;
        let rests = plan.is_empty() && !changed;
        if rests || !changed || round == MAX_ROUNDS {
            let writes = refused.iter().map(ToString::to_string).chain(writes_of(&plan));
            converged.unsettled = (!rests).then(|| Unsettled { writes: writes.collect() });
            break;
        }
    }
    let renewal = authority.renew_at();
    converged.wake_at = [converged.wake_at, renewal].into_iter().flatten().min();
    converged
}

/// Writes a plan in its order; returns whether that changed anything.
fn execute(world: &mut World, plan: &Plan, now: Timestamp, refused: &mut Vec<Refused>) -> bool {
    let mut changed = false;
    let mut note = |outcome: Result<bool, Refused>| match outcome {
        Ok(change) => changed |= change,
        Err(refusal) => refused.push(refusal),
    };
    for apply in &plan.apply {
        note(world.apply(apply, now));
    }
    for object in &plan.delete {
        note(world.delete(object));
    }
    for write in &plan.statuses {
        note(world.set_status(&write.object, write.status.clone()));
    }
    changed
}

fn write_statuses(world: &mut World, attached: &Attached, refused: &mut Vec<Refused>) -> bool {
    let Attached { gateway_classes, gateways, listener_sets, http_routes, tls_routes, security_policies, .. } =
        attached;
    let mut changed = false;
    changed |= write_each(world, (GATEWAY_API, "GatewayClass"), gateway_classes, refused);
    changed |= write_each(world, (GATEWAY_API, "Gateway"), gateways, refused);
    changed |= write_each(world, (GATEWAY_API, "ListenerSet"), listener_sets, refused);
    changed |= write_each(world, (GATEWAY_API, "HTTPRoute"), http_routes, refused);
    changed |= write_each(world, (GATEWAY_API, "TLSRoute"), tls_routes, refused);
    changed |= write_each(world, (ENVOY_GATEWAY, "SecurityPolicy"), security_policies, refused);
    changed
}

fn write_each<S: Serialize>(
    world: &mut World,
    (api_version, kind): (&str, &str),
    statuses: &[StatusOf<S>],
    refused: &mut Vec<Refused>,
) -> bool {
    let mut changed = false;
    for StatusOf { namespace, name, status } in statuses {
        let object = ObjectRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
        };
        match world.set_status(&object, json!(status)) {
            Ok(change) => changed |= change,
            Err(refusal) => refused.push(refusal),
        }
    }
    changed
}

fn writes_of(plan: &Plan) -> impl Iterator<Item = String> {
    let applies = plan.apply.iter().map(|apply| format!("apply {}", apply.object));
    let deletes = plan.delete.iter().map(|object| format!("delete {object}"));
    let statuses = plan.statuses.iter().map(|write| format!("status of {}", write.object));
    applies.chain(deletes).chain(statuses)
}

#[cfg(test)]
#[path = "converge_tests.rs"]
mod tests;
