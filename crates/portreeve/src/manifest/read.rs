//! From one file's text to its objects, as an API server would store them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use portreeve_api::names::MAX_OBJECT_NAME;
use portreeve_names::{MAX_LABEL_LEN, is_dns_label};
use portreeve_plan::ObjectRef;
use portreeve_schema::{Fault, Path, Schema};
use serde_json::{Map, Value, json};

use super::{Document, Finding, Place};
use crate::kinds::{Kind, split_api_version};

/// One object of a manifest, accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Which object it is.
    pub object: ObjectRef,
    /// With defaults, without what an author does not write (`status`, `managedFields`, …).
    pub value: Arc<Value>,
    /// Where it starts.
    pub place: Place,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileContents {
    /// The objects that can be used, in order.
    pub manifests: Vec<Manifest>,
    /// Everything there is to say about the file.
    pub findings: Vec<Finding>,
    /// Objects of kinds that are not read, as `apiVersion Kind`, with where they stand.
    pub ignored: Vec<(String, Place)>,
}

/// What an API server writes into `metadata` and authors do not.
const SERVER_METADATA: [&str; 5] =
    ["managedFields", "resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"];
/// How alike the names of two kinds must be for one to be taken for a slip of the other, from 0 to 1.
const LIKE: f64 = 0.9;

/// Reads a file. Pure: what cannot be used becomes a finding.
pub fn read(file: &Arc<str>, text: &str) -> FileContents {
    let mut contents = FileContents::default();
    for document in Document::parse_all(file, text) {
        match document {
            Ok(document) => {
                Reader { document: &document, contents: &mut contents }.object(document.to_json(), &Path::default());
            }
            Err(finding) => contents.findings.push(finding),
        }
    }
    contents
}

/// Whether a text can name an object (DNS-1123 subdomain, whose labels may be as long as the whole).
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= MAX_OBJECT_NAME && text.split('.').all(is_label)
}

struct Reader<'a> {
    document: &'a Document,
    contents: &'a mut FileContents,
}

impl Reader<'_> {
    /// Takes the object that stands at `root` in the document.
    fn object(&mut self, value: Value, root: &Path) {
        if let Err(finding) = self.try_object(value, root) {
            self.contents.findings.push(finding);
        }
    }

    fn try_object(&mut self, mut value: Value, root: &Path) -> Result<(), Finding> {
        let (api_version, name) = self.identify(&value, root)?;
        if let Some(items) = items_of(&name, &mut value) {
            for (index, item) in items.into_iter().enumerate() {
                self.object(item, &root.key("items").index(index));
            }
            return Ok(());
        }
        let (group, version) = split_api_version(&api_version);
        let Some(kind) = Kind::find(group, &name) else {
            self.ignore(&api_version, &name, root);
            return Ok(());
        };
        if !kind.versions.contains(&version) {
            let message = format!("{name} has no version {version:?} here: write {}", kind.api_version());
            return Err(self.error(&root.key("apiVersion"), message));
        }
        value["apiVersion"] = kind.api_version().into();
        tidy(&mut value);
        let object = self.name(kind, &mut value, root)?;
        fold_string_data(kind, &mut value).map_err(|(path, message)| self.error(&below(root, &path), message))?;
        self.validate(kind, &mut value, root)?;
        let place = self.document.place(root);
        self.contents.manifests.push(Manifest { object, value: Arc::new(value), place });
        Ok(())
    }

    fn identify(&self, value: &Value, root: &Path) -> Result<(String, String), Finding> {
        if !value.is_object() {
            return Err(self.error(root, "this is no Kubernetes object: it has no fields"));
        }
        let text = |field: &str| match &value[field] {
            Value::String(text) if !text.is_empty() => Ok(text.clone()),
            Value::Null => Err(self.error(root, format!("this is no Kubernetes object: {field} is missing"))),
            _ => Err(self.error(&root.key(field), format!("{field} must be text"))),
        };
        Ok((text("apiVersion")?, text("kind")?))
    }

    /// An object of a kind that is not read: said once for each kind, and at once when it looks like a slip.
    fn ignore(&mut self, api_version: &str, name: &str, root: &Path) {
        let full = format!("{api_version} {name}");
        match meant(api_version, name) {
            Some(kind) => {
                let known = format!("{} {}", kind.api_version(), kind.name);
                let message =
                    format!("{full} is not a kind that Portreeve reads, so this is ignored; did you mean {known}?");
                let place = self.document.place(&root.key("kind"));
                self.contents.findings.push(Finding::warning(place, message));
            }
            None => self.contents.ignored.push((full, self.document.place(root))),
        }
    }

    /// Checks the object's name and namespace, and puts `default` where a namespace is missing.
    fn name(&mut self, kind: &Kind, value: &mut Value, root: &Path) -> Result<ObjectRef, Finding> {
        let metadata = root.key("metadata");
        let read = |field: &str| match &value["metadata"][field] {
            Value::String(text) => Ok(Some(text.clone())),
            Value::Null => Ok(None),
            _ => Err(self.error(&metadata.key(field), format!("{field} must be text; put quotes around it"))),
        };
        let (name, namespace) = (read("name")?, read("namespace")?);
        let name = name.ok_or_else(|| self.error(&metadata, "name is missing: every object here needs one"))?;
        if !is_name(&name) {
            let message =
                format!("{name:?} is no name: use lower-case letters, digits, '-' and '.', at most {MAX_OBJECT_NAME}");
            return Err(self.error(&metadata.key("name"), message));
        }
        let namespace = match (kind.namespaced, namespace) {
            (true, namespace) => Some(namespace.unwrap_or_else(|| "default".to_owned())),
            (false, None) => None,
            (false, Some(_)) => {
                let message = format!("{} lives in no namespace, so this is ignored", kind.name);
                self.warn(&metadata.key("namespace"), message);
                None
            }
        };
        if let Some(bad) = namespace.as_deref().filter(|name| !is_dns_label(name)) {
            let message =
                format!("{bad:?} is no namespace: use lower-case letters, digits and '-', at most {MAX_LABEL_LEN}");
            return Err(self.error(&metadata.key("namespace"), message));
        }
        match &namespace {
            Some(namespace) => value["metadata"]["namespace"] = namespace.as_str().into(),
            None => drop(value["metadata"].as_object_mut().map(|metadata| metadata.remove("namespace"))),
        }
        Ok(ObjectRef { api_version: kind.api_version(), kind: kind.name.to_owned(), namespace, name })
    }

    /// What an API server would do: defaults, warnings about unknown fields, validation.
    fn validate(&mut self, kind: &Kind, value: &mut Value, root: &Path) -> Result<(), Finding> {
        match kind.schema() {
            Some(Ok(schema)) => self.check(kind, schema, value, root)?,
            Some(Err(error)) => return Err(self.error(root, format!("Portreeve's own schema is broken: {error}"))),
            None => {}
        }
        kind.parse(value.clone()).map(|_| ()).map_err(|fault| self.error(&below(root, &fault.path), fault.message))
    }

    fn check(&mut self, kind: &Kind, schema: &Schema, value: &mut Value, root: &Path) -> Result<(), Finding> {
        schema.apply_defaults(value);
        for unknown in schema.unknown_fields(value) {
            let meant = unknown.nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
            self.warn(&below(root, &unknown.path), format!("{} has no such field, so it is ignored{meant}", kind.name));
        }
        let say = |fault: Fault| {
            let hint = fault.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            // What a Secret holds is not for logs.
            let message =
                if kind.name == "Secret" { "this is not as the schema of a Secret demands" } else { &fault.message };
            self.error(&below(root, &fault.path), format!("{message}{hint}"))
        };
        let mut errors: Vec<_> = schema.check(value).into_iter().map(say).collect();
        let last = errors.pop();
        self.contents.findings.extend(errors);
        last.map_or(Ok(()), Err)
    }

    fn error(&self, field: &Path, message: impl Into<String>) -> Finding {
        Finding::error(self.document.place(field), message)
    }

    fn warn(&mut self, field: &Path, message: impl Into<String>) {
        self.contents.findings.push(Finding::warning(self.document.place(field), message));
    }
}

