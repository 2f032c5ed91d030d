//! The parts of the network policies of administrators (`policy.networking.k8s.io`) that Portreeve writes and reads.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A policy that stands above NetworkPolicies, or below them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "policy.networking.k8s.io",
    version = "v1alpha2",
    kind = "ClusterNetworkPolicy",
    plural = "clusternetworkpolicies",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetworkPolicySpec {
    /// Whether it stands above NetworkPolicies (`Admin`) or below them (`Baseline`).
    #[serde(default)]
    pub tier: String,
    /// Lower ones come first.
    #[serde(default)]
    pub priority: i32,
    /// Everything else, as it is.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The older form of [`ClusterNetworkPolicySpec`]: always above NetworkPolicies.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "policy.networking.k8s.io",
    version = "v1alpha1",
    kind = "AdminNetworkPolicy",
    plural = "adminnetworkpolicies",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct AdminNetworkPolicySpec {
    /// Lower ones come first.
    #[serde(default)]
    pub priority: i32,
    /// Everything else, as it is.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
