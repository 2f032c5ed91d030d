use super::*;

fn object(kind: &str, name: &str) -> ObjectRef {
    let (api_version, namespace) = match kind {
        "NebariApp" => ("reconcilers.nebari.dev/v1", Some("team")),
        "Namespace" => ("v1", None),
        "Service" => ("v1", Some("team")),
        _ => ("gateway.networking.k8s.io/v1", Some("team")),
    };
    ObjectRef {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: namespace.map(Into::into),
        name: name.into(),
    }
}

fn written(object: &ObjectRef, fields: &Value) -> (ObjectRef, Arc<Value>) {
    let mut value = json!({
        "apiVersion": object.api_version, "kind": object.kind, "metadata": {"name": object.name, "namespace": object.namespace},
    });
    for (name, field) in fields.as_object().unwrap() {
        value[name] = field.clone();
    }
    (object.clone(), Arc::new(value))
}

fn world_of(objects: &[(ObjectRef, Arc<Value>)]) -> World {
    let mut world = World::default();
    assert_eq!(world.rewrite(objects.iter().cloned().collect(), true), []);
    world
}

fn gateway(ports: &[u16]) -> (ObjectRef, Arc<Value>) {
    let listeners: Vec<_> =
        ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port, "protocol": "HTTP"})).collect();
    written(&object("Gateway", "g"), &json!({"spec": {"gatewayClassName": "c", "listeners": listeners}}))
}

fn app() -> (ObjectRef, Arc<Value>) {
    written(&object("NebariApp", "hub"), &json!({"spec": {"hostname": "a.test", "service": {"name": "s", "port": 1}}}))
}

fn body(object: &ObjectRef, spec: &Value) -> Apply {
    let (object, value) = written(object, &json!({ "spec": spec }));
    Apply { object, body: Value::clone(&value) }
}

#[test]
fn an_object_is_shown_as_an_api_server_would() {
    let namespace = object("Namespace", "team");
    let world = world_of(&[written(&namespace, &json!({})), app()]);
    let metadata = &world.get(&namespace).unwrap()["metadata"];
    assert_eq!(metadata["labels"], json!({"kubernetes.io/metadata.name": "team"}));
    assert_eq!(metadata["generation"], 1);
    // A uid that lasts is one that never changes from one version to the next.
    assert_eq!(world.get(&app().0).unwrap()["metadata"]["uid"], "00c81ba9-bf2f-d775-952c-76935cf5fbc7");
}

#[test]
fn the_generation_counts_changes_of_the_spec() {
    let mut world = world_of(&[gateway(&[80])]);
    let key = object("Gateway", "g");
    let generation = |world: &World| world.get(&key).unwrap()["metadata"]["generation"].clone();
    let mut labelled = Value::clone(&gateway(&[80]).1);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    world.rewrite([(key.clone(), Arc::new(labelled))].into(), true);
    world.set_status(&key, json!({"conditions": []})).unwrap();
    assert_eq!(generation(&world), 1);
    world.rewrite([gateway(&[80, 81])].into(), true);
    assert_eq!(generation(&world), 2);
    assert_eq!(world.get(&key).unwrap()["status"], json!({"conditions": []}));
}

#[test]
fn what_is_applied_goes_over_what_is_written_and_leaves_no_trace() {
    let key = object("Gateway", "g");
    let mut world = world_of(&[gateway(&[80])]);
    let names = |world: &World| {
        let listeners = world.get(&key).unwrap()["spec"]["listeners"].as_array().cloned().unwrap();
        listeners.iter().map(|listener| listener["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let entry = |name: &str| body(&key, &json!({"listeners": [{"name": name, "port": 443, "protocol": "HTTPS"}]}));
    assert_eq!(world.apply(&entry("t-a"), Timestamp::UNIX_EPOCH), Ok(true));
    assert_eq!(world.apply(&entry("t-a"), Timestamp::UNIX_EPOCH), Ok(false));
    assert_eq!(names(&world), ["p80", "t-a"]);
    assert_eq!(world.get(&key).unwrap()["metadata"]["managedFields"][0]["manager"], "portreeve");
    // The next body no longer has the entry, and its author changes the rest meanwhile.
    world.apply(&entry("t-b"), Timestamp::UNIX_EPOCH).unwrap();
    world.rewrite([gateway(&[80, 81])].into(), true);
    assert_eq!(names(&world), ["p80", "p81", "t-b"]);
    assert_eq!(world.delete(&key), Ok(true));
    assert_eq!(names(&world), ["p80", "p81"]);
    assert_eq!(world.get(&key).unwrap()["metadata"].get("managedFields"), None);
}

#[test]
fn what_only_the_plan_made_goes_when_it_is_deleted() {
    let key = object("ListenerSet", "l");
    let mut world = World::default();
    let spec = json!({"parentRef": {"name": "g"}, "listeners": [{"name": "a", "port": 1, "protocol": "HTTP"}]});
    assert_eq!(world.apply(&body(&key, &spec), Timestamp::UNIX_EPOCH), Ok(true));
    assert_eq!(world.rewrite([gateway(&[80])].into(), true), []);
    assert!(world.get(&key).is_some() && !world.is_written(&key));
    assert_eq!(world.attach_objects().listener_sets.len(), 1);
    assert_eq!(world.delete(&key), Ok(true));
    assert_eq!(world.delete(&key), Ok(false));
    assert_eq!(world.get(&key), None);
}

#[test]
fn an_object_that_its_author_removes_takes_its_status_and_overlay_along() {
    let mut world = world_of(&[gateway(&[80])]);
    let key = object("Gateway", "g");
    world.apply(&body(&key, &json!({"listeners": []})), Timestamp::UNIX_EPOCH).unwrap();
    world.rewrite(BTreeMap::new(), true);
    assert_eq!(world.get(&key), None);
    assert_eq!(world.set_status(&key, json!({})), Ok(false));
}

#[test]
fn claims_outlive_the_process_and_end_with_their_owner() {
    let key = app().0;
    let claims = json!([{"name": "a.test", "gateway": {"name": "g", "namespace": "team"}, "port": 443, "since": "2026-01-01T00:00:00Z"}]);
    let mut world = world_of(&[app()]);
    world.set_status(&key, json!({ "claims": claims })).unwrap();
    let record = world.claims().clone();

    let mut restarted = World::new(record);
    // The file of the owner is broken at the start.
    restarted.rewrite(BTreeMap::new(), false);
    restarted.rewrite([app()].into(), true);
    assert_eq!(restarted.get(&key).unwrap()["status"]["claims"], claims);
    assert_eq!(restarted.claims().len(), 1);
    restarted.set_status(&key, json!({"claims": []})).unwrap();
    assert_eq!(restarted.claims().len(), 0);
    restarted.set_status(&key, json!({ "claims": claims })).unwrap();
    restarted.rewrite(BTreeMap::new(), true);
    assert_eq!(restarted.claims().len(), 0);
}

#[test]
fn what_an_api_server_would_refuse_is_refused() {
    let mut world = World::default();
    let refused = world
        .apply(&body(&object("ListenerSet", "l"), &json!({"listeners": "none"})), Timestamp::UNIX_EPOCH)
        .unwrap_err();
    assert_eq!((&*refused.object, &*refused.field), ("ListenerSet/team/l", "spec.listeners"));
}
