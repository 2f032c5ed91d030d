//! The part of cert-manager's ClusterIssuer (`cert-manager.io/v1`) that Portreeve reads.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Issues certificates for every namespace.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "cert-manager.io",
    version = "v1",
    kind = "ClusterIssuer",
    plural = "clusterissuers",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIssuerSpec {
    /// By the ACME protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeIssuer>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// An issuer that demands proof by a challenge.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcmeIssuer {
    /// How challenges are met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub solvers: Vec<AcmeSolver>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How a challenge is met.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcmeSolver {
    /// By an answer over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http01: Option<Http01Solver>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How an answer over HTTP reaches the asker.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Http01Solver {
    /// By an HTTPRoute that cert-manager makes in the namespace of the Certificate.
    #[serde(default, rename = "gatewayHTTPRoute", skip_serializing_if = "Option::is_none")]
    pub gateway_http_route: Option<HttpRouteSolver>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What cert-manager's HTTPRoutes look like.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteSolver {
    /// What they attach to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<SolverParent>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What a solver's HTTPRoutes attach to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SolverParent {
    /// Its name.
    pub name: String,
    /// Its namespace; absent means that of the HTTPRoute, which is that of the Certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ClusterIssuerSpec {
    /// The parents of all HTTPRoutes by which challenges are met.
    pub fn http01_parents(&self) -> impl Iterator<Item = &SolverParent> {
        let solvers = self.acme.iter().flat_map(|acme| &acme.solvers);
        let routes = solvers.filter_map(|solver| solver.http01.as_ref()?.gateway_http_route.as_ref());
        routes.flat_map(|route| &route.parent_refs)
    }
}
