//! Tenant (`kubespaces.io/v1alpha1`): a virtual cluster, its API server's name and its apps' names.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema_parts::{any_object, conditions};
use crate::shared::{Claim, GatewayReference};

/// What a tenant asks for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema, CustomResource)]
#[kube(
    group = "kubespaces.io",
    version = "v1alpha1",
    kind = "Tenant",
    plural = "tenants",
    shortname = "ten",
    status = "TenantStatus",
    derive = "PartialEq",
    doc = "A tenant of the platform: a virtual cluster, the name of its API server and the names of its apps.",
    printcolumn = r#"{"name": "Owner", "type": "string", "jsonPath": ".spec.owner"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "API", "type": "string", "jsonPath": ".status.apiServerUrl"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// Title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Who the tenant belongs to.
    #[schemars(length(min = 1))]
    pub owner: String,
    /// Namespace of the virtual cluster; default: `kubespaces-tenant-<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// What the tenant may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<TenantResources>,
    /// The virtual cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<Vcluster>,
}

/// What a tenant may use, as Kubernetes quantities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantResources {
    /// CPU, such as `4` or `500m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, such as `8Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Storage, such as `50Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// A virtual cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vcluster {
    /// Version of the vCluster chart; default: the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Version of Kubernetes in the virtual cluster; default: the chart's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// Values of the chart that win over the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub values_overrides: Option<Map<String, Value>>,
}

/// What became of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<TenantPhase>,
    /// Why it is there, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the kubeconfig is, in the tenant's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretKeyReference>,
    /// URL of the API server, with its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,
    /// Wildcard of the apps' names, with its leading `*.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps_domain: Option<String>,
    /// The apps Gateway that the virtual cluster is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps_gateway: Option<GatewayReference>,
    /// What is so and what is not, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The names that the tenant holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

/// How far a tenant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum TenantPhase {
    /// Accepted, nothing made yet.
    Pending,
    /// Being made.
    Provisioning,
    /// Usable.
    Ready,
    /// Being removed.
    Deleting,
    /// Stopped by a mistake that somebody has to correct.
    Failed,
}

/// One key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyReference {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Key in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
