use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema_parts::{DNS_LABEL, port};
use crate::shared::ServiceReference;

/// The most names that one entry of `routing.tcp` may have.
pub const MAX_SNI_HOSTNAMES: usize = 16;

/// TLS connections on one port that pass through to the app untouched, routed by server name.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.sniHostnames) || self.sniHostnames.all(n, n.endsWith('*')) || !self.sniHostnames.exists(n, n.endsWith('*'))",
    "message": "sniHostnames must be either all names or all patterns that end in '*'; use an entry for each",
}]))]
pub struct TcpEntry {
    /// Name of the entry: a DNS label, at most 63 characters. Listeners and routes are named after it.
    #[schemars(length(min = 1, max = 63), regex(pattern = DNS_LABEL))]
    pub name: String,
    /// The listener on the shared Gateway.
    pub listener: TcpListener,
    /// Server names (SNI): exact, `*.suffix`, or a pattern with a final `*` such as `daskgateway-*`; at most 16.
    ///
    /// Each name becomes a listener of its own. None: one listener that takes every name of the port. A pattern, which
    /// stands for one or more characters, also makes one such listener, and limits the names that the app's own routes
    /// may have; names and patterns may not be mixed in one entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_SNI_HOSTNAMES), inner(length(min = 1, max = 253)))]
    pub sni_hostnames: Vec<String>,
    /// The Service that terminates TLS. Without it the app attaches its own TLSRoutes to the listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// Pods that connect from inside the cluster and need to be let through to the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<TcpClient>,
    /// Routes of another kind from which TLSRoutes are made.
    #[serde(default)]
    pub route_import: RouteImport,
}

/// A listener that passes TLS through.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpListener {
    /// Port on the Gateway, 1 to 65535; not one that serves HTTP or HTTPS.
    #[schemars(schema_with = "port")]
    pub port: u16,
}

/// Pods that connect from inside the cluster; an absent selector selects all.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpClient {
    /// Namespaces of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub namespace_selector: Option<LabelSelector>,
    /// The pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub pod_selector: Option<LabelSelector>,
}

/// Routes of another kind from which TLSRoutes are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum RouteImport {
    /// None.
    #[default]
    None,
    /// Traefik's `IngressRouteTCP` with `tls.passthrough`.
    #[serde(rename = "TraefikIngressRouteTCP")]
    TraefikIngressRouteTcp,
}
