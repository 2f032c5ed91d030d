//! The parts of the kinds of Flux that Portreeve writes and reads: `HelmRelease` (`helm.toolkit.fluxcd.io/v2`), and
//! `OCIRepository` and `HelmRepository` (`source.toolkit.fluxcd.io/v1`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A Helm release that Flux installs and keeps.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "helm.toolkit.fluxcd.io",
    version = "v2",
    kind = "HelmRelease",
    plural = "helmreleases",
    namespaced,
    status = "FluxStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct HelmReleaseSpec {
    /// All fields, as they are.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A chart in an OCI registry.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "OCIRepository",
    plural = "ocirepositories",
    namespaced,
    status = "FluxStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[kube(root = "OciRepository")]
pub struct OciRepositorySpec {
    /// All fields, as they are.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// A Helm repository that is served over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "source.toolkit.fluxcd.io",
    version = "v1",
    kind = "HelmRepository",
    plural = "helmrepositories",
    namespaced,
    status = "FluxStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct HelmRepositorySpec {
    /// All fields, as they are.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// What became of an object of Flux.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FluxStatus {
    /// The `metadata.generation` that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One of each type; `Ready` says whether what the spec asks for is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
