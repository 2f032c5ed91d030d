//! The part of Envoy Gateway's SecurityPolicy (`gateway.envoyproxy.io/v1alpha1`) that Portreeve reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Sign-in and other protection of routes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "SecurityPolicy",
    plural = "securitypolicies",
    namespaced,
    status = "SecurityPolicyStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct SecurityPolicySpec {
    /// What it protects, in its own namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_refs: Vec<PolicyTarget>,
    /// What it protects, in the older form for one target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<PolicyTarget>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A route or Gateway that a policy protects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyTarget {
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// One rule or listener of it; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
}

/// What became of a policy (GEP-713).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityPolicyStatus {
    /// One of each parent of the protected routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<PolicyAncestorStatus>,
}

/// What became of a policy for one parent of the protected routes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestorStatus {
    /// The parent.
    pub ancestor_ref: AncestorReference,
    /// The controller that says so.
    pub controller_name: String,
    /// One of each type; `Accepted` says whether the policy is in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A parent of a protected route: a Gateway or a ListenerSet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AncestorReference {
    /// Its API group; absent means `gateway.networking.k8s.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its kind; absent means `Gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its namespace; absent means the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// One listener of it; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// One port of it; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

impl SecurityPolicySpec {
    /// Everything that the policy protects, in whichever form it is written.
    pub fn targets(&self) -> impl Iterator<Item = &PolicyTarget> {
        self.target_ref.iter().chain(&self.target_refs)
    }
}
