//! Leaves out what no decision reads, so that many thousand objects fit into little memory.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use portreeve_api::names::labels;
use portreeve_plan::FIELD_MANAGER;
use serde_json::{Map, Value, json};

use super::kind::KindName;

/// What `kubectl apply` writes: the whole object once more.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// By this label an EndpointSlice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Base64 of one byte: there is something.
const SOMETHING: &str = "AA==";
/// By these a Service says of which Gateway it is the data plane.
const DATA_PLANE_LABELS: [&str; 3] = [
    "gateway.envoyproxy.io/owning-gateway-namespace",
    "gateway.envoyproxy.io/owning-gateway-name",
    "gateway.networking.k8s.io/gateway-name",
];

/// Leaves out of an object's metadata what no decision reads.
pub(super) fn trim_metadata(kind: KindName, metadata: &mut ObjectMeta) {
    metadata.self_link = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    let ours = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    // Who else writes Gateways is told when listeners are gone.
    let of_gateway = |entry: &ManagedFieldsEntry| {
        kind == KindName::Gateway && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    if let Some(entries) = &mut metadata.managed_fields {
        entries.retain(|entry| ours(entry) || of_gateway(entry));
        entries.shrink_to_fit();
        // What is on a Gateway is others' too, and there are few.
        if kind != KindName::Gateway {
            entries.iter_mut().for_each(trim_entry);
        }
    }
    if metadata.managed_fields.as_ref().is_some_and(Vec::is_empty) {
        metadata.managed_fields = None;
    }
    match kind {
        KindName::Service => {
            forget_revision(metadata);
            metadata.owner_references = None;
            keep(&mut metadata.annotations, &[labels::ALLOW_FROM]);
            keep(&mut metadata.labels, &DATA_PLANE_LABELS);
        }
        KindName::EndpointSlice => {
            forget_revision(metadata);
            (metadata.annotations, metadata.owner_references) = (None, None);
            keep(&mut metadata.labels, &[SERVICE_NAME]);
        }
        KindName::Secret => {
            (metadata.annotations, metadata.owner_references) = (None, None);
            // By these the Secret of a tenant's certificate is found when the tenant is gone.
            metadata.labels = metadata.labels.take().filter(is_of_tenant);
        }
        KindName::HelmRecord => metadata.annotations = None,
        KindName::StatefulSet | KindName::TenantDeployment => (metadata.annotations, metadata.labels) = (None, None),
        _ => {}
    }
}

/// Of what Portreeve never writes the revision is kept beside the object, so that a state that differs in nothing else is none.
fn forget_revision(metadata: &mut ObjectMeta) {
    (metadata.resource_version, metadata.generation) = (None, None);
}

fn keep(texts: &mut Option<BTreeMap<String, String>>, keys: &[&str]) {
    if let Some(texts) = texts {
        texts.retain(|key, _| keys.contains(&key.as_str()));
    }
    *texts = texts.take().filter(|texts| !texts.is_empty());
}

/// The text of what is owned is a twentieth of its tree in memory, and the planner reads either.
fn trim_entry(entry: &mut ManagedFieldsEntry) {
    (entry.api_version, entry.fields_type, entry.time) = (None, None, None);
    if let Some(FieldsV1(fields)) = entry.fields_v1.as_mut().filter(|fields| fields.0.is_object()) {
        *fields = Value::String(fields.to_string());
    }
}

/// Leaves out of the rest of an object what no decision reads.
pub(super) fn trim(kind: KindName, metadata: &ObjectMeta, object: &mut Value) {
    let Value::Object(fields) = object else { return };
    match kind {
        KindName::Secret => secret(fields),
        KindName::Service => {
            fields.remove("status");
            if let Some(Value::Object(spec)) = fields.get_mut("spec") {
                spec.retain(|field, _| SERVICE_FIELDS.contains(&field.as_str()));
            }
        }
        KindName::EndpointSlice => {
            if let Some(endpoints) = fields.get_mut("endpoints").and_then(Value::as_array_mut) {
                trim_endpoints(endpoints, is_of_api_server(metadata));
            }
        }
        KindName::Namespace | KindName::HelmRecord => fields.retain(|field, _| field == "metadata"),
        KindName::StatefulSet | KindName::TenantDeployment => workload(fields),
        _ => {}
    }
}

fn is_of_tenant(labels: &BTreeMap<String, String>) -> bool {
    labels.get(labels::MANAGED_BY).is_some_and(|manager| manager == labels::KUBESPACES_OPERATOR)
}

const SERVICE_FIELDS: [&str; 5] = ["ports", "selector", "type", "clusterIP", "externalName"];

/// Only which keys have something, never what.
fn secret(fields: &mut Map<String, Value>) {
    fields.retain(|field, _| matches!(field.as_str(), "data" | "type"));
    let values = fields.get_mut("data").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, value) in values {
        if value.as_str().is_some_and(|text| !text.is_empty()) {
            *value = SOMETHING.into();
        }
    }
}

/// How many replicas there should be, and are ready.
fn workload(fields: &mut Map<String, Value>) {
    fields.retain(|field, _| matches!(field.as_str(), "spec" | "status"));
    let replicas = fields.get("spec").and_then(|spec| spec.get("replicas")).cloned();
    let empty = json!({ "selector": {}, "serviceName": "", "template": {} });
    let mut spec = empty.as_object().cloned().unwrap_or_default();
    spec.extend(replicas.map(|replicas| ("replicas".to_owned(), replicas)));
    fields.insert("spec".to_owned(), Value::Object(spec));
    if let Some(Value::Object(status)) = fields.get_mut("status") {
        status.retain(|field, _| matches!(field.as_str(), "replicas" | "readyReplicas" | "observedGeneration"));
    }
}

