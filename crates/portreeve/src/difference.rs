//! What would become of objects, and how that reads: one unified diff for each.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use json_patch::PatchOperation;
use portreeve_plan::{ObjectRef, Plan, ReleaseAction, ReleaseStep, merge};
use serde_json::{Value, json};
use similar::TextDiff;

use crate::kinds::split_api_version;
use crate::world::World;

/// What the API server adds to metadata, and whoever looks for a difference does not look for.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"];
/// What `kubectl apply` writes: the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One object that would not be as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which one.
    pub object: ObjectRef,
    /// As it is; absent: it is not there.
    pub live: Option<Value>,
    /// As it would be; absent: it would be deleted.
    pub wanted: Option<Value>,
}

/// An object whatever the version in which it is read or written.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

/// Objects as they are, to be found whatever their version.
#[derive(Default)]
pub struct Live<'a>(HashMap<Key<'a>, &'a Value>);

/// What carrying out a plan would change, in its order, one entry for each object. Owners' finalizers count.
pub fn of_plan(plan: &Plan, live: &Live<'_>) -> Vec<Difference> {
    let mut work = Work { live, found: Vec::new(), places: HashMap::new() };
    for owner in &plan.guard {
        work.change(owner, |object| add_finalizer(object, finalizer(owner)));
    }
    for copy in &plan.copies {
        work.change(&copy.to, |object| object["data"] = json!(format!("(as in {})", copy.from)));
    }
    for apply in &plan.apply {
        let place = work.place(&apply.object);
        let wanted = &mut work.found[place].wanted;
        let applied = wanted.as_ref().map(|object| merge::apply_again(object, &apply.body));
        *wanted = Some(applied.unwrap_or_else(|| apply.body.clone()));
    }
    for takeover in &plan.takeovers {
        work.place(&takeover.object);
    }
    for patch in &plan.patches {
        work.change(&patch.object, |object| patched(object, &patch.operations));
    }
    for step in &plan.releases {
        let (live, wanted) = release(step);
        work.found.push(Difference { object: release_name(step), live, wanted });
    }
    for object in &plan.delete {
        let place = work.place(object);
        work.found[place].wanted = None;
    }
    for write in &plan.statuses {
        work.change(&write.object, |object| object["status"] = write.status.clone());
    }
    for owner in &plan.release {
        work.change(owner, |object| remove_finalizer(object, finalizer(owner)));
    }
    work.found
}

/// What serving a directory would write, beside the manifests themselves: what is applied, and statuses. Secrets of the
/// local CA are not among it, since each run makes others.
pub fn of_world(world: &World) -> Vec<Difference> {
    let applied: HashSet<_> = world.applied().map(|(object, _)| object).collect();
    let objects = world.objects().filter(|(object, shown)| applied.contains(object) || !shown["status"].is_null());
    let differences = objects.map(|(object, shown)| Difference {
        object: object.clone(),
        live: world.written(object).map(|value| (**value).clone()),
        wanted: Some((**shown).clone()),
    });
    differences.filter(|difference| difference.texts().0 != difference.texts().1).collect()
}

/// Prints each difference as a unified diff.
pub fn write(out: &mut dyn Write, differences: &[Difference]) -> io::Result<()> {
    for difference in differences {
        let (live, wanted) = difference.texts();
        let name = &difference.object;
        let side =
            |side: &str, is_there: bool| if is_there { format!("{side}/{name}") } else { "/dev/null".to_owned() };
        writeln!(out, "# {} {name}", difference.verb())?;
        if live == wanted {
            writeln!(out, "# (only who owns its fields)")?;
        }
        let (before, after) = (side("live", difference.live.is_some()), side("wanted", difference.wanted.is_some()));
        write!(out, "{}", TextDiff::from_lines(&live, &wanted).unified_diff().header(&before, &after))?;
    }
    Ok(())
}

impl Difference {
    /// What would be done.
    pub fn verb(&self) -> &'static str {
        match (&self.live, &self.wanted) {
            (None, _) => "create",
            (Some(_), None) => "delete",
            (Some(live), Some(wanted)) => {
                let (mut live, mut wanted) = (plain(live), plain(wanted));
                let is_status = live["status"] != wanted["status"];
                (live["status"], wanted["status"]) = (Value::Null, Value::Null);
                if is_status && live == wanted { "change the status of" } else { "change" }
            }
        }
    }

    fn texts(&self) -> (String, String) {
        (text(self.live.as_ref()), text(self.wanted.as_ref()))
    }
}

impl<'a> Live<'a> {
    /// Of objects that say what they are.
    pub fn new(objects: impl IntoIterator<Item = &'a Value>) -> Self {
        let key = |object: &'a Value| {
            let text = |value: &'a Value| value.as_str().unwrap_or_default();
            let (group, _) = split_api_version(text(&object["apiVersion"]));
            let metadata = &object["metadata"];
            Key {
                group,
                kind: text(&object["kind"]),
                namespace: metadata["namespace"].as_str(),
                name: text(&metadata["name"]),
            }
        };
        Self(objects.into_iter().map(|object| (key(object), object)).collect())
    }

    /// An object, if it is there.
    pub fn get(&self, object: &ObjectRef) -> Option<&Value> {
        let (group, _) = split_api_version(&object.api_version);
        let key = Key { group, kind: &object.kind, namespace: object.namespace.as_deref(), name: &object.name };
        self.0.get(&key).copied()
    }
}

