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
        KindName::EndpointSlice => {
            (metadata.annotations, metadata.owner_references) = (None, None);
            if let Some(labels) = &mut metadata.labels {
                labels.retain(|label, _| label == SERVICE_NAME);
            }
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

/// The text of what is owned is a twentieth of its tree in memory, and the planner reads either.
fn trim_entry(entry: &mut ManagedFieldsEntry) {
    (entry.api_version, entry.fields_type, entry.time) = (None, None, None);
    if let Some(FieldsV1(fields)) = entry.fields_v1.as_mut().filter(|fields| fields.0.is_object()) {
        *fields = Value::String(fields.to_string());
    }
}

/// Leaves out of the rest of an object what no decision reads.
pub(super) fn trim(kind: KindName, object: &mut Value) {
    let Value::Object(fields) = object else { return };
    match kind {
        KindName::Secret => secret(fields),
        KindName::Service => {
            fields.remove("status");
            if let Some(Value::Object(spec)) = fields.get_mut("spec") {
                spec.retain(|field, _| SERVICE_FIELDS.contains(&field.as_str()));
            }
        }
        KindName::EndpointSlice => fields.get_mut("endpoints").into_iter().for_each(endpoints),
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

/// Of each endpoint whether it is ready, and one address.
fn endpoints(endpoints: &mut Value) {
    for endpoint in endpoints.as_array_mut().into_iter().flatten() {
        let address = endpoint["addresses"].get(0).cloned();
        let ready = endpoint["conditions"].get("ready").cloned();
        let conditions = ready.map_or_else(|| json!({}), |ready| json!({ "ready": ready }));
        *endpoint = json!({ "addresses": Vec::from_iter(address), "conditions": conditions });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_secret_only_the_keys_that_have_something_are_left() {
        let mut object = json!({
            "data": {"tls.crt": "c2VjcmV0", "tls.key": ""}, "type": "kubernetes.io/tls", "immutable": true,
        });
        trim(KindName::Secret, &mut object);
        assert_eq!(object, json!({"data": {"tls.crt": "AA==", "tls.key": ""}, "type": "kubernetes.io/tls"}));
    }

    #[test]
    fn of_a_workload_only_the_replicas_are_left() {
        let mut object = json!({
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a"}]}}, "selector": {"matchLabels": {}}},
            "status": {"replicas": 2, "readyReplicas": 1, "observedGeneration": 3, "conditions": []},
        });
        trim(KindName::StatefulSet, &mut object);
        assert_eq!(object["spec"], json!({"replicas": 2, "selector": {}, "serviceName": "", "template": {}}));
        assert_eq!(object["status"], json!({"replicas": 2, "readyReplicas": 1, "observedGeneration": 3}));
    }

    #[test]
    fn an_endpoint_keeps_its_readiness_and_an_address() {
        let mut object = json!({"endpoints": [
            {"addresses": ["10.0.0.1", "10.0.0.2"], "conditions": {"ready": false, "serving": true}, "nodeName": "n"},
            {"addresses": [], "conditions": {}, "targetRef": {"kind": "Pod"}},
            {"addresses": ["10.0.0.3"]},
        ], "ports": [{"port": 1}]});
        trim(KindName::EndpointSlice, &mut object);
        let wanted = json!({"endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}},
            {"addresses": [], "conditions": {}},
            {"addresses": ["10.0.0.3"], "conditions": {}},
        ], "ports": [{"port": 1}]});
        assert_eq!(object, wanted);
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
