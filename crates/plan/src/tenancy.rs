//! What the platform has configured for tenants, and what the shell finds out about them.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use serde_json::{Map, Value};

use crate::claim::GatewayName;

/// The passthrough path to tenants' API servers (`KUBESPACES_*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantApi {
    /// Namespace of the Gateway, and of the TLSRoutes.
    pub gateway_namespace: String,
    /// Name of the Gateway.
    pub gateway_name: String,
    /// Its passthrough listener; absent: whichever takes the name.
    pub section: Option<String>,
    /// The domain under which `<tenant>.api.` lies.
    pub domain: String,
    /// Where external-dns points the names; absent: at the Gateway's addresses.
    pub external_dns_target: Option<String>,
}

/// The terminating path to tenants' apps (`KUBESPACES_APPS_*`).
///
/// The apps Gateways (*shards*) are all in one namespace. They are the first, those that are named beside it, those that
/// the selector finds, and those that Portreeve has made from the template; each tenant has one of them for life.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantApps {
    /// Namespace of the Gateways, and of the certificates.
    pub gateway_namespace: String,
    /// Name of the first Gateway. Tenants see theirs under this name, whichever it is.
    pub gateway_name: String,
    /// Names of more Gateways.
    pub more_gateways: Vec<String>,
    /// Gateways with all these labels are shards too; empty: none is for its labels.
    pub gateway_labels: BTreeMap<String, String>,
    /// How the next Gateway is made when all are full; absent: none is made.
    pub template: Option<GatewayTemplate>,
    /// Where tenants' listeners are.
    pub placement: Placement,
    /// The domain under which `*.<tenant>.apps.` lies.
    pub domain: String,
    /// The ClusterIssuer of the wildcard certificates.
    pub cluster_issuer: String,
    /// For how many seconds resolvers may keep a tenant's DNS record; 0: 300. A move waits at least as long.
    pub dns_ttl: u32,
}

/// Where tenants' listeners are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Entries of the apps Gateways, at most 64 on each.
    #[default]
    Gateway,
    /// A ListenerSet for each tenant, in the Gateway's namespace; no Gateway is written. Virtual clusters are shown
    /// Gateways only, so this is for tenants that are provisioned by others.
    ListenerSet,
}

/// A Gateway that Portreeve makes. It is the controller's own: named after the first with a number, marked with
/// [`portreeve_api::names::labels::SHARD`], and gone when the feature is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayTemplate {
    /// Labels beside Portreeve's own.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `spec`, with at least one listener, such as plain HTTP for its own namespace: a Gateway without is none.
    pub spec: Map<String, Value>,
}

/// How tenants' namespaces are closed by NetworkPolicies.
///
/// Pods of a tenant are reached from the Gateways' data plane, from each other and from the system namespaces. They reach
/// each other, DNS, the Gateways' data plane and the internet, and there no address that is private, shared, link-local
/// (so not the cloud's metadata either), or listed here. Only control-plane pods reach the host's API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantIsolation {
    /// Namespaces whose pods reach every pod of a tenant, such as that of the monitoring.
    pub system_namespaces: Vec<String>,
    /// More networks that tenants do not reach: those of nodes, pods and Services, where they are public addresses.
    pub denied_networks: Vec<String>,
    /// The DNS servers: their namespace and labels; absent: `k8s-app=kube-dns` in `kube-system`.
    pub dns: Option<DnsServers>,
    /// More that may come in.
    pub extra_ingress: Vec<NetworkPolicyIngressRule>,
    /// More that may go out.
    pub extra_egress: Vec<NetworkPolicyEgressRule>,
    /// Tenants that are not isolated.
    pub except: Vec<String>,
}

/// Pods that answer DNS queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsServers {
    /// Their namespace.
    pub namespace: String,
    /// Their labels.
    pub labels: BTreeMap<String, String>,
}

/// What came of dialling a tenant's API server under its public name. Texts have no times or counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialResult {
    /// The data plane and each address answer with the certificate that the Service itself shows, and it covers the name.
    Proved,
    /// The API server's certificate does not cover the name: for which names it is.
    SanMissing(String),
    /// Another certificate answers than the Service's own: something on the way ends TLS.
    Terminated(String),
    /// The gateway takes the connection and does not pass it on.
    NoRoute(String),
    /// Nothing answers.
    ConnectFailed(String),
}

impl TenantApi {
    /// The Gateway.
    pub fn gateway(&self) -> GatewayName {
        GatewayName::new(&self.gateway_namespace, &self.gateway_name)
    }
}

impl TenantApps {
    /// The first Gateway.
    pub fn gateway(&self) -> GatewayName {
        GatewayName::new(&self.gateway_namespace, &self.gateway_name)
    }
}
