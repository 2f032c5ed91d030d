//! The part of cert-manager's Certificate (`cert-manager.io/v1`) that Portreeve writes and reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A certificate to issue and keep in a Secret.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "cert-manager.io",
    version = "v1",
    kind = "Certificate",
    plural = "certificates",
    namespaced,
    status = "CertificateStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct CertificateSpec {
    /// Secret of the same namespace that receives the certificate.
    pub secret_name: String,
    /// Names of the certificate: exact or `*.suffix`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
    /// Who issues it.
    pub issuer_ref: IssuerReference,
    /// The fields that Portreeve neither writes nor reads, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An Issuer or ClusterIssuer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IssuerReference {
    /// Its name.
    pub name: String,
    /// Its kind; absent means `Issuer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its API group; absent means `cert-manager.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// What became of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// One of each type; `Ready` says whether the Secret has a certificate that fits the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<CertificateCondition>,
    /// The fields that Portreeve neither writes nor reads, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One condition of a certificate. Unlike `metav1.Condition`, all but type and status may be absent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateCondition {
    /// `Ready` or `Issuing`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The `metadata.generation` that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
