//! Every reason that planning can give has a case that shows it.

use std::path::Path;

use portreeve_api::conditions::reasons::*;

/// Those that issue and contract list, but for what only execution can find (writes that failed).
const REASONS: &[&str] = &[
    // Ready
    RECONCILING,
    RECONCILE_SUCCESS,
    FAILED,
    NAMESPACE_NOT_OPTED_IN,
    RESOURCE_NAME_TOO_LONG,
    SERVICE_NOT_FOUND,
    // TLSReady
    TLS_CONFIGURED,
    LEGACY_LISTENER,
    MIGRATING,
    MIGRATION_BLOCKED,
    MOVED,
    USER_PROVIDED_SECRET_READY,
    TLS_DISABLED,
    CLUSTER_ISSUER_NOT_CONFIGURED,
    CERTIFICATE_NOT_READY,
    CERTIFICATE_FAILED,
    USER_PROVIDED_SECRET_NOT_FOUND,
    USER_PROVIDED_SECRET_INVALID_TYPE,
    GATEWAY_LISTENER_CONFLICT,
    // RoutingReady
    HTTP_ROUTE_READY,
    HTTP_ROUTE_UNSUPPORTED,
    ROUTING_NOT_CONFIGURED,
    BUILD_FAILED,
    // AuthReady
    AUTH_CONFIGURED,
    AUTH_DISABLED,
    POLICY_MISSING,
    AUTH_NEEDS_OPERATOR_ROUTES,
    INVALID_PROVIDER,
    PROVISIONING_NOT_SUPPORTED,
    PROVISIONING_FAILED,
    CLIENT_CONFLICT,
    SECURITY_POLICY_FAILED,
    GROUPS_NOT_ENFORCEABLE,
    VALIDATION_FAILED,
    // TCPRoutingReady
    LISTENERS_PROGRAMMED,
    PENDING,
    INVALID_SNI,
    SNI_HOSTNAMES_REQUIRED,
    SNI_PATTERN_NEEDS_APP_ROUTES,
    ROUTE_IMPORT_NEEDS_APP_ROUTES,
    PORT_RESERVED,
    HOSTNAME_NOT_ALLOWED,
    HOSTNAME_CONFLICT,
    PORT_CONFLICT,
    TOO_MANY_LISTENERS,
    FOREIGN_OBJECT,
    GATEWAY_NOT_FOUND,
    LISTENER_SET_UNSUPPORTED,
    TLS_ROUTE_UNSUPPORTED,
    REF_NOT_PERMITTED,
    LISTENER_SET_NOT_ALLOWED,
    LISTENER_SET_IGNORED,
    LISTENER_CONFLICTED,
    PORT_UNAVAILABLE,
    LISTENER_NOT_PROGRAMMED,
    ROUTE_NOT_ACCEPTED,
    ROUTE_REFS_NOT_RESOLVED,
    ROUTE_HOSTNAME_OUTSIDE_PATTERN,
    DIAL_FAILED,
    // RoutesImported, ClientsReady, HostnameExclusive
    ROUTES_IMPORTED,
    ROUTE_NOT_IMPORTED,
    CLIENTS_ALLOWED,
    NOT_NEEDED,
    CLIENT_NAMESPACE_NOT_OPTED_IN,
    HOSTNAME_CONTESTED,
    // Tenant
    LISTENERS_OVERWRITTEN,
    LISTENER_REJECTED,
    API_SERVER_REACHED,
    SAN_MISSING,
    TERMINATED,
    NO_ROUTE,
    CONNECT_FAILED,
    ISOLATED,
    ISOLATION_DISABLED,
    RECORD_PUBLISHED,
    DNS_UNSUPPORTED,
    MOVE_BLOCKED,
    MOVE_PREPARING,
    MOVE_AWAITING_DNS,
    MOVE_AWAITING_TTL,
    MOVE_FOLLOWING,
    ROUTE_ACCEPTED,
    GATEWAY_NOT_ISOLATED,
    PROVISIONED,
    PROVISIONING,
    INVALID_SPEC,
    NAMESPACE_FAILED,
    QUOTA_FAILED,
    NAME_DEPRECATED,
    CHART_TOO_OLD,
    NETWORKING_FAILED,
    APPS_NETWORKING_FAILED,
];

#[test]
fn every_reason_has_a_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let outputs: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|case| std::fs::read_to_string(case.unwrap().path().join("out.yaml")).unwrap())
        .collect();
    let shown = |reason: &&str| outputs.iter().any(|output| output.contains(&format!(" {reason}: ")));
    let missing: Vec<_> = REASONS.iter().filter(|reason| !shown(reason)).collect();
    assert!(missing.is_empty(), "no case shows {missing:?}");
}
