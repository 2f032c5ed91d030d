//! The types and reasons of conditions, and the reasons of events.
//!
//! They are part of the contract with people and programs that read them: a value, once released, stays.

/// Whether an app or a tenant is served as it asks. On both kinds, and on every entry of `status.tcp`.
pub const READY: &str = "Ready";

// NebariApp

/// Whether the app's certificate and HTTPS listener are there.
pub const TLS_READY: &str = "TLSReady";
/// Whether the app's HTTPRoutes are there.
pub const ROUTING_READY: &str = "RoutingReady";
/// Whether sign-in is in force.
pub const AUTH_READY: &str = "AuthReady";
/// Whether every entry of `routing.tcp` is served; absent without entries.
pub const TCP_ROUTING_READY: &str = "TCPRoutingReady";

/// On an entry of `status.tcp`: whether everything that `routeImport` stands for is imported; absent without it. It has
/// no part in [`READY`].
pub const ROUTES_IMPORTED: &str = "RoutesImported";
/// On an entry of `status.tcp`: whether its `clients` can reach the Gateway, as far as NetworkPolicies go; absent without
/// `clients`. It has no part in [`READY`].
pub const CLIENTS_READY: &str = "ClientsReady";
/// Whether routes of others leave the app's host name alone; absent while they do. It has no part in [`READY`].
pub const HOSTNAME_EXCLUSIVE: &str = "HostnameExclusive";

// Tenant

/// Whether the name of the tenant's API server is served; absent where the platform serves none.
pub const API_ROUTING_READY: &str = "APIRoutingReady";
/// Whether the names of the tenant's apps are served; absent where the platform serves none.
pub const APPS_ROUTING_READY: &str = "AppsRoutingReady";
/// Whether the API server answers under its public name with its own certificate; absent where the platform serves none.
/// It has no part in [`READY`].
pub const API_SERVER_REACHABLE: &str = "APIServerReachable";
/// Whether no other listener of the tenant's apps Gateway admits routes of tenants. It has no part in [`READY`].
pub const APPS_ISOLATED: &str = "AppsIsolated";
/// Whether the DNS record of the tenant's own is published; absent where the platform's wildcard leads to its Gateway. It
/// has no part in [`READY`].
pub const APPS_DNS_READY: &str = "AppsDNSReady";
/// Whether the tenant's namespace is closed by NetworkPolicies; absent where the platform closes none. It has no part in
/// [`READY`].
pub const NETWORK_ISOLATED: &str = "NetworkIsolated";
/// How far the tenant is on its way to another apps Gateway; absent while it stays where it is. It has no part in
/// [`READY`].
pub const MOVING: &str = "Moving";

/// Whether the tenant's name is one that a new tenant could have; absent while it is. It has no part in [`READY`].
pub const NAME_VALID: &str = "NameValid";
/// Whether the virtual cluster can be shown the Gateway of its apps; absent while it can. It has no part in [`READY`].
pub const APPS_PROJECTED: &str = "AppsProjected";
/// Whether everything of the tenant is in the namespace that it asks for; absent while it is. It has no part in
/// [`READY`].
pub const NAMESPACE_CURRENT: &str = "NamespaceCurrent";

/// Reasons of conditions. One that an event shares is here too.
pub mod reasons {
    // Ready of a NebariApp

    /// Unknown: something is still under way.
    pub const RECONCILING: &str = "Reconciling";
    /// True: the app is served as it asks.
    pub const RECONCILE_SUCCESS: &str = "ReconcileSuccess";
    /// False: an effect failed.
    pub const FAILED: &str = "Failed";
    /// False: the namespace lacks the label [`crate::names::labels::MANAGED`].
    pub const NAMESPACE_NOT_OPTED_IN: &str = "NamespaceNotOptedIn";
    /// False: a name that is derived from the app has more than 253 characters.
    pub const RESOURCE_NAME_TOO_LONG: &str = "ResourceNameTooLong";
    /// False: the Service, or its port, is not there.
    pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";

    // TLSReady

