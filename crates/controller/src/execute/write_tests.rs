use kube::core::DynamicObject;
use serde_json::json;

use super::*;
use crate::reflect::cache::Change;
use crate::reflect::kind::KindName;
use crate::reflect::read;

const API_VERSION: &str = "reconcilers.nebari.dev/v1";

fn app(metadata: &Value, status: &Value) -> Value {
    let mut app = json!({
        "apiVersion": API_VERSION, "kind": "NebariApp",
        "metadata": {"namespace": "a", "name": "x", "uid": "1", "resourceVersion": "7"},
        "spec": {"hostname": "x.test", "service": {"name": "x", "port": 80}}, "status": status,
    });
    for (field, value) in metadata.as_object().unwrap() {
        app["metadata"][field] = value.clone();
    }
    app
}

fn cache(object: Value) -> Cache {
    let mut cache = Cache::default();
    cache.start(KindName::NebariApp, "v1");
    let (key, entry) = read(Kind::of(KindName::NebariApp), serde_json::from_value::<DynamicObject>(object).unwrap());
    cache.store_mut(KindName::NebariApp).unwrap().take(Change::Applied(key, entry));
    cache.forget_touched();
    cache
}

fn the_app() -> ObjectRef {
    ObjectRef {
        api_version: API_VERSION.to_owned(),
        kind: "NebariApp".to_owned(),
        namespace: Some("a".to_owned()),
        name: "x".to_owned(),
    }
}

fn requests(plan: Plan, cache: &Cache) -> Vec<Request> {
    prepare(plan, cache).0.into_iter().flatten().map(|write| write.request).collect()
}

#[test]
fn a_status_is_written_for_the_state_that_was_read_and_only_where_it_differs() {
    let before = json!({
        "conditions": [], "hostname": "old.test", "authConfigHash": "h",
        "serviceDiscovery": {"enabled": true, "url": "https://old.test"},
    });
    let after = json!({"hostname": "x.test", "authConfigHash": "h", "serviceDiscovery": {"enabled": true}});
    let plan = Plan { statuses: vec![StatusWrite { object: the_app(), status: after }], ..Plan::default() };
    let patch = json!({
        "metadata": {"resourceVersion": "7"},
        "status": {"hostname": "x.test", "serviceDiscovery": {"url": null}},
    });
    assert_eq!(requests(plan, &cache(app(&json!({}), &before))), [Request::Status(patch)]);
}

#[test]
fn what_is_released_loses_our_finalizer_and_no_other() {
    let metadata = json!({"finalizers": ["example.com/other", "apps.nebari.dev/finalizer"]});
    let plan = || Plan { release: vec![the_app()], ..Plan::default() };
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": "1"},
        {"op": "test", "path": "/metadata/finalizers/1", "value": "apps.nebari.dev/finalizer"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]);
    assert_eq!(requests(plan(), &cache(app(&metadata, &json!({})))), [Request::Patch(patch)]);
    assert_eq!(requests(plan(), &cache(app(&json!({}), &json!({})))), []);
}

#[test]
fn only_what_is_there_and_not_going_already_is_deleted() {
    let plan = || Plan { delete: vec![the_app()], ..Plan::default() };
    let delete = Request::Delete { uid: "1".to_owned(), resource_version: "7".to_owned() };
    assert_eq!(requests(plan(), &cache(app(&json!({}), &json!({})))), [delete]);
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(requests(plan(), &cache(app(&going, &json!({})))), []);
}

#[test]
fn what_has_changed_since_the_plan_was_made_is_left_to_the_next_one() {
    let mut cache = cache(app(&json!({}), &json!({})));
    let changed = app(&json!({"resourceVersion": "8"}), &json!({}));
    let (key, entry) = read(Kind::of(KindName::NebariApp), serde_json::from_value(changed).unwrap());
    cache.store_mut(KindName::NebariApp).unwrap().take(Change::Applied(key, entry));
    assert_eq!(requests(Plan { delete: vec![the_app()], ..Plan::default() }, &cache), []);
}

#[test]
fn objects_of_one_kind_go_side_by_side_and_kinds_one_after_the_other() {
    let apply = |kind: &str, name: &str| Apply {
        object: ObjectRef { kind: kind.to_owned(), name: name.to_owned(), ..the_app() },
        body: json!({}),
    };
    let plan = Plan { apply: vec![apply("A", "1"), apply("A", "2"), apply("B", "1")], ..Plan::default() };
    let (stages, _) = prepare(plan, &Cache::default());
    let sizes: Vec<_> = stages.iter().map(Vec::len).collect();
    assert_eq!(sizes, [2, 1]);
}

#[test]
fn an_event_waits_for_the_status_that_it_goes_with() {
    let event = |about: ObjectRef| Event { about, warning: false, reason: "R".to_owned(), message: "m".to_owned() };
    let other = ObjectRef { name: "y".to_owned(), ..the_app() };
    let plan = Plan {
        statuses: vec![StatusWrite { object: the_app(), status: json!({"hostname": "x.test"}) }],
        events: vec![event(the_app()), event(other.clone())],
        ..Plan::default()
    };
    let (stages, news) = prepare(plan, &cache(app(&json!({}), &json!({}))));
    assert_eq!(news, [event(other)]);
    assert_eq!(stages[0][0].events, [event(the_app())]);
}

#[test]
fn a_status_waits_once_for_the_objects_of_its_owner() {
    let write = |verb, object: &ObjectRef, owner: &ObjectRef| Write {
        object: object.clone(),
        verb,
        request: Request::Apply(Value::Null),
        owner: Some(owner.clone()),
        seen: 0,
        events: Vec::new(),
    };
    let (app, other) = (the_app(), ObjectRef { name: "other".to_owned(), ..the_app() });
    let route = ObjectRef { kind: "HTTPRoute".to_owned(), ..the_app() };
    let stages = || {
        let statuses = vec![write(Verb::Status, &app, &app), write(Verb::Status, &other, &other)];
        vec![vec![write(Verb::Apply, &route, &app)], statuses]
    };
    let mut first = stages();
    let held = hold_statuses(&mut first, &BTreeSet::new());
    assert_eq!(held, BTreeSet::from([app.clone()]));
    assert_eq!(first[1].iter().map(|write| &write.object).collect::<Vec<_>>(), [&other]);
    let mut second = stages();
    assert!(hold_statuses(&mut second, &held).is_empty());
    assert_eq!(second, stages());
}
