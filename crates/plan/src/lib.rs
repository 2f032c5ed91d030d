//! From what people write to what must exist.
//!
//! Room rule: no I/O, no async, no clock, no environment, and never an `Err` for a user's mistake: that is a condition.

use std::sync::Arc;

use gateway_api::{gatewayclasses::*, gateways::*, httproutes::*, listenersets::*, referencegrants::*, tlsroutes::*};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// Everything that a decision may depend on. Shared, so that a snapshot of a cluster costs no copies.
#[derive(Clone, Debug)]
pub struct World {
    /// The clock, read once.
    pub now: jiff::Timestamp,
    pub config: Config,
    // pub apps: Vec<Arc<portreeve_api::NebariApp>>,
    // pub tenants: Vec<Arc<portreeve_api::Tenant>>,
    pub namespaces: Vec<Arc<Namespace>>,
    pub services: Vec<Arc<Service>>,
    pub endpoint_slices: Vec<Arc<EndpointSlice>>,
    pub secrets: Vec<Arc<Secret>>,
    pub gateway_classes: Vec<Arc<GatewayClass>>,
    pub gateways: Vec<Arc<Gateway>>,
    pub listener_sets: Vec<Arc<ListenerSet>>,
    pub http_routes: Vec<Arc<HttpRoute>>,
    pub tls_routes: Vec<Arc<TlsRoute>>,
    pub reference_grants: Vec<Arc<ReferenceGrant>>,
    // pub certificates: Vec<Arc<portreeve_api::Certificate>>,
    // pub security_policies: Vec<Arc<portreeve_api::SecurityPolicy>>,
}

/// What the platform has configured.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The ClusterIssuer of apps (`TLS_CLUSTER_ISSUER_NAME`).
    pub cluster_issuer: Option<String>,
    pub tenant_api: Option<TenantApi>,
    pub tenant_apps: Option<TenantApps>,
}

/// The passthrough path to tenants' API servers (`KUBESPACES_*`).
#[derive(Clone, Debug)]
pub struct TenantApi {
    pub gateway_namespace: String,
    pub gateway_name: String,
    pub section: Option<String>,
    pub domain: String,
    pub external_dns_target: Option<String>,
}

/// The terminating path to tenants' apps (`KUBESPACES_APPS_*`).
#[derive(Clone, Debug)]
pub struct TenantApps {
    pub gateway_namespace: String,
    pub gateway_name: String,
    pub domain: String,
    pub cluster_issuer: String,
}

/// What must be written to make the world as its owners want it; empty when it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Complete server-side-apply bodies, in the order in which they must be written; only those that are due.
    pub apply: Vec<Apply>,
    /// After the applies.
    pub delete: Vec<ObjectRef>,
    /// Last.
    pub statuses: Vec<StatusWrite>,
    pub events: Vec<Event>,
    /// When to plan again although nothing has changed.
    pub wake_at: Option<jiff::Timestamp>,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

/// One server-side apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    pub object: ObjectRef,
    /// All fields that Portreeve wants to own on this object, with `apiVersion`, `kind` and `metadata`.
    pub body: serde_json::Value,
}

/// One status to write, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    pub object: ObjectRef,
    pub status: serde_json::Value,
}

/// One event to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub about: ObjectRef,
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

/// Decides everything; the same world always gives the same plan.
pub fn plan(_world: &World) -> Plan {
    Plan::default()
}