    /// True: the issued certificate is ready and the listener has it.
    pub const TLS_CONFIGURED: &str = "TLSConfigured";
    /// True: the listener has the certificate of the named Secret.
    pub const USER_PROVIDED_SECRET_READY: &str = "UserProvidedSecretReady";
    /// True: the app is served by the listener that the former operator made for it on the Gateway.
    pub const LEGACY_LISTENER: &str = "LegacyListener";
    /// True: the app is served so, and is on its way to a listener of its own.
    pub const MIGRATING: &str = "Migrating";
    /// True: the app is served so, and somebody has to do something before it can have a listener of its own.
    pub const MIGRATION_BLOCKED: &str = "MigrationBlocked";
    /// False, by choice: the app is served over plain HTTP.
    pub const TLS_DISABLED: &str = "TLSDisabled";
    /// False, by choice of the platform: the app is served on the shared HTTPS listener.
    pub const CLUSTER_ISSUER_NOT_CONFIGURED: &str = "ClusterIssuerNotConfigured";
    /// False: the certificate is not issued yet.
    pub const CERTIFICATE_NOT_READY: &str = "CertificateNotReady";
    /// False: the Certificate could not be written.
    pub const CERTIFICATE_FAILED: &str = "CertificateFailed";
    /// False: the named Secret is not there.
    pub const USER_PROVIDED_SECRET_NOT_FOUND: &str = "UserProvidedSecretNotFound";
    /// False: the named Secret is not of type `kubernetes.io/tls`, or one of its two values is empty.
    pub const USER_PROVIDED_SECRET_INVALID_TYPE: &str = "UserProvidedSecretInvalidType";
    /// False: another listener has the same port and host name.
    pub const GATEWAY_LISTENER_CONFLICT: &str = "GatewayListenerConflict";

    // RoutingReady

    /// True: the HTTPRoute is as it should be. The contract's `HTTPRouteCreated`, of the pass that makes the route, is not
    /// given: until the gateway accepts the route it is `Pending`, and nobody can tell the two apart a moment later.
    pub const HTTP_ROUTE_READY: &str = "HTTPRouteReady";
    /// False: the cluster has no HTTPRoute.
    pub const HTTP_ROUTE_UNSUPPORTED: &str = "HTTPRouteUnsupported";
    /// False, by choice: the app asks for no routes.
    pub const ROUTING_NOT_CONFIGURED: &str = "RoutingNotConfigured";
    /// False: the HTTPRoute could not be put together.
    pub const BUILD_FAILED: &str = "BuildFailed";

    // AuthReady

    /// True: sign-in is in force.
    pub const AUTH_CONFIGURED: &str = "AuthConfigured";
    /// False, by choice: the app asks for no sign-in.
    pub const AUTH_DISABLED: &str = "AuthDisabled";
    /// False: nothing can sign visitors in here, so the route leads nowhere.
    pub const POLICY_MISSING: &str = "PolicyMissing";
    /// False: sign-in at the gateway cannot be put in front of routes that the app makes itself.
    pub const AUTH_NEEDS_OPERATOR_ROUTES: &str = "AuthNeedsOperatorRoutes";
    /// False: the client Secret is not there, or lacks a key.
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
    /// False: the platform has no such identity provider, or the app does not say which.
    pub const INVALID_PROVIDER: &str = "InvalidProvider";
    /// False: Portreeve makes no clients at this kind of provider.
    pub const PROVISIONING_NOT_SUPPORTED: &str = "ProvisioningNotSupported";
    /// False: the client could not be made at the provider; it is tried again. Of a tenant: the virtual cluster could not
    /// be installed; events of one that cannot be removed have this reason too.
    pub const PROVISIONING_FAILED: &str = "ProvisioningFailed";
    /// False: the client is another app's, by whichever way the two names came to be one.
    pub const CLIENT_CONFLICT: &str = "ClientConflict";
    /// False: the gateway refuses the SecurityPolicy, so the route leads nowhere.
    pub const SECURITY_POLICY_FAILED: &str = "SecurityPolicyFailed";
    /// False: the provider's keys are not known, so that groups cannot be enforced.
    pub const GROUPS_NOT_ENFORCEABLE: &str = "GroupsNotEnforceable";

    // TCPRoutingReady and the entries of `status.tcp`, in the order in which the first that applies is reported

