//! The part of Traefik's IngressRouteTCP (`traefik.io/v1alpha1`) that Portreeve reads.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Connections that Traefik routes by server name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "traefik.io",
    version = "v1alpha1",
    kind = "IngressRouteTCP",
    root = "IngressRouteTcp",
    plural = "ingressroutetcps",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct IngressRouteTcpSpec {
    /// What is routed where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<IngressRouteTcpRoute>,
    /// What Traefik does with TLS; absent: the connections have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<IngressRouteTcpTls>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One rule of an IngressRouteTCP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressRouteTcpRoute {
    /// Which connections, in Traefik's rule language.
    #[serde(rename = "match", default)]
    pub rule: String,
    /// Where they go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<IngressRouteTcpService>,
    /// What they pass on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middlewares: Vec<Value>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// One Service of a rule.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressRouteTcpService {
    /// Its name.
    pub name: String,
    /// Its namespace; absent means that of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// One of its ports, by number or name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// Its share of the connections; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// What Traefik does with TLS.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressRouteTcpTls {
    /// Whether it passes TLS through untouched.
    #[serde(default)]
    pub passthrough: bool,
    /// The fields that Portreeve does not read, kept as they are.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
