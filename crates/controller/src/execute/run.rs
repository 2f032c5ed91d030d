use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use gateway_api::gateways::Gateway;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::DynamicObject;
use portreeve_plan::{FIELD_MANAGER, ObjectRef, Takeover};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::shard::{RejectedEntry, entries};
use super::{Failure, Request, Write};
use crate::reflect::kind::Kind;
use crate::reflect::{Entry, Key, read};

/// How many writes are under way at once. More only make an API server queue them.
const SIDE_BY_SIDE: usize = 24;
/// By these a Secret of cert-manager is known.
const ISSUER_KEYS: [&str; 2] = ["cert-manager.io/", "controller.cert-manager.io/"];
/// How long a write may take. It is shorter than the time between the loss of a lease and the moment in which another may
/// take it, so that no write of ours lands in another's reign.
const LONGEST_WRITE: Duration = Duration::from_secs(4);

/// Sends requests, while it may.
#[derive(Clone)]
pub(crate) struct Executor {
    client: Client,
    leading: watch::Receiver<bool>,
    stop: CancellationToken,
}

/// What became of a write.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) write: Write,
    pub(crate) result: Result<Answer, Failure>,
}

/// What the API server has answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The object as it is now, as far as decisions read it: of a big plan there are many answers.
    Object(Box<(Key, Entry)>),
    /// The Gateway as it is now, and the entries of it that are refused.
    InPart(Box<(Key, Entry)>, Vec<RejectedEntry>),
    /// The object of this uid is gone.
    Deleted(String),
}

impl Executor {
    pub(crate) fn new(client: Client, leading: watch::Receiver<bool>, stop: CancellationToken) -> Self {
        Self { client, leading, stop }
    }

    /// Leadership is held, and nobody has asked to stop.
    pub(super) fn may_write(&self) -> bool {
        *self.leading.borrow() && !self.stop.is_cancelled()
    }

    /// Sends all writes, stage by stage. One that fails does not keep the others from being sent; when the API server
    /// cannot be reached, the rest is not even tried.
    pub(crate) async fn run(self, stages: Vec<Vec<Write>>) -> Vec<Outcome> {
        let (unavailable, is_unavailable) = watch::channel(false);
        let mut outcomes = Vec::new();
        for stage in stages {
            let sent = stream::iter(stage).map(|write| async {
                let goes_on = self.may_write() && !*is_unavailable.borrow();
                let result = if goes_on { self.send(&write).await } else { Err(Failure::Stopped) };
                if matches!(result, Err(Failure::Unavailable(_))) {
                    unavailable.send_replace(true);
                }
                Outcome { write, result }
            });
            outcomes.extend(sent.buffer_unordered(SIDE_BY_SIDE).collect::<Vec<_>>().await);
        }
        outcomes
    }

    async fn send(&self, write: &Write) -> Result<Answer, Failure> {
        match (in_time(self.request(write)).await, &write.request) {
            (Err(Failure::Invalid(_)), Request::Apply(body)) if entries(body).len() > 1 => {
                let kind = known(&write.object)?;
                let (object, rejected) = self.apply_one_by_one(body, &self.api(kind, &write.object)).await?;
                Ok(Answer::InPart(Box::new(read(kind, object)), rejected))
            }
            (result, _) => result,
        }
    }

    async fn request(&self, write: &Write) -> Result<Answer, Failure> {
        let kind = known(&write.object)?;
        let (api, name) = (self.api(kind, &write.object), write.object.name.as_str());
        let object = match &write.request {
            Request::Apply(body) => apply(&api, name, body).await?,
            Request::Status(body) => api.patch_status(name, &as_us(), &Patch::Merge(body)).await?,
            Request::Patch(patch) => patch_json(&api, name, patch.clone()).await?,
            Request::Takeover(takeover) => take_over(&api, takeover).await?,
            Request::Copy(from) => self.copy(from, &api, &write.object).await?,
            Request::Delete { uid, resource_version } => match delete(&api, name, uid, resource_version).await? {
                Some(object) => object,
                None => return Ok(Answer::Deleted(uid.clone())),
            },
        };
        // Whoever takes the last finalizer of an object that is being deleted gets to see it once more.
        let is_gone = object.metadata.deletion_timestamp.is_some() && !has_finalizers(&object);
        Ok(if is_gone {
            Answer::Deleted(object.metadata.uid.unwrap_or_default())
        } else {
            Answer::Object(Box::new(read(kind, object)))
        })
    }