/// The differences that were found so far.
struct Work<'w> {
    live: &'w Live<'w>,
    found: Vec<Difference>,
    places: HashMap<ObjectRef, usize>,
}

impl Work<'_> {
    fn change(&mut self, object: &ObjectRef, change: impl FnOnce(&mut Value)) {
        let place = self.place(object);
        change(self.found[place].wanted.get_or_insert_with(|| identity(object)));
    }

    fn place(&mut self, object: &ObjectRef) -> usize {
        *self.places.entry(object.clone()).or_insert_with(|| {
            let live = self.live.get(object).cloned();
            self.found.push(Difference { object: object.clone(), wanted: live.clone(), live });
            self.found.len() - 1
        })
    }
}

/// A release of Helm as an object. Of one that is there only its name is known.
fn release(step: &ReleaseStep) -> (Option<Value>, Option<Value>) {
    let object = identity(&release_name(step));
    match &step.action {
        ReleaseAction::Install { chart, version, values, .. } => {
            let mut wanted = object;
            wanted["spec"] = json!({ "chart": chart, "version": version, "values": values });
            (None, Some(wanted))
        }
        ReleaseAction::Uninstall => (Some(object), None),
    }
}

fn release_name(step: &ReleaseStep) -> ObjectRef {
    ObjectRef {
        api_version: "helm.sh/v3".to_owned(),
        kind: "Release".to_owned(),
        namespace: Some(step.namespace.clone()),
        name: step.name.clone(),
    }
}

fn identity(object: &ObjectRef) -> Value {
    let mut metadata = json!({ "name": object.name });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({ "apiVersion": object.api_version, "kind": object.kind, "metadata": metadata })
}

/// The contract's, as the kind of the owner has it.
fn finalizer(owner: &ObjectRef) -> &'static str {
    match owner.kind.as_str() {
        "Tenant" => portreeve_api::names::tenant::FINALIZER,
        _ => portreeve_api::names::nebari_app::FINALIZER,
    }
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    match &mut object["metadata"]["finalizers"] {
        Value::Array(finalizers) => finalizers.push(json!(finalizer)),
        absent => *absent = json!([finalizer]),
    }
}

fn remove_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|other| other != finalizer);
    }
}

/// A patch that does not fit any more would be refused, so it changes nothing.
fn patched(object: &mut Value, operations: &[Value]) {
    let operations: Result<Vec<PatchOperation>, _> =
        operations.iter().map(|operation| serde_json::from_value(operation.clone())).collect();
    if let Ok(operations) = operations
        && let Err(error) = json_patch::patch(object, &operations)
    {
        tracing::debug!("a patch does not fit: {error}");
    }
}

fn text(object: Option<&Value>) -> String {
    let Some(object) = object.map(plain) else { return String::new() };
    // A value of JSON can always be written as YAML.
    serde_saphyr::to_string(&object).unwrap_or_else(|_| object.to_string())
}

/// Without what nobody looks for.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| !BOOKKEEPING.contains(&field.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use portreeve_plan::{Apply, StatusWrite};

    use super::*;

    fn object(name: &str) -> ObjectRef {
        let (api_version, kind) = ("example.test/v1".to_owned(), "Thing".to_owned());
        ObjectRef { api_version, kind, namespace: Some("team".to_owned()), name: name.to_owned() }
    }

    fn printed(plan: &Plan, live: &[Value]) -> String {
        let mut out = Vec::new();
        write(&mut out, &of_plan(plan, &Live::new(live))).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn live(name: &str) -> Value {
        json!({
            "apiVersion": "example.test/v1beta1", "kind": "Thing",
            "metadata": {"name": name, "namespace": "team", "uid": "1", "resourceVersion": "7"},
            "spec": {"port": 1, "other": "kept"}, "status": {"ready": false},
        })
    }

    #[test]
    fn an_empty_plan_has_no_difference() {
        assert_eq!(of_plan(&Plan::default(), &Live::new(&[live("a")])), []);
    }

    #[test]
    fn a_change_its_status_and_a_deletion_read_as_diffs() {
        let mut body = identity(&object("a"));
        body["spec"] = json!({"port": 2});
        let plan = Plan {
            apply: vec![Apply { object: object("a"), body }],
            statuses: vec![StatusWrite { object: object("a"), status: json!({"ready": true}) }],
            delete: vec![object("b")],
            ..Plan::default()
        };
        let text = printed(&plan, &[live("a"), live("b")]);
        for line in [
            "# change Thing/team/a",
            "-  port: 1",
            "+  port: 2",
            "+  ready: true",
            "# delete Thing/team/b",
            "+++ /dev/null",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("   other: kept") && !text.contains("resourceVersion"), "{text}");
    }

    #[test]
    fn what_is_not_there_is_created() {
        let mut body = identity(&object("a"));
        body["spec"] = json!({"port": 2});
        let plan = Plan { apply: vec![Apply { object: object("a"), body }], ..Plan::default() };
        let text = printed(&plan, &[]);
        assert!(text.starts_with("# create Thing/team/a\n--- /dev/null\n+++ wanted/Thing/team/a\n"), "{text}");
    }

    #[test]
    fn an_owners_finalizer_is_told() {
        let owner = ObjectRef { kind: "Tenant".to_owned(), ..object("a") };
        let mut tenant = live("a");
        tenant["kind"] = json!("Tenant");
        let text = printed(&Plan { guard: vec![owner], ..Plan::default() }, &[tenant]);
        assert!(text.contains(&format!("+  - {}", portreeve_api::names::tenant::FINALIZER)), "{text}");
    }
}
