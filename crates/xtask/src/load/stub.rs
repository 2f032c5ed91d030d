//! A gateway that serves nothing and acknowledges everything at once, so that only the operator is measured.

use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt};
use portreeve_controller::kind::{Kind, KindName};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::create_all;

/// How many statuses are written at once.
const SIDE_BY_SIDE: usize = 24;

/// The label of tenants' namespaces.
const TENANT: &str = "kubespaces.io/tenant";

/// It acknowledges until it is dropped.
pub(crate) struct Stub(Vec<JoinHandle<()>>);

impl Stub {
    pub(crate) fn start(client: &Client) -> Self {
        let acknowledge = |kind, status| tokio::spawn(acknowledge(client.clone(), Kind::of(kind), status));
        Self(vec![
            acknowledge(KindName::ListenerSet, status_of_listeners),
            acknowledge(KindName::HttpRoute, status_of_route),
            acknowledge(KindName::TlsRoute, status_of_route),
        ])
    }
}

impl Stub {
    /// Acknowledges what tenants need, and gives each the Service of an API server once it has a namespace.
    pub(crate) fn for_tenants(client: &Client) -> Self {
        let acknowledge = |kind, status| tokio::spawn(acknowledge(client.clone(), Kind::of(kind), status));
        Self(vec![
            acknowledge(KindName::Gateway, status_of_listeners),
            acknowledge(KindName::TlsRoute, status_of_route),
            acknowledge(KindName::Certificate, status_of_certificate),
            tokio::spawn(serve_tenants(client.clone())),
        ])
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Writes the status of every object of a kind that has none for its generation.
async fn acknowledge(client: Client, kind: &'static Kind, status: fn(&DynamicObject) -> Value) {
    let resource = kind.resource(kind.versions.first().copied().unwrap_or_default());
    let objects = watcher(Api::<DynamicObject>::all_with(client.clone(), &resource), Config::default());
    // What cannot be read or written is so again with the next event; a bench that waits for it says so.
    let objects = pin!(objects.default_backoff().applied_objects().into_stream().filter_map(async |found| found.ok()));
    let unacknowledged = objects.filter(|object| std::future::ready(!is_acknowledged(object)));
    unacknowledged
        .for_each_concurrent(SIDE_BY_SIDE, async |object| {
            let namespace = object.namespace().unwrap_or_default();
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
            let patch = Patch::Merge(json!({"status": status(&object)}));
            let _ = api.patch_status(&object.name_any(), &PatchParams::default(), &patch).await;
        })
        .await;
}

fn is_acknowledged(object: &DynamicObject) -> bool {
    let status = &object.data["status"];
    let conditions = [&status["conditions"], &status["parents"][0]["conditions"]];
    let mut conditions = conditions.into_iter().filter_map(Value::as_array).flatten();
    conditions.any(|condition| condition["observedGeneration"].as_i64() == object.metadata.generation)
}

/// Of a ListenerSet or a Gateway.
fn status_of_listeners(set: &DynamicObject) -> Value {
    let listeners = set.data["spec"]["listeners"].as_array().into_iter().flatten().map(|listener| {
        json!({
            "name": listener["name"], "attachedRoutes": 1,
            "supportedKinds": listener["allowedRoutes"]["kinds"],
            "conditions": [
                condition(set, "Accepted"),
                condition(set, "Programmed"),
                condition(set, "ResolvedRefs"),
            ],
        })
    });
    let listeners: Vec<_> = listeners.collect();
    json!({"conditions": [condition(set, "Accepted"), condition(set, "Programmed")], "listeners": listeners})
}

fn status_of_route(route: &DynamicObject) -> Value {
    let parents = route.data["spec"]["parentRefs"].as_array().into_iter().flatten().map(|parent| {
        json!({
            "parentRef": parent, "controllerName": "example.test/stub",
            "conditions": [condition(route, "Accepted"), condition(route, "ResolvedRefs")],
        })
    });
    json!({"parents": parents.collect::<Vec<_>>()})
}

fn status_of_certificate(certificate: &DynamicObject) -> Value {
    json!({"conditions": [condition(certificate, "Ready")]})
}

/// A Service with an endpoint in every tenant's namespace.
async fn serve_tenants(client: Client) {
    let labelled = Config::default().labels(TENANT);
    let namespaces = watcher(Api::<Namespace>::all(client.clone()), labelled).default_backoff().applied_objects();
    let namespaces = pin!(namespaces.into_stream().filter_map(async |found| found.ok()));
    namespaces
        .for_each_concurrent(SIDE_BY_SIDE, async |namespace| {
            let Some(tenant) = namespace.labels().get(TENANT) else { return };
            // What is there already is as it should be.
            let _ = create_all(&client, api_server(&namespace.name_any(), tenant)).await;
        })
        .await;
}

fn api_server(namespace: &str, tenant: &str) -> Vec<Value> {
    let mut slice = json!({"name": format!("{tenant}-1"), "namespace": namespace});
    slice["labels"] = json!({"kubernetes.io/service-name": tenant});
    vec![
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": tenant, "namespace": namespace},
            "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice,
            "addressType": "IPv4", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}),
    ]
}

fn condition(object: &DynamicObject, kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": kind, "message": "",
        "observedGeneration": object.metadata.generation, "lastTransitionTime": object.metadata.creation_timestamp,
    })
}
