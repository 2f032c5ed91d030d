//! The same requests by a client that decides nothing: what of the time is the API server's own.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use portreeve_controller::kind::{Kind, KindName};
use serde_json::{Value, json};

use super::{Apps, create_all};

/// How many apps are written for at once: as many requests as the operator has under way.
const SIDE_BY_SIDE: usize = 24;
const MANAGER: &str = "portreeve";

/// What the operator has written for one app, to be written for others.
struct Example {
    namespace: String,
    name: String,
    /// The app as it is when it is Ready.
    app: Value,
    listener_set: Value,
    route: Value,
}

/// Creates `count` more apps and writes for each what the operator has written for app `example`; returns how long that
/// took. The operator must not run.
pub(crate) async fn limit(client: &Client, example: usize, count: usize) -> anyhow::Result<Duration> {
    let example = Example::read(client, example).await?;
    let numbers = count..2 * count;
    let apps = Apps::new(numbers.clone())?;
    create_all(client, apps.namespaces()).await?;
    create_all(client, apps.surroundings()).await?;
    let start = Instant::now();
    create_all(client, apps.objects()).await?;
    let written = stream::iter(numbers).map(|number| example.write_for(client, number)).buffer_unordered(SIDE_BY_SIDE);
    written.try_collect::<()>().await?;
    Ok(start.elapsed())
}

impl Example {
    async fn read(client: &Client, number: usize) -> anyhow::Result<Self> {
        let (namespace, name) = Apps::name(number);
        let get = async |kind, name: String| -> anyhow::Result<Value> {
            let object =
                api(client, kind, &namespace).get(&name).await.with_context(|| format!("failed to get {name}"))?;
            Ok(serde_json::to_value(object)?)
        };
        Ok(Self {
            app: get(KindName::NebariApp, name.clone()).await?,
            listener_set: get(KindName::ListenerSet, format!("{name}-listeners")).await?,
            route: get(KindName::HttpRoute, format!("{name}-route")).await?,
            namespace,
            name,
        })
    }

    async fn write_for(&self, client: &Client, number: usize) -> anyhow::Result<()> {
        let (namespace, name) = Apps::name(number);
        let apps = api(client, KindName::NebariApp, &namespace);
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let finalizers = json!({"metadata": {"finalizers": self.app["metadata"]["finalizers"]}});
        apps.patch(&name, &parameters, &Patch::Merge(finalizers)).await?;
        for (kind, object) in [(KindName::ListenerSet, &self.listener_set), (KindName::HttpRoute, &self.route)] {
            let body = self.renamed(&applied(object), &namespace, &name)?;
            let made = body["metadata"]["name"].as_str().context("an object has a name")?.to_owned();
            let parameters = parameters.clone().force();
            api(client, kind, &namespace).patch(&made, &parameters, &Patch::Apply(body)).await?;
        }
        let status = self.renamed(&json!({"status": self.app["status"]}), &namespace, &name)?;
        apps.patch_status(&name, &parameters, &Patch::Merge(status)).await?;
        Ok(())
    }

    /// The same for another app. Names of apps and namespaces are not part of any other word in these objects.
    fn renamed(&self, object: &Value, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let text = object.to_string().replace(&self.name, name).replace(&self.namespace, namespace);
        Ok(serde_json::from_str(&text)?)
    }
}

/// What was applied: no status, and nothing that the API server has added.
fn applied(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let kept = ["name", "namespace", "labels", "annotations", "ownerReferences"];
    let metadata: serde_json::Map<_, _> = kept
        .iter()
        .filter(|field| !metadata[**field].is_null())
        .map(|field| ((*field).to_owned(), metadata[*field].clone()))
        .collect();
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata, "spec": object["spec"],
    })
}

fn api(client: &Client, kind: KindName, namespace: &str) -> Api<DynamicObject> {
    let kind = Kind::of(kind);
    let resource = kind.resource(kind.versions.first().copied().unwrap_or_default());
    Api::namespaced_with(client.clone(), namespace, &resource)
}
