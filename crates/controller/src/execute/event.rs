use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, PostParams};
use portreeve_plan::{Event, FIELD_MANAGER};
use tokio::sync::mpsc;

use super::write::key;
use crate::reflect::cache::Cache;
use crate::reflect::kind::Kind;
use crate::tasks::Tasks;

/// The longest message that an API server takes, in bytes.
const LONGEST_MESSAGE: usize = 1024;
/// Where events about objects without a namespace are.
const DEFAULT_NAMESPACE: &str = "default";

/// Builds the Kubernetes Event for `event`.
///
/// The core group's Event is what the contract gives the right to create, and what `kubectl describe` shows.
pub(crate) fn record(event: &Event, cache: &Cache, now: Timestamp) -> CoreEvent {
    let about = &event.about;
    let known = Kind::find(&about.api_version, &about.kind).and_then(|kind| cache.get(kind.name, &key(about)));
    let metadata = known.map(crate::reflect::Entry::metadata);
    let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let time = Some(Time(now));
    CoreEvent {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}.", about.name)),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(about.api_version.clone()),
            kind: Some(about.kind.clone()),
            namespace: about.namespace.clone(),
            name: Some(about.name.clone()),
            uid: metadata.and_then(|metadata| metadata.uid.clone()),
            resource_version: metadata.and_then(|metadata| metadata.resource_version.clone()),
            field_path: None,
        },
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(event.reason.clone()),
        message: Some(cut(&event.message).to_owned()),
        source: Some(EventSource { component: Some(FIELD_MANAGER.to_owned()), host: None }),
        reporting_component: Some(FIELD_MANAGER.to_owned()),
        first_timestamp: time.clone(),
        last_timestamp: time,
        count: Some(1),
        ..CoreEvent::default()
    }
}

/// Takes events, and never keeps anybody waiting.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    sender: mpsc::Sender<CoreEvent>,
}

/// How many events may wait. Of a greater burst the rest is lost: the conditions say the same.
const QUEUE: usize = 2000;

impl Recorder {
    /// Starts the task that creates events.
    pub(crate) fn start(client: Client, tasks: &mut Tasks) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tasks.spawn("events", async move {
            let events = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
            // One at a time: events hold up no write.
            events.for_each(|event| create(client.clone(), event)).await;
        });
        Self { sender }
    }

    pub(crate) fn send(&self, event: CoreEvent) {
        if self.sender.try_send(event).is_err() {
            tracing::debug!("too many events: one was lost");
        }
    }
}

async fn create(client: Client, event: CoreEvent) {
    let namespace = event.metadata.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let api: Api<CoreEvent> = Api::namespaced(client, namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(error = %crate::text::chain(&error), "an event was lost");
    }
}

fn cut(message: &str) -> &str {
    let mut end = message.len().min(LONGEST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}