/// Of the endpoints one that is ready, or of all of them, with one address each: decisions ask whether there is one, and
/// dial one.
fn trim_endpoints(endpoints: &mut Vec<Value>, all: bool) {
    let is_ready = |one: &Value| one["conditions"]["ready"] != false && one["addresses"].get(0).is_some();
    let mut kept: Vec<_> = endpoints.iter().filter(|one| all || is_ready(one)).map(trim_endpoint).collect();
    if !all {
        // The same one, in whatever order they come.
        kept.sort_by(|one, other| one["addresses"][0].as_str().cmp(&other["addresses"][0].as_str()));
        kept.truncate(1);
    }
    *endpoints = kept;
}

fn trim_endpoint(endpoint: &Value) -> Value {
    let address = endpoint["addresses"].get(0).cloned();
    let ready = endpoint["conditions"].get("ready").cloned();
    let conditions = ready.map_or_else(|| json!({}), |ready| json!({ "ready": ready }));
    json!({ "addresses": Vec::from_iter(address), "conditions": conditions })
}

/// Whether a slice has the addresses of the cluster's own API server, which NetworkPolicies name one by one.
fn is_of_api_server(metadata: &ObjectMeta) -> bool {
    let service = metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
    metadata.namespace.as_deref() == Some("default") && service.is_some_and(|service| service == "kubernetes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_secret_only_the_keys_that_have_something_are_left() {
        let mut object = json!({
            "data": {"tls.crt": "c2VjcmV0", "tls.key": ""}, "type": "kubernetes.io/tls", "immutable": true,
        });
        trim(KindName::Secret, &ObjectMeta::default(), &mut object);
        assert_eq!(object, json!({"data": {"tls.crt": "AA==", "tls.key": ""}, "type": "kubernetes.io/tls"}));
    }

    #[test]
    fn of_a_workload_only_the_replicas_are_left() {
        let mut object = json!({
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a"}]}}, "selector": {"matchLabels": {}}},
            "status": {"replicas": 2, "readyReplicas": 1, "observedGeneration": 3, "conditions": []},
        });
        trim(KindName::StatefulSet, &ObjectMeta::default(), &mut object);
        assert_eq!(object["spec"], json!({"replicas": 2, "selector": {}, "serviceName": "", "template": {}}));
        assert_eq!(object["status"], json!({"replicas": 2, "readyReplicas": 1, "observedGeneration": 3}));
    }

    #[test]
    fn of_endpoints_one_that_is_ready_is_left_and_of_an_api_servers_all() {
        let slice = json!({"endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false, "serving": true}, "nodeName": "n"},
            {"addresses": [], "conditions": {}, "targetRef": {"kind": "Pod"}},
            {"addresses": ["10.0.0.4", "10.0.0.5"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.3"]},
        ], "ports": [{"port": 1}]});
        let trimmed = |namespace: &str| {
            let mut metadata = ObjectMeta {
                namespace: Some(namespace.to_owned()),
                labels: Some([(SERVICE_NAME.to_owned(), "kubernetes".to_owned())].into()),
                ..ObjectMeta::default()
            };
            let mut slice = slice.clone();
            trim_metadata(KindName::EndpointSlice, &mut metadata);
            trim(KindName::EndpointSlice, &metadata, &mut slice);
            slice
        };
        let one = json!({"addresses": ["10.0.0.3"], "conditions": {}});
        assert_eq!(trimmed("team"), json!({"endpoints": [one], "ports": [{"port": 1}]}));
        let all = json!([
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
            {"addresses": [], "conditions": {}},
            {"addresses": ["10.0.0.4"], "conditions": {"ready": true}},
            one,
        ]);
        assert_eq!(trimmed("default")["endpoints"], all);
    }

    #[test]
    fn of_managed_fields_only_our_own_are_left() {
        let entry = |manager: &str, operation: &str, subresource: Option<&str>| ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            subresource: subresource.map(str::to_owned),
            ..ManagedFieldsEntry::default()
        };
        let ours = entry(FIELD_MANAGER, "Apply", None);
        let others = [entry("kubectl", "Apply", None), entry(FIELD_MANAGER, "Update", Some("status"))];
        let mut metadata = ObjectMeta {
            managed_fields: Some([std::slice::from_ref(&ours), &others[..]].concat()),
            annotations: Some([(LAST_APPLIED.to_owned(), "{}".to_owned())].into()),
            ..ObjectMeta::default()
        };
        trim_metadata(KindName::HttpRoute, &mut metadata);
        assert_eq!(metadata.managed_fields, Some(vec![ours]));
        assert_eq!(metadata.annotations, Some([].into()));
    }

    #[test]
    fn of_a_gateway_those_are_left_too_that_write_it() {
        let entry = |subresource: Option<&str>| ManagedFieldsEntry {
            manager: Some("argocd".to_owned()),
            operation: Some("Update".to_owned()),
            subresource: subresource.map(str::to_owned),
            ..ManagedFieldsEntry::default()
        };
        let all =
            || ObjectMeta { managed_fields: Some(vec![entry(None), entry(Some("status"))]), ..ObjectMeta::default() };
        let (mut gateway, mut route) = (all(), all());
        trim_metadata(KindName::Gateway, &mut gateway);
        trim_metadata(KindName::HttpRoute, &mut route);
        assert_eq!((gateway.managed_fields, route.managed_fields), (Some(vec![entry(None)]), None));
    }
}
