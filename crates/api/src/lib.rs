//! NebariApp, Tenant and the other kinds that Portreeve reads or writes, as they travel on the wire.
//!
//! The types are what the API server stores: `plan` parses them into what it decides on. Their serde defaults are the
//! defaults of the schema, so that a manifest read from a file and one read from an API server are the same value.
//!
//! Room rule: no client, no async, no decisions.

pub mod cert_manager;
pub mod cluster_issuer;
pub mod conditions;
mod crd;
pub mod envoy_gateway;
pub mod external_dns;
pub mod flux;
pub mod names;
pub mod nebari_app;
pub mod network_policy;
mod schema_parts;
pub mod shared;
pub mod tenant;
pub mod traefik;

pub use cert_manager::{Certificate, CertificateSpec};
pub use cluster_issuer::{ClusterIssuer, ClusterIssuerSpec};
pub use crd::crds;
pub use envoy_gateway::{SecurityPolicy, SecurityPolicySpec};
pub use external_dns::{DnsEndpoint, DnsEndpointSpec};
pub use flux::{FluxStatus, HelmRelease, HelmRepository, OciRepository};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
pub use nebari_app::{NebariApp, NebariAppSpec, NebariAppStatus};
pub use network_policy::{AdminNetworkPolicy, AdminNetworkPolicySpec, ClusterNetworkPolicy, ClusterNetworkPolicySpec};
pub use shared::{Claim, GatewayReference, ServiceReference};
pub use tenant::{Tenant, TenantSpec, TenantStatus};
pub use traefik::{IngressRouteTcp, IngressRouteTcpSpec};
