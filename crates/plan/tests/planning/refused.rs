//! What the API server refuses reaches a condition (law 5), and is planned again; the shell says when it is tried again.

use portreeve_plan::{ObjectRef, plan};

use crate::support::Cluster;

const APP: &str = include_str!("../../cases/http-shared-listener/in.yaml");

#[test]
fn what_the_api_server_refuses_is_told_with_its_words() {
    let mut world = Cluster::read(APP).world();
    let first = plan(&world);
    let route = first.apply.iter().find(|apply| apply.object.kind == "HTTPRoute").expect("a route").object.clone();
    world.refused = [(route.clone(), "rules[0].path: Invalid value".to_owned())].into();
    let second = plan(&world);
    assert!(second.apply.iter().any(|apply| apply.object == route), "it is wanted as before");
    let status = &second.statuses[0].status;
    let told = status["conditions"].as_array().expect("conditions").iter().find(|one| one["type"] == "RoutingReady");
    let told = told.expect("RoutingReady");
    assert_eq!((&told["status"], &told["reason"]), (&"False".into(), &"WriteRefused".into()));
    let message = told["message"].as_str().expect("a message");
    assert!(message.ends_with("rules[0].path: Invalid value"), "{message}");
    let elsewhere = ObjectRef { name: "another".to_owned(), ..route };
    world.refused = [(elsewhere, "not this one".to_owned())].into();
    assert_eq!(plan(&world).statuses, first.statuses, "what others are refused is nobody else's matter");
}