    /// True: every granted listener is programmed, and every route that Portreeve made is accepted.
    pub const LISTENERS_PROGRAMMED: &str = "ListenersProgrammed";
    /// Unknown: the gateway has not answered yet.
    pub const PENDING: &str = "Pending";
    /// Unknown: the listener of the former operator is gone, and the gateway has not said yet that it serves the new one.
    pub const MOVED: &str = "Moved";
    /// False: an entry of `sniHostnames` is no host name.
    pub const INVALID_SNI: &str = "InvalidSNI";
    /// False: a route needs at least one name (TLSRoute v1).
    pub const SNI_HOSTNAMES_REQUIRED: &str = "SNIHostnamesRequired";
    /// False: a pattern cannot be said in a route; drop `service`, or write exact names.
    pub const SNI_PATTERN_NEEDS_APP_ROUTES: &str = "SNIPatternNeedsAppRoutes";
    /// False: the port serves HTTP or HTTPS.
    pub const PORT_RESERVED: &str = "PortReserved";
    /// False: the platform does not give this name to this namespace.
    pub const HOSTNAME_NOT_ALLOWED: &str = "HostnameNotAllowed";
    /// False: another owner has the name, or one that overlaps it.
    pub const HOSTNAME_CONFLICT: &str = "HostnameConflict";
    /// False: another owner has the port.
    pub const PORT_CONFLICT: &str = "PortConflict";
    /// False: the listeners do not fit the object that should have them.
    pub const TOO_MANY_LISTENERS: &str = "TooManyListeners";
    /// False: an object of that name is there which Portreeve did not make.
    pub const FOREIGN_OBJECT: &str = "ForeignObject";
    /// False: the API server refuses an object that is wanted; its words are in the message.
    pub const WRITE_REFUSED: &str = "WriteRefused";
    /// False: the Gateway is not there.
    pub const GATEWAY_NOT_FOUND: &str = "GatewayNotFound";
    /// False: the cluster has no ListenerSet.
    pub const LISTENER_SET_UNSUPPORTED: &str = "ListenerSetUnsupported";
    /// False: the cluster has no TLSRoute.
    pub const TLS_ROUTE_UNSUPPORTED: &str = "TLSRouteUnsupported";
    /// False: the Service is in another namespace, which has no ReferenceGrant for it.
    pub const REF_NOT_PERMITTED: &str = "RefNotPermitted";
    /// False: the Gateway does not allow ListenerSets of this namespace.
    pub const LISTENER_SET_NOT_ALLOWED: &str = "ListenerSetNotAllowed";
    /// False: no controller has answered within 60 seconds.
    pub const LISTENER_SET_IGNORED: &str = "ListenerSetIgnored";
    /// False: the gateway says that a listener conflicts with another.
    pub const LISTENER_CONFLICTED: &str = "ListenerConflicted";
    /// False: the gateway cannot open the port.
    pub const PORT_UNAVAILABLE: &str = "PortUnavailable";
    /// False: the gateway has a listener but does not serve it.
    pub const LISTENER_NOT_PROGRAMMED: &str = "ListenerNotProgrammed";
    /// False: the gateway does not accept a route.
    pub const ROUTE_NOT_ACCEPTED: &str = "RouteNotAccepted";
    /// False: the gateway cannot resolve what a route refers to.
    pub const ROUTE_REFS_NOT_RESOLVED: &str = "RouteRefsNotResolved";
    /// False: a route of the app has a name outside the pattern.
    pub const ROUTE_HOSTNAME_OUTSIDE_PATTERN: &str = "RouteHostnameOutsidePattern";
    /// False: the port does not answer.
    pub const DIAL_FAILED: &str = "DialFailed";

    /// False: `routeImport` makes the routes of an entry, so it has no `service`.
    pub const ROUTE_IMPORT_NEEDS_APP_ROUTES: &str = "RouteImportNeedsAppRoutes";

    // RoutesImported

    /// True: every rule has become a TLSRoute.
    pub const ROUTES_IMPORTED: &str = "RoutesImported";
    /// False: at least one rule has not, or the gateway does not take what it has become. An event has this reason too.
    pub const ROUTE_NOT_IMPORTED: &str = "RouteNotImported";

    // ClientsReady

    /// True: NetworkPolicies let them through.
    pub const CLIENTS_ALLOWED: &str = "ClientsAllowed";
    /// True: no NetworkPolicy is in their way.
    pub const NOT_NEEDED: &str = "NotNeeded";
    /// False: a namespace with clients lacks the label [`crate::names::labels::MANAGED`].
    pub const CLIENT_NAMESPACE_NOT_OPTED_IN: &str = "ClientNamespaceNotOptedIn";

    // RoutingReady and HostnameExclusive

    /// False: a route that Portreeve did not make claims the app's host name.
    pub const HOSTNAME_CONTESTED: &str = "HostnameContested";

    // APIRoutingReady of a Tenant, beside those above

    /// True: the gateway accepts the route to the API server.
    pub const ROUTE_ACCEPTED: &str = "RouteAccepted";
    /// False: a shared Gateway does not keep tenants apart: the API Gateway's listener terminates TLS, lacks the name, or
    /// admits routes of other namespaces; another listener of an apps Gateway admits tenants' routes.
    pub const GATEWAY_NOT_ISOLATED: &str = "GatewayNotIsolated";

    // AppsRoutingReady of a Tenant, beside those above

