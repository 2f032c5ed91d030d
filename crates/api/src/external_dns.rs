//! The part of external-dns's DNSEndpoint (`externaldns.k8s.io/v1alpha1`) that Portreeve writes and reads.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// DNS records to publish.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "externaldns.k8s.io",
    version = "v1alpha1",
    kind = "DNSEndpoint",
    root = "DnsEndpoint",
    plural = "dnsendpoints",
    namespaced,
    status = "DnsEndpointStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct DnsEndpointSpec {
    /// The records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<DnsRecord>,
    /// The fields that Portreeve neither writes nor reads, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The records of one name and type.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsRecord {
    /// The name: exact or `*.suffix`.
    #[serde(default)]
    pub dns_name: String,
    /// How many seconds resolvers may keep it.
    #[serde(rename = "recordTTL", default, skip_serializing_if = "Option::is_none")]
    pub record_ttl: Option<i64>,
    /// `A`, `AAAA` or `CNAME`.
    #[serde(default)]
    pub record_type: String,
    /// Addresses, or the name that this one stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The fields that Portreeve neither writes nor reads, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What external-dns has seen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DnsEndpointStatus {
    /// The `metadata.generation` that external-dns has taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
