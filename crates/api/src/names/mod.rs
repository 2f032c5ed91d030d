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

#[cfg(test)]
mod tests {
    use super::{GatewayChoice, nebari_app, tenant};

    /// Others look objects up by these names (traps: 1, 34).
    #[test]
    fn names_are_those_of_the_contract() {
        for (name, expected) in [
            (GatewayChoice::Public.gateway_name().to_owned(), "nebari-gateway"),
            (GatewayChoice::Internal.gateway_name().to_owned(), "nebari-internal-gateway"),
            (nebari_app::http_route("docs"), "docs-route"),
            (nebari_app::public_http_route("docs"), "docs-public-route"),
            (nebari_app::security_policy("docs"), "docs-security"),
            (nebari_app::oidc_client_secret("docs"), "docs-oidc-client"),
            (nebari_app::oidc_secret_reader("docs"), "docs-oidc-secret-reader"),
            (nebari_app::oidc_client("docs", "team"), "team-docs"),
            (nebari_app::spa_client("docs", "team"), "team-docs-spa"),
            (nebari_app::device_client("docs", "team"), "team-docs-device"),
            (nebari_app::certificate("docs", "team"), "docs-team-cert"),
            (nebari_app::certificate_secret("docs", "team"), "docs-team-tls"),
            (nebari_app::listener_set("docs"), "docs-listeners"),
            (nebari_app::https_listener("docs", "team"), "tls-docs-team"),
            (nebari_app::tcp_listener("scheduler"), "tcp-scheduler"),
            (nebari_app::tls_route("docs", "scheduler"), "docs.scheduler"),
            (tenant::default_namespace("shop"), "kubespaces-tenant-shop"),
            (tenant::api_service("shop"), "shop"),
            (tenant::api_server_url("shop", "example.com"), "https://shop.api.example.com:443"),
            (tenant::api_tls_route("shop"), "tenant-api-shop"),
            (tenant::apps_domain("shop", "example.com"), "*.shop.apps.example.com"),
            (tenant::apps_certificate("shop"), "shop-apps-tls"),
            (tenant::apps_listener("shop"), "t-shop"),
            (tenant::kubeconfig_secret("shop"), "vc-shop"),
            (tenant::release("shop"), "shop"),
            (tenant::resource_quota("shop"), "shop-quota"),
            (tenant::limit_range("shop"), "shop-limits"),
        ] {
            assert_eq!(name, expected);
        }
    }
}