fn below(root: &Path, path: &Path) -> Path {
    Path(root.0.iter().chain(&path.0).cloned().collect())
}

/// The items of a `List`, or of a list of one kind such as `ServiceList`.
fn items_of(kind: &str, value: &mut Value) -> Option<Vec<Value>> {
    match value.get_mut("items") {
        Some(Value::Array(items)) if kind.ends_with("List") => Some(std::mem::take(items)),
        None | Some(Value::Null) if kind == "List" => Some(Vec::new()),
        _ => None,
    }
}

/// The kind that was probably meant, if this one is nearly it.
fn meant(api_version: &str, name: &str) -> Option<&'static Kind> {
    let (group, _) = split_api_version(api_version);
    let likeness = |kind: &Kind| strsim::jaro_winkler(&kind.name.to_lowercase(), &name.to_lowercase());
    let same_group =
        |kind: &&Kind| kind.group == group || (group.contains('.') && strsim::jaro_winkler(kind.group, group) > LIKE);
    Kind::all()
        .filter(same_group)
        .filter(|kind| likeness(kind) > LIKE && (kind.name != name || kind.group != group))
        .max_by(|left, right| likeness(left).total_cmp(&likeness(right)))
}

/// Removes what an API server would have written, so that the output of `kubectl get -o yaml` can be used as it is.
fn tidy(value: &mut Value) {
    let Value::Object(object) = value else { return };
    object.remove("status");
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
    }
}

/// `stringData` of a Secret becomes `data`, over what is there, as in an API server.
fn fold_string_data(kind: &Kind, value: &mut Value) -> Result<(), (Path, &'static str)> {
    let Value::Object(object) = value else { return Ok(()) };
    if kind.name != "Secret" {
        return Ok(());
    }
    let Some(Value::Object(texts)) = object.remove("stringData") else { return Ok(()) };
    let data = object.entry("data").or_insert_with(|| Value::Object(Map::new()));
    for (name, text) in texts {
        let field = || Path::default().key("stringData").key(&name);
        let text = text.as_str().ok_or_else(|| (field(), "this must be text; put quotes around it"))?;
        data[&name] = json!(ByteString(text.as_bytes().to_vec()));
    }
    Ok(())
}

/// How many objects of each kind are not read, and where the first of them stands.
pub fn summarize_ignored<'a>(ignored: impl IntoIterator<Item = &'a (String, Place)>) -> Vec<Finding> {
    let mut kinds: BTreeMap<&str, (usize, &Place)> = BTreeMap::new();
    for (kind, place) in ignored {
        let (count, _) = kinds.entry(kind).or_insert((0, place));
        *count += 1;
    }
    let say = |(kind, (count, place)): (&str, (usize, &Place))| {
        let objects = if count == 1 { "1 object".to_owned() } else { format!("{count} objects") };
        Finding::info(place.clone(), format!("{kind} is not a kind that Portreeve reads; {objects} ignored"))
    };
    kinds.into_iter().map(say).collect()
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
