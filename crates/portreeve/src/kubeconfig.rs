//! A tenant's kubeconfig, and how it is merged into one that is there.

use portreeve_api::names;
use serde_json::{Map, Value, json};

/// What of a cluster says whom to trust: it comes from the tenant's kubeconfig alone.
const TRUST: [&str; 3] = ["certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"];

/// What a kubeconfig of a tenant says.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantKubeconfig {
    /// What its context, cluster and user are called: `kubespaces-<tenant>`, as the CLI of Kubespaces has it.
    pub name: String,
    cluster: Value,
    user: Value,
    namespace: Option<Value>,
}

/// Why a kubeconfig cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKubeconfig {
    /// It is no YAML.
    #[error("it is no YAML: {0}")]
    Yaml(String),
    /// It is YAML, and no kubeconfig.
    #[error("it is no kubeconfig: {0}")]
    Shape(&'static str),
    /// Something else has the name.
    #[error(
        "cluster {name} is there and leads to {server}: it is another one, so rename it first, or write to another file"
    )]
    Taken {
        /// The name of the cluster.
        name: String,
        /// Where the one that is there leads.
        server: String,
    },
}

impl TenantKubeconfig {
    /// Reads what a virtual cluster has put into its Secret: its current context counts, or the only one.
    pub fn read(tenant: &str, text: &str) -> Result<Self, BadKubeconfig> {
        let file = parse(text)?;
        let current = file["current-context"].as_str().filter(|name| !name.is_empty());
        let context = match current {
            Some(name) => find(&file, "contexts", name),
            None => {
                file["contexts"].as_array().filter(|contexts| contexts.len() == 1).and_then(|contexts| contexts.first())
            }
        };
        let context = &context.ok_or(BadKubeconfig::Shape("it has no current context"))?["context"];
        let part = |list: &str, field: &str, missing| {
            let name = context[field].as_str().unwrap_or_default();
            let found = find(&file, list, name).map(|entry| entry[field].clone()).filter(Value::is_object);
            found.ok_or(BadKubeconfig::Shape(missing))
        };
        let cluster = part("clusters", "cluster", "its current context names no cluster that it has")?;
        if !cluster["server"].is_string() {
            return Err(BadKubeconfig::Shape("its cluster has no server"));
        }
        Ok(Self {
            name: names::tenant::context(tenant),
            cluster,
            user: part("users", "user", "its current context names no user that it has")?,
            namespace: context.get("namespace").cloned(),
        })
    }

    /// The URL of the API server.
    pub fn server(&self) -> &str {
        self.cluster["server"].as_str().unwrap_or_default()
    }

    /// The authority that signs for the API server, as PEM in base64, where it stands in the kubeconfig.
    pub fn authority(&self) -> Option<&str> {
        self.cluster["certificate-authority-data"].as_str()
    }

    /// A kubeconfig with nothing else in it.
    pub fn alone(&self) -> Value {
        // Nothing is in the way in an empty file.
        self.merged("", false).unwrap_or_default()
    }

    /// The kubeconfig `file` with this one in it. Everything else stays, unknown fields too; comments do not. The current
    /// context changes only when `uses` says so, or when there is none.
    pub fn merged(&self, file: &str, uses: bool) -> Result<Value, BadKubeconfig> {
        let mut file = parse(file)?;
        let known = find(&file, "clusters", &self.name).map(|entry| &entry["cluster"]["server"]);
        if let Some(server) = known.and_then(Value::as_str).filter(|server| *server != self.server()) {
            return Err(BadKubeconfig::Taken { name: self.name.clone(), server: server.to_owned() });
        }
        let fields = file.as_object_mut().ok_or(BadKubeconfig::Shape("it is no map"))?;
        fields.entry("apiVersion").or_insert_with(|| json!("v1"));
        fields.entry("kind").or_insert_with(|| json!("Config"));
        let mut context = json!({ "cluster": self.name, "user": self.name });
        if let Some(namespace) = &self.namespace {
            context["namespace"] = namespace.clone();
        }
        put(fields, "clusters", &self.name, |entry| {
            let mut cluster = fields_of(&entry["cluster"]);
            cluster.retain(|field, _| !TRUST.contains(&field.as_str()));
            cluster.extend(fields_of(&self.cluster));
            entry["cluster"] = cluster.into();
        })?;
        put(fields, "users", &self.name, |entry| entry["user"] = self.user.clone())?;
        put(fields, "contexts", &self.name, |entry| {
            let before = fields_of(&entry["context"]);
            let namespace = before.get("namespace").map(|namespace| ("namespace".to_owned(), namespace.clone()));
            entry["context"] = before.into_iter().chain(fields_of(&context)).chain(namespace).collect();
        })?;
        if uses || fields.get("current-context").is_none_or(|current| matches!(current.as_str(), None | Some(""))) {
            fields.insert("current-context".to_owned(), json!(self.name));
        }
        Ok(file)
    }
}

/// An empty file is an empty map, as for kubectl.
fn parse(text: &str) -> Result<Value, BadKubeconfig> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    let file: Value = serde_saphyr::from_str(text).map_err(|error| BadKubeconfig::Yaml(error.to_string()))?;
    match file {
        Value::Null => Ok(json!({})),
        Value::Object(_) => Ok(file),
        _ => Err(BadKubeconfig::Shape("it is no map")),
    }
}

fn find<'f>(file: &'f Value, list: &str, name: &str) -> Option<&'f Value> {
    file[list].as_array()?.iter().find(|entry| entry["name"] == *name)
}

/// Changes the entry of that name in a list; makes the entry, and the list, where there is none.
fn put(
    fields: &mut Map<String, Value>,
    list: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), BadKubeconfig> {
    let list = fields.entry(list).or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let entries = list.as_array_mut().ok_or(BadKubeconfig::Shape("its clusters, users or contexts are no list"))?;
    let place = entries.iter().position(|entry| entry["name"] == *name).unwrap_or_else(|| {
        entries.push(json!({ "name": name }));
        entries.len() - 1
    });
    change(&mut entries[place]);
    Ok(())
}

fn fields_of(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
