//! Names of objects, labels, annotations and finalizers: the contract by which Portreeve finds again what it made.
//!
//! A function that derives an object's name does not check its length: Kubernetes allows [`MAX_OBJECT_NAME`] characters
//! for an object and a listener, and [`MAX_LABEL_VALUE`] for the value of a label. Two owners can derive the same
//! name, such as app `b-c` in namespace `a` and app `c` in `a-b`: whoever writes looks at the owner first.

pub mod labels;
pub mod nebari_app;
pub mod tenant;

use crate::nebari_app::GatewayChoice;

/// The longest name of an object or a listener, in characters (DNS-1123 subdomain).
pub const MAX_OBJECT_NAME: usize = 253;

/// The longest value of a label, in characters.
pub const MAX_LABEL_VALUE: usize = 63;

/// The most listeners that one Gateway or one ListenerSet may have (Gateway API, `maxItems`).
pub const MAX_LISTENERS: usize = 64;

/// API group of Gateway, ListenerSet, HTTPRoute and TLSRoute.
pub const GATEWAY_API_GROUP: &str = "gateway.networking.k8s.io";

/// Namespace of the two shared Gateways.
pub const GATEWAY_NAMESPACE: &str = "envoy-gateway-system";

/// Class of the two shared Gateways.
pub const GATEWAY_CLASS: &str = "envoy-gateway";

/// The shared Gateway that is reachable from outside.
pub const PUBLIC_GATEWAY: &str = "nebari-gateway";

/// The shared Gateway that is reachable inside only.
pub const INTERNAL_GATEWAY: &str = "nebari-internal-gateway";

/// Secret of the shared HTTPS listener's certificate.
pub const GATEWAY_TLS_SECRET: &str = "nebari-gateway-tls";

/// Listener of a shared Gateway for plain HTTP.
pub const HTTP_LISTENER: &str = "http";

/// Listener of a shared Gateway for HTTPS of apps that have none of their own.
pub const HTTPS_LISTENER: &str = "https";

impl GatewayChoice {
    /// Name of the Gateway, in [`GATEWAY_NAMESPACE`].
    pub fn gateway_name(self) -> &'static str {
        match self {
            Self::Public => PUBLIC_GATEWAY,
            Self::Internal => INTERNAL_GATEWAY,
        }
    }
}
