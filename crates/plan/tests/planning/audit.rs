//! That the audit sees what law 7 forbids: a plan that opens an app's route, in worlds where nothing protects it.

use std::sync::Arc;

use portreeve_api::SecurityPolicy;
use portreeve_plan::{Fault, Plan, World, audit};
use serde_json::{Value, json};

use crate::support::{Cluster, lawful_plan};

/// The world in which the route may open, and the plan that opens it.
fn opening() -> (World, Plan) {
    let mut cluster = Cluster::read(include_str!("../../cases/login-switched-on/in.yaml"));
    for _ in 0..10 {
        let world = cluster.world();
        let plan = lawful_plan(&world);
        let opens = plan.apply.iter().any(|apply| {
            let leads = apply.body["spec"]["rules"][0]["backendRefs"].as_array().is_some_and(|list| !list.is_empty());
            apply.object.kind == "HTTPRoute" && leads
        });
        if opens {
            return (world, plan);
        }
        cluster.execute(&plan);
        if plan.is_empty() {
            cluster.answer();
        }
    }
    panic!("the route never opens");
}

/// What is wrong with a policy, and how it comes to be.
type Change = (&'static str, fn(&mut Value));

fn with_policy(world: &World, change: impl Fn(&mut Value)) -> World {
    let mut world = world.clone();
    for policy in &mut world.security_policies {
        let mut value = serde_json::to_value(&**policy).unwrap();
        change(&mut value);
        *policy = Arc::new(serde_json::from_value::<SecurityPolicy>(value).unwrap());
    }
    world
}

#[test]
fn a_policy_counts_only_where_it_is_in_force_on_this_route_at_this_parent_in_this_form() {
    let (world, plan) = opening();
    assert_eq!(world.security_policies.len(), 1);
    let changes: [Change; 8] = [
        ("it is of another kind of route", |policy| policy["spec"]["targetRefs"][0]["kind"] = "GRPCRoute".into()),
        ("it is of one rule", |policy| policy["spec"]["targetRefs"][0]["sectionName"] = "one".into()),
        ("it signs nobody in", |policy| policy["spec"]["oidc"] = Value::Null),
        ("another parent has accepted it", |policy| {
            policy["status"]["ancestors"][0]["ancestorRef"]["name"] = "other".into();
        }),
        ("another listener has accepted it", |policy| {
            policy["status"]["ancestors"][0]["ancestorRef"]["sectionName"] = "other".into();
        }),
        ("an earlier form of it was accepted", |policy| policy["metadata"]["generation"] = 7.into()),
        ("it is refused", |policy| {
            policy["status"]["ancestors"][0]["conditions"][0]["status"] = "False".into();
        }),
        ("it is going", |policy| policy["metadata"]["deletionTimestamp"] = "2026-08-01T11:00:00Z".into()),
    ];
    for (what, change) in changes {
        let faults = audit(&with_policy(&world, change), &plan);
        assert!(faults.iter().any(|fault| matches!(fault, Fault::Unprotected(_))), "{what}: {faults:?}");
    }
    let any_listener =
        |policy: &mut Value| policy["status"]["ancestors"][0]["ancestorRef"]["sectionName"] = json!(null);
    assert_eq!(audit(&with_policy(&world, any_listener), &plan), [], "one that names no listener means all");
}