    /// False: a writer that replaces the whole list of listeners has taken the tenant's away again.
    pub const LISTENERS_OVERWRITTEN: &str = "ListenersOverwritten";
    /// False: the API server refuses the tenant's listener.
    pub const LISTENER_REJECTED: &str = "ListenerRejected";

    // APIServerReachable

    /// True: the API server answers under its public name with its own certificate.
    pub const API_SERVER_REACHED: &str = "APIServerReached";
    /// False: the API server's certificate does not cover its public name.
    pub const SAN_MISSING: &str = "SANMissing";
    /// False: another certificate than the API server's answers.
    pub const TERMINATED: &str = "Terminated";
    /// False: the gateway does not pass the connection on.
    pub const NO_ROUTE: &str = "NoRoute";
    /// False: nothing answers.
    pub const CONNECT_FAILED: &str = "ConnectFailed";

    // AppsIsolated, NetworkIsolated

    /// True: tenants are kept apart.
    pub const ISOLATED: &str = "Isolated";
    /// False, by the platform's choice: the tenant's namespace is not closed.
    pub const ISOLATION_DISABLED: &str = "IsolationDisabled";

    // AppsDNSReady

    /// True: external-dns has taken in the record.
    pub const RECORD_PUBLISHED: &str = "RecordPublished";
    /// False: the cluster does not know DNSEndpoint.
    pub const DNS_UNSUPPORTED: &str = "DNSUnsupported";

    // Moving

    /// False: the tenant should move and cannot.
    pub const MOVE_BLOCKED: &str = "MoveBlocked";
    /// True: its listener and routes are being put on both Gateways.
    pub const MOVE_PREPARING: &str = "MovePreparing";
    /// True: its DNS record is being changed.
    pub const MOVE_AWAITING_DNS: &str = "MoveAwaitingDNS";
    /// True: resolvers may still have its former DNS record.
    pub const MOVE_AWAITING_TTL: &str = "MoveAwaitingTTL";
    /// True: its virtual cluster is shown the new Gateway, and its routes follow.
    pub const MOVE_FOLLOWING: &str = "MoveFollowing";

    // Ready of a Tenant

    /// True: the tenant is usable.
    pub const PROVISIONED: &str = "Provisioned";
    /// False: the tenant is being made.
    pub const PROVISIONING: &str = "Provisioning";
    /// False: the spec asks for something that cannot be.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// False: the tenant's namespace could not be had.
    pub const NAMESPACE_FAILED: &str = "NamespaceFailed";
    /// False: what the tenant may use could not be set.
    pub const QUOTA_FAILED: &str = "QuotaFailed";
    /// False: the API server's name could not be served.
    pub const NETWORKING_FAILED: &str = "NetworkingFailed";
    /// False: the apps' names could not be served.
    pub const APPS_NETWORKING_FAILED: &str = "AppsNetworkingFailed";

    // NameValid and AppsProjected of a Tenant

    /// False: the name is no DNS label of at most 40 characters.
    pub const NAME_DEPRECATED: &str = "NameDeprecated";
    /// False: the version of the vCluster chart knows no Gateways.
    pub const CHART_TOO_OLD: &str = "ChartTooOld";
    /// False: a namespace is left that the tenant asked for before, with what runs there.
    pub const FORMER_NAMESPACE_LEFT: &str = "FormerNamespaceLeft";
}

/// Reasons of events that are not reasons of a condition too.
pub mod events {
    /// Warning: somebody had put listeners, or host names, into the app's ListenerSet; they are removed.
    pub const LISTENERS_RESTORED: &str = "ListenersRestored";
    /// Warning: a deleted app leaves a listener of the former operator on a Gateway that is not to be written.
    pub const LEGACY_LISTENER_LEFT: &str = "LegacyListenerLeft";
    /// Warning: public routes mean nothing without sign-in.
    pub const PUBLIC_ROUTES_IGNORED: &str = "PublicRoutesIgnored";
    /// Normal: the named Secret is served.
    pub const USER_PROVIDED_SECRET_IN_USE: &str = "UserProvidedSecretInUse";
    /// Warning: the named Secret cannot be served.
    pub const USER_PROVIDED_SECRET_INVALID: &str = "UserProvidedSecretInvalid";
    /// Normal: sign-in is in force.
    pub const CONFIGURED: &str = "Configured";
    /// Normal: the client has been made at the provider.
    pub const PROVISIONED: &str = "Provisioned";
    /// Warning: users are not added to a group that was not made for the app.
    pub const GROUP_NOT_OWN: &str = "GroupNotOwn";
    /// Warning: the app goes, and its clients stay at the provider.
    pub const CLIENTS_LEFT_BEHIND: &str = "ClientsLeftBehind";
}
