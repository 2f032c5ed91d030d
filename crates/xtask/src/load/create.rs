//! Making many objects at once.

use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use portreeve_controller::kind::Kind;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// How many requests are under way at once, each on a connection of its own.
const SIDE_BY_SIDE: usize = 48;
/// After an API server did not answer.
const PAUSE: Duration = Duration::from_millis(500);

/// Creates objects of kinds that the operator knows, many at once, in no order.
pub(crate) async fn create_all(client: &Client, objects: Vec<Value>) -> anyhow::Result<()> {
    let created = stream::iter(objects).map(|object| create(client, object)).buffer_unordered(SIDE_BY_SIDE);
    created.try_collect().await
}

/// As [`create_all`], with every object tried again until the API server takes it, for as long as `patience`.
pub(crate) async fn create_through(client: &Client, objects: Vec<Value>, patience: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    let stubborn = async |object: Value| loop {
        match create(client, object.clone()).await {
            Err(error) if is_there(&error) => return Ok(()),
            Err(_) if Instant::now() < deadline => sleep(PAUSE).await,
            done => return done,
        }
    };
    stream::iter(objects).map(stubborn).buffer_unordered(SIDE_BY_SIDE).try_collect().await
}

/// An answer that was lost may have been a good one.
fn is_there(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_already_exists())
}

async fn create(client: &Client, object: Value) -> anyhow::Result<()> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let object: DynamicObject = serde_json::from_value(object)?;
    let namespace = object.namespace().unwrap_or_default();
    let created = api(client, &api_version, &kind, &namespace)?.create(&PostParams::default(), &object).await;
    created.with_context(|| format!("failed to create {kind} {namespace}/{}", object.name_any()))?;
    Ok(())
}

/// Deletes one object.
pub(crate) async fn delete(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> anyhow::Result<()> {
    let deleted = api(client, api_version, kind, namespace)?.delete(name, &DeleteParams::default()).await;
    deleted.with_context(|| format!("failed to delete {kind} {namespace}/{name}"))?;
    Ok(())
}

/// The objects of a kind; `namespace` is empty where it has none.
fn api(client: &Client, api_version: &str, kind: &str, namespace: &str) -> anyhow::Result<Api<DynamicObject>> {
    let Some(found) = Kind::find(api_version, kind) else { bail!("{kind} is no kind that the operator knows") };
    let resource = found.resource(api_version.rsplit('/').next().unwrap_or_default());
    Ok(match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    })
}
