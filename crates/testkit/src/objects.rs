//! Objects of a bed's cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind, TypeMeta};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;

use crate::bed::{Bed, START};

/// Who the kit says that it is when it applies objects.
const FIELD_MANAGER: &str = "test";

/// How long [`Bed::wait_for`] waits: more than anything takes on a machine that does not also compile.
const WAIT: Duration = Duration::from_mins(1);

/// How long one attempt of [`eventually`] may take.
const ATTEMPT: Duration = Duration::from_secs(20);

impl Bed {
    /// Applies YAML documents in their order, server-side, as the field manager `test`. An object that has no namespace and needs
    /// one goes to `default`.
    ///
    /// # Errors
    ///
    /// Names the object that the API server refuses.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        for document in parse(yaml)? {
            self.apply_one(document, false).await?;
        }
        Ok(())
    }

    /// As [`Bed::apply`], for the objects' status: what a controller that the bed lacks would write.
    pub async fn apply_status(&self, yaml: &str) -> anyhow::Result<()> {
        for document in parse(yaml)? {
            self.apply_one(document, true).await?;
        }
        Ok(())
    }

    /// Installs the definitions of a name of `portreeve_programs` (`gateway-api-standard`, `gateway-api-experimental`,
    /// `envoy-gateway`, `cert-manager`, …) whose file names are wanted, and waits until the API server serves them.
    pub async fn define(&self, name: &str, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        self.define_in(&portreeve_programs::find_definitions(name)?, wanted).await
    }

    /// As [`Bed::define`], of a folder of YAML files.
    pub async fn define_in(&self, folder: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let mut objects: Vec<Value> = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|file| wanted(&file.to_string_lossy())) {
                objects.extend(parse(&std::fs::read_to_string(path)?)?);
            }
        }
        let resources: BTreeSet<_> = objects.iter().flat_map(served_resources).collect();
        try_join_all(objects.into_iter().map(|object| self.apply_one(object, false))).await?;
        let client = self.client();
        for (api_version, plural) in &resources {
            eventually(format!("{plural} of {api_version} are served"), START, async || {
                let served = client.list_api_group_resources(api_version).await?.resources;
                ensure!(served.iter().any(|resource| resource.name == *plural), "they are not among {api_version}'s");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Installs the definitions of the project's own kinds, as the chart has them.
    pub async fn define_own(&self) -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/portreeve/files/crds");
        self.define_in(&folder, |_| true).await
    }

    /// Deletes an object; `name` is `<namespace>/<name>`, or the name alone of an object without namespace.
    pub async fn delete(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        let (api, name) = self.api(api_version, kind, name).await?;
        api.delete(name, &DeleteParams::default()).await.with_context(|| format!("failed to delete {kind} {name}"))?;
        Ok(())
    }

    /// An object as it is now; `name` as for [`Bed::delete`].
    pub async fn get(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<Option<Value>> {
        let (api, name) = self.api(api_version, kind, name).await?;
        Ok(api.get_opt(name).await?.map(serde_json::to_value).transpose()?)
    }

    /// Waits up to a minute until an object is there and `holds`, and returns it; `name` as for [`Bed::delete`].
    ///
    /// # Errors
    ///
    /// Says what was waited for, and shows the object as it was last.
    pub async fn wait_for(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(format!("{kind} {name}: {what}"), WAIT, async || match self.get(api_version, kind, name).await? {
            Some(object) if holds(&object) => Ok(object),
            Some(object) => bail!("it is {}", shown(object)),
            None => bail!("it does not exist"),
        })
        .await
    }

    /// Waits up to a minute until an object does not exist; `name` as for [`Bed::delete`].
    pub async fn wait_gone(&self, api_version: &str, kind: &str, name: &str) -> anyhow::Result<()> {
        eventually(format!("{kind} {name} is gone"), WAIT, async || match self.get(api_version, kind, name).await? {
            Some(object) => bail!("it is {}", shown(object)),
            None => Ok(()),
        })
        .await
    }

    async fn apply_one(&self, document: Value, status: bool) -> anyhow::Result<()> {
        let mut object: DynamicObject = serde_json::from_value(document).context("a document is not an object")?;
        let types = object.types.clone().context("an object has apiVersion and kind")?;
        let name = object.name_any();
        let (resource, namespaced) = self.resource(&types).await?;
        let api = if namespaced {
            let namespace = object.metadata.namespace.get_or_insert_with(|| "default".to_owned());
            Api::<DynamicObject>::namespaced_with(self.client(), namespace, &resource)
        } else {
            Api::all_with(self.client(), &resource)
        };
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let patch = Patch::Apply(&object);
        let applied = if status {
            api.patch_status(&name, &parameters, &patch).await
        } else {
            api.patch(&name, &parameters, &patch).await
        };
        applied.with_context(|| format!("failed to apply {} {name}", types.kind))?;
        Ok(())
    }

    async fn api<'a>(
        &self,
        api_version: &str,
        kind: &str,
        name: &'a str,
    ) -> anyhow::Result<(Api<DynamicObject>, &'a str)> {
        let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
        let (resource, _) = self.resource(&types).await?;
        Ok(match name.split_once('/') {
            Some((namespace, name)) => (Api::namespaced_with(self.client(), namespace, &resource), name),
            None => (Api::all_with(self.client(), &resource), name),
        })
    }

    /// What the API server calls a kind, and whether its objects are in namespaces.
    async fn resource(&self, types: &TypeMeta) -> anyhow::Result<(ApiResource, bool)> {
        if types.kind == "CustomResourceDefinition" {
            return Ok((ApiResource::erase::<CustomResourceDefinition>(&()), false));
        }
        let kind = GroupVersionKind::try_from(types)?;
        let (resource, capabilities) = pinned_kind(&self.client(), &kind)
            .await
            .with_context(|| format!("the API server does not serve {} of {}", types.kind, types.api_version))?;
        Ok((resource, capabilities.scope == Scope::Namespaced))
    }
}

fn parse(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("the manifest is not YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// What the API server will serve because of a definition: API versions, each with the plural name of a kind.
fn served_resources(object: &Value) -> Vec<(String, String)> {
    let spec = &object["spec"];
    let (Some(group), Some(plural)) = (spec["group"].as_str(), spec["names"]["plural"].as_str()) else {
        return Vec::new();
    };
    let versions = spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    let versions = versions.filter_map(|version| version["name"].as_str());
    versions.map(|version| (format!("{group}/{version}"), plural.to_owned())).collect()
}

/// The status of a condition of an object, or of anything else that has `conditions`.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object.get("status").unwrap_or(object).get("conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// An object as a person may want to see it: without what says which of its fields are whose.
pub fn shown(mut object: Value) -> String {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object.to_string()
}

/// Tries again until it succeeds, for as long as `within`; one attempt may take 20 seconds.
///
/// # Errors
///
/// Says what was waited for and why it failed last.
pub async fn eventually<T>(
    what: impl std::fmt::Display,
    within: Duration,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    let mut failed = anyhow::anyhow!("the first attempt took longer");
    while Instant::now() < deadline {
        // A request that is never answered must not use up the whole time.
        match tokio::time::timeout_at(deadline.min(Instant::now() + ATTEMPT), attempt()).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => failed = error,
            Err(_) => failed = failed.context(format!("an attempt took longer than {} s", ATTEMPT.as_secs())),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(failed.context(format!("not within {} s: {what}", within.as_secs())))
}