    /// Makes a Secret as another one is now. One that is there already is nobody's to overwrite.
    async fn copy(
        &self,
        from: &ObjectRef,
        to: &Api<DynamicObject>,
        target: &ObjectRef,
    ) -> Result<DynamicObject, Failure> {
        let source = self.api(known(from)?, from).get(&from.name).await?;
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        Ok(to.create(&parameters, &copy_of(source, target)).await?)
    }

    fn api(&self, kind: &Kind, object: &ObjectRef) -> Api<DynamicObject> {
        let version = object.api_version.rsplit('/').next().unwrap_or_default();
        let resource = kind.resource(version);
        let client = self.client.clone();
        match &object.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }
}

fn known(object: &ObjectRef) -> Result<&'static Kind, Failure> {
    let unknown =
        || Failure::Refused(format!("{} is a kind that Portreeve does not know, which is its own fault", object.kind));
    Kind::find(&object.api_version, &object.kind).ok_or_else(unknown)
}

pub(super) async fn in_time<T>(request: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| Failure::Unavailable(format!("no answer in {} s", LONGEST_WRITE.as_secs()));
    timeout(LONGEST_WRITE, request).await.map_err(late)?
}

fn as_us() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

pub(super) async fn apply(api: &Api<DynamicObject>, name: &str, body: &Value) -> Result<DynamicObject, Failure> {
    Ok(api.patch(name, &as_us().force(), &Patch::Apply(body)).await?)
}

async fn patch_json(api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<DynamicObject, Failure> {
    let patch = serde_json::from_value(patch);
    let patch = patch.map_err(|fault| Failure::Refused(format!("no JSON Patch, a fault of Portreeve: {fault}")))?;
    api.patch(name, &as_us(), &Patch::<()>::Json(patch)).await.map_err(Failure::of_tested_patch)
}

/// The owners of fields are not kept of objects, so the object is read first.
async fn take_over(api: &Api<DynamicObject>, takeover: &Takeover) -> Result<DynamicObject, Failure> {
    let live = api.get(&takeover.object.name).await?;
    let gateway: Result<Gateway, _> = serde_json::to_value(&live).and_then(serde_json::from_value);
    let gateway = gateway.map_err(|fault| Failure::Refused(format!("the Gateway cannot be read: {fault}")))?;
    match takeover.operations(&gateway) {
        operations if operations.is_empty() => Ok(live),
        operations => patch_json(api, &takeover.object.name, operations.into()).await,
    }
}

/// Type and values, and what its issuer has noted on it; no owner.
fn copy_of(source: DynamicObject, target: &ObjectRef) -> DynamicObject {
    let is_of_issuer = |key: &str| ISSUER_KEYS.iter().any(|prefix| key.starts_with(prefix));
    let of_issuer = |map: Option<BTreeMap<String, String>>| {
        map.map(|map| map.into_iter().filter(|(key, _)| is_of_issuer(key)).collect())
    };
    let metadata = ObjectMeta {
        name: Some(target.name.clone()),
        namespace: target.namespace.clone(),
        annotations: of_issuer(source.metadata.annotations),
        labels: of_issuer(source.metadata.labels),
        ..ObjectMeta::default()
    };
    DynamicObject { types: source.types, metadata, data: source.data }
}

/// Deletes an object; returns what is left of it.
async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    resource_version: &str,
) -> Result<Option<DynamicObject>, Failure> {
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version.to_owned()) };
    let parameters = DeleteParams::background().preconditions(preconditions);
    match api.delete(name, &parameters).await {
        // An object with finalizers stays for a while; one without is answered as it was at last.
        Ok(answer) => Ok(answer.left().filter(has_finalizers)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn has_finalizers(object: &DynamicObject) -> bool {
    object.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
}
