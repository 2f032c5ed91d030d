//! Names that derive from a Tenant.

/// Finalizer of a Tenant.
pub const FINALIZER: &str = "kubespaces.io/finalizer";

/// The ReferenceGrant in the tenant's namespace that lets the gateway's TLSRoute reach the API server.
pub const API_REFERENCE_GRANT: &str = "kubespaces-tenant-api";

/// Key of the kubeconfig in [`kubeconfig_secret`].
pub const KUBECONFIG_KEY: &str = "config";

/// Port of the API server's Service, and of its URL.
pub const API_PORT: u16 = 443;

/// The tenant's namespace unless `targetNamespace` names another.
pub fn default_namespace(tenant: &str) -> String {
    format!("kubespaces-tenant-{tenant}")
}

/// The release of the tenant's virtual cluster, in the tenant's namespace; Flux's objects have the same name.
pub fn release(tenant: &str) -> String {
    tenant.to_owned()
}

/// The ConfigMap in the tenant's namespace with the values of its virtual cluster, for whoever provisions it.
pub fn values(tenant: &str) -> String {
    format!("{tenant}-vcluster-values")
}

/// The ResourceQuota in the tenant's namespace.
pub fn resource_quota(tenant: &str) -> String {
    format!("{tenant}-quota")
}

/// The LimitRange in the tenant's namespace.
pub fn limit_range(tenant: &str) -> String {
    format!("{tenant}-limits")
}

/// The Service of the tenant's API server, in the tenant's namespace.
pub fn api_service(tenant: &str) -> String {
    tenant.to_owned()
}

/// Host name of the tenant's API server.
pub fn api_hostname(tenant: &str, domain: &str) -> String {
    format!("{tenant}.api.{domain}")
}

/// URL of the tenant's API server, with its port.
pub fn api_server_url(tenant: &str, domain: &str) -> String {
    format!("https://{}:{API_PORT}", api_hostname(tenant, domain))
}

/// The TLSRoute to the tenant's API server, in the gateway's namespace.
pub fn api_tls_route(tenant: &str) -> String {
    format!("tenant-api-{tenant}")
}

/// Wildcard of the tenant's apps, with its leading `*.`.
pub fn apps_domain(tenant: &str, domain: &str) -> String {
    format!("*.{tenant}.apps.{domain}")
}

/// The Certificate of that wildcard and its Secret, in the gateway's namespace.
pub fn apps_certificate(tenant: &str) -> String {
    format!("{tenant}-apps-tls")
}

/// The DNSEndpoint of that wildcard, in the gateway's namespace.
pub fn apps_dns_endpoint(tenant: &str) -> String {
    format!("{tenant}-apps")
}

/// The copy of an HTTPRoute of the tenant's namespace while the tenant moves to another Gateway.
pub fn moving_route(route: &str) -> String {
    format!("{route}-moving")
}

/// The NetworkPolicy that closes the tenant's namespace.
pub const ISOLATION_POLICY: &str = "kubespaces-isolation";

/// The NetworkPolicy that lets the control plane reach the host's API server.
pub const CONTROL_PLANE_POLICY: &str = "kubespaces-control-plane";

/// The cluster-wide policy that no NetworkPolicy of the tenant's own can undo; with `-control-plane` that of its control
/// plane.
pub fn admin_policy(tenant: &str) -> String {
    format!("kubespaces-tenant-{tenant}")
}

/// The listener of that wildcard.
pub fn apps_listener(tenant: &str) -> String {
    format!("t-{tenant}")
}

/// The Secret that the virtual cluster writes its kubeconfig to, in the tenant's namespace.
pub fn kubeconfig_secret(tenant: &str) -> String {
    format!("vc-{tenant}")
}

/// The context of a tenant's kubeconfig, as the CLI of Kubespaces calls it.
pub fn context(tenant: &str) -> String {
    format!("kubespaces-{tenant}")
}
