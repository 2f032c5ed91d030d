use portreeve_plan::{Apply, Plan, ReleaseAction, ReleaseStep};
use serde_json::{Map, Value, json};

use super::Cluster;

/// What a plan writes: bodies in full, or without what is the same in all of them.
pub(crate) fn first_plan(plan: &Plan, full: bool) -> Value {
    let mut report = Map::new();
    let body = |apply: &Apply| if full { apply.body.clone() } else { essence(apply) };
    let applies: Map<String, Value> = plan.apply.iter().map(|apply| (apply.object.to_string(), body(apply))).collect();
    let names = |objects: &[portreeve_plan::ObjectRef]| objects.iter().map(ToString::to_string).collect::<Vec<_>>();
    let kind = |warning: bool| if warning { "Warning" } else { "Normal" };
    let events = plan
        .events
        .iter()
        .map(|event| format!("{} {} {}: {}", event.about, kind(event.warning), event.reason, event.message));
    let mut put = |field: &str, value: Value| {
        if !is_empty(&value) {
            report.insert(field.to_owned(), value);
        }
    };
    put("guard", json!(names(&plan.guard)));
    put("apply", applies.into());
    let takeovers = plan.takeovers.iter().map(|one| format!("{}: {}", one.object, one.entries.join(" ")));
    put("takeovers", takeovers.collect::<Vec<_>>().into());
    let dials = plan.dials.iter().map(|dial| format!("{} {}", dial.host, dial.addresses.join(" ")).trim().to_owned());
    put("dials", dials.collect::<Vec<_>>().into());
    let copies = plan.copies.iter().map(|copy| format!("{} to {}", copy.from, copy.to));
    put("copies", copies.collect::<Vec<_>>().into());
    let patches =
        plan.patches.iter().map(|patch| (patch.object.to_string(), patch.operations.iter().map(operation).collect()));
    put("patches", patches.collect::<Map<_, _>>().into());
    let asked = plan
        .provision
        .iter()
        .map(|one| (one.app.to_string(), if full { json!(one) } else { json!(one.client.client_id) }));
    put("provision", asked.collect::<Map<_, _>>().into());
    let asked = plan.deprovision.iter().map(|one| (one.app.to_string(), json!(one.clients)));
    put("deprovision", asked.collect::<Map<_, _>>().into());
    let releases: Map<String, Value> = plan.releases.iter().map(release).collect();
    put("releases", releases.into());
    put("delete", json!(names(&plan.delete)));
    put("release", json!(names(&plan.release)));
    put("events", events.collect::<Vec<_>>().into());
    put("wakeAt", plan.wake_at.map(|at| at.to_string()).into());
    report.into()
}

fn release(step: &ReleaseStep) -> (String, Value) {
    let name = format!("{}/{}", step.namespace, step.name);
    match &step.action {
        ReleaseAction::Install { chart, version, values, .. } => {
            (name, json!({ "install": format!("{chart} {version}"), "values": values }))
        }
        ReleaseAction::Uninstall => (name, "uninstall".into()),
    }
}

fn operation(operation: &Value) -> Value {
    let text = |field: &str| operation[field].as_str().unwrap_or_default();
    format!("{} {} {}", text("op"), text("path"), text("value")).trim().into()
}

/// The statuses of all owners, conditions in short.
pub(crate) fn outcome(cluster: &Cluster) -> Value {
    let owners = cluster.objects.iter().filter(|((kind, ..), _)| kind == "NebariApp" || kind == "Tenant");
    let status = owners.map(|((kind, namespace, name), owner)| {
        let name = if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") };
        let mut status = owner["status"].clone();
        if let Some(status) = status.as_object_mut() {
            status.retain(|field, _| field != "hostname" && field != "observedGeneration");
            if status.get("serviceDiscovery") == Some(&json!({ "enabled": false })) {
                status.remove("serviceDiscovery");
            }
        }
        (name, shorten(status))
    });
    status.collect::<Map<_, _>>().into()
}

/// What of `after` is not in `before`, field by field.
pub(crate) fn news(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let mut fields: Map<String, Value> = Map::new();
    for (name, value) in new {
        let value = old
            .get(name)
            .map_or_else(|| value.clone(), |old| if old == value { Value::Null } else { news(old, value) });
        if !value.is_null() {
            fields.insert(name.clone(), value);
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    fields.extend(gone.map(|name| (name.clone(), "gone".into())));
    fields.into()
}

/// Labels, annotations and the spec.
fn essence(apply: &Apply) -> Value {
    let mut body = apply.body.clone();
    let metadata = body["metadata"].as_object_mut().expect("metadata");
    metadata.retain(|field, _| !["name", "namespace", "uid"].contains(&field.as_str()));
    if let Some(owners) = metadata.remove("ownerReferences") {
        metadata.insert("controller".to_owned(), owners[0]["uid"].clone());
    }
    if let Some(labels) = metadata.remove("labels") {
        let labels = labels.as_object().expect("labels").iter();
        let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().expect("a text")));
        metadata.insert("labels".to_owned(), labels.collect::<Vec<_>>().join(" ").into());
    }
    let body = body.as_object_mut().expect("an object");
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        // The same for all certificates of a tenant.
        spec.remove("secretTemplate");
    }
    body.remove("kind");
    if body["apiVersion"] == "gateway.networking.k8s.io/v1" {
        body.remove("apiVersion");
    }
    shorten(Value::Object(std::mem::take(body)))
}

/// References as `Kind/namespace/name`, conditions as lines, small maps on one line.
fn shorten(value: Value) -> Value {
    match value {
        Value::Object(fields) => reference(&fields).unwrap_or_else(|| {
            let shorter = fields.into_iter().map(|(name, field)| {
                let field = if name == "conditions" { lines(&field) } else { shorten(field) };
                (name, field)
            });
            shorter.filter(|(_, field)| !is_empty(field)).collect::<Map<_, _>>().into()
        }),
        Value::Array(items) => Value::Array(items.into_iter().map(shorten).collect()),
        value => value,
    }
}

fn lines(conditions: &Value) -> Value {
    let conditions = conditions.as_array().into_iter().flatten();
    let short = conditions.map(|condition| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        (text("type").to_owned(), format!("{} {}: {}", text("status"), text("reason"), text("message")).into())
    });
    short.collect::<Map<_, _>>().into()
}

/// A reference to an object, a path match or a recorded claim as one text.
fn reference(fields: &Map<String, Value>) -> Option<Value> {
    let text = |field: &str| fields.get(field).and_then(Value::as_str);
    if let Some(path) = fields.get("path").filter(|path| path.is_object()) {
        return Some(format!("{} {}", path["type"].as_str()?, path["value"].as_str()?).into());
    }
    if let (Some(since), Some(gateway)) = (text("since"), fields.get("gateway")) {
        let name = text("name").unwrap_or("*");
        let gateway = format!("{}/{}", gateway["namespace"].as_str()?, gateway["name"].as_str()?);
        return Some(format!("{name} on {gateway}:{} since {since}", fields["port"]).into());
    }
    text("group")?;
    let place = text("namespace").map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let section = text("sectionName").map(|section| format!("#{section}")).unwrap_or_default();
    let port = fields.get("port").map(|port| format!(":{port}")).unwrap_or_default();
    let name = text("name").map(|name| format!("/{place}{name}")).unwrap_or(format!(" {place}"));
    Some(format!("{}{name}{section}{port}", text("kind")?).trim().into())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
