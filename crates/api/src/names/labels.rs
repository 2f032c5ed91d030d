//! Keys and values of labels and annotations, and the sets of labels that objects carry.

use std::collections::BTreeMap;

/// Label of a namespace whose apps are served: the value must be [`TRUE`].
pub const MANAGED: &str = "nebari.dev/managed";

/// The value that says yes, of a label or an annotation.
pub const TRUE: &str = "true";

/// The value that says no, of a label or an annotation.
pub const FALSE: &str = "false";

/// Label: who manages an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Label: what an object belongs to.
pub const NAME: &str = "app.kubernetes.io/name";

/// Label: which one of [`NAME`] an object belongs to.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// Value of [`MANAGED_BY`] on objects of a NebariApp.
pub const NEBARI_OPERATOR: &str = "nebari-operator";

/// Value of [`NAME`] on objects of a NebariApp.
pub const NEBARI_APP: &str = "nebariapp";

/// Label: the app that an object other than a route belongs to.
pub const NEBARI_APP_NAME: &str = "nebari.dev/nebariapp-name";

/// Label: the namespace of the app that an object belongs to, which may be in another one.
pub const NEBARI_APP_NAMESPACE: &str = "nebari.dev/nebariapp-namespace";

/// Label: what a route is for, [`PUBLIC_ROUTE`] or [`TCP_ROUTE`]; absent on an app's main HTTPRoute.
pub const ROUTE_TYPE: &str = "nebari.dev/route-type";

/// Value of [`ROUTE_TYPE`] on the HTTPRoute of `publicRoutes`.
pub const PUBLIC_ROUTE: &str = "public";

/// Value of [`ROUTE_TYPE`] on the TLSRoute of an entry of `routing.tcp`.
pub const TCP_ROUTE: &str = "tcp";

/// Annotation of a Service: the namespaces whose apps may have it as a backend, separated by commas.
pub const ALLOW_FROM: &str = "nebari.dev/allow-from";

/// Annotation of an HTTPRoute: whether its app is served over HTTPS, [`TRUE`] or [`FALSE`].
pub const TLS_ENABLED: &str = "nebari.dev/tls-enabled";

/// Annotation of a NebariApp: any text asks for its OIDC client to be made again; removed once it has been.
pub const FORCE_REPROVISION: &str = "nebari.dev/force-reprovision";

/// Attribute of clients and groups at the identity provider: the app that they were made for, `<namespace>/<app>`.
pub const MADE_FOR: &str = "nebari.dev/app";

/// Value of [`MANAGED_BY`] on objects of a Tenant.
pub const KUBESPACES_OPERATOR: &str = "kubespaces-operator";

/// Label: the tenant that an object or a namespace belongs to. On a namespace it opens the tenant's listener, so
/// nobody but Portreeve may set it.
pub const TENANT: &str = "kubespaces.io/tenant";

/// Label of a Gateway that Portreeve has made for tenants' apps: [`TRUE`].
pub const SHARD: &str = "portreeve.dev/shard";

/// Annotation of a Tenant: the name of the apps Gateway that is to serve it.
pub const MOVE_TO: &str = "portreeve.dev/move-to";

/// Label of the Helm client's record of a release: its name.
pub const HELM_RELEASE: &str = "name";

/// Label of the Helm client's record of a release: how it is, such as `deployed` or `pending-upgrade`.
pub const HELM_STATUS: &str = "status";

/// Label of the Helm client's record of a release: which revision, counted from 1.
pub const HELM_REVISION: &str = "version";

/// Annotation of a DNSEndpoint: when external-dns was first seen to have taken it in.
pub const PUBLISHED_AT: &str = "portreeve.dev/published-at";
/// Annotation of the copy of a tenant's route: whether it comes before the route (`first`) or after it (`last`). Without it
/// an API server would not be told of a match that must go: lists of matches are replaced whole.
pub const PRECEDENCE: &str = "portreeve.dev/precedence";

/// Label that vCluster puts on whatever it syncs to the host, and on nothing else.
pub const SYNCED_BY: &str = "vcluster.loft.sh/managed-by";

/// Annotation: the name that external-dns publishes.
pub const EXTERNAL_DNS_HOSTNAME: &str = "external-dns.alpha.kubernetes.io/hostname";

/// Annotation: where the name that external-dns publishes leads.
pub const EXTERNAL_DNS_TARGET: &str = "external-dns.alpha.kubernetes.io/target";

/// Label of the routes that cert-manager makes for a challenge: [`TRUE`].
pub const HTTP01_SOLVER: &str = "acme.cert-manager.io/http01-solver";

/// Label that Kubernetes sets on every namespace to its own name, and that nobody can change.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Labels of an app's routes and of its OIDC client Secret.
pub fn of_app(app: &str) -> BTreeMap<String, String> {
    set([(NAME, NEBARI_APP), (INSTANCE, app), (MANAGED_BY, NEBARI_OPERATOR)])
}

/// Labels of the TLSRoutes of an app's entries.
pub fn of_tcp_route(app: &str) -> BTreeMap<String, String> {
    set([(NAME, NEBARI_APP), (INSTANCE, app), (MANAGED_BY, NEBARI_OPERATOR), (ROUTE_TYPE, TCP_ROUTE)])
}

/// Labels of what an app may have in another namespace than its own: Certificates, NetworkPolicies, `ReferenceGrant`s.
pub fn of_app_elsewhere(app: &str, namespace: &str) -> BTreeMap<String, String> {
    set([(MANAGED_BY, NEBARI_OPERATOR), (NEBARI_APP_NAME, app), (NEBARI_APP_NAMESPACE, namespace)])
}

/// Labels of an app's ListenerSet.
pub fn of_app_listeners(app: &str) -> BTreeMap<String, String> {
    set([(MANAGED_BY, NEBARI_OPERATOR), (NEBARI_APP_NAME, app)])
}

/// Labels of a tenant's objects and of its namespace.
pub fn of_tenant(tenant: &str) -> BTreeMap<String, String> {
    set([(MANAGED_BY, KUBESPACES_OPERATOR), (TENANT, tenant)])
}

fn set<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
