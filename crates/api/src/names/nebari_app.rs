//! Names that derive from a NebariApp.

use sha2::{Digest, Sha256};

use super::MAX_OBJECT_NAME;

/// Finalizer of a NebariApp.
pub const FINALIZER: &str = "apps.nebari.dev/finalizer";

/// Finalizer of an app's SecurityPolicy: it protects until the routes that need it are closed.
pub const POLICY_FINALIZER: &str = "apps.nebari.dev/sign-in";

/// The main HTTPRoute, in the app's namespace.
pub fn http_route(app: &str) -> String {
    format!("{app}-route")
}

/// The HTTPRoute that is at the app's next listener, and leads nowhere, while the app moves there; in the app's namespace.
pub fn waiting_http_route(app: &str) -> String {
    format!("{app}-route.next")
}

/// The HTTPRoute of `publicRoutes`, in the app's namespace.
pub fn public_http_route(app: &str) -> String {
    format!("{app}-public-route")
}

/// The SecurityPolicy of the main HTTPRoute, in the app's namespace.
pub fn security_policy(app: &str) -> String {
    format!("{app}-security")
}

/// The Secret of the OIDC client, in the app's namespace.
pub fn oidc_client_secret(app: &str) -> String {
    format!("{app}-oidc-client")
}

/// The Role and RoleBinding by which the app reads that Secret.
pub fn oidc_secret_reader(app: &str) -> String {
    format!("{app}-oidc-secret-reader")
}

/// The app's client at the identity provider. Two apps can derive the same one.
pub fn oidc_client(app: &str, namespace: &str) -> String {
    format!("{namespace}-{app}")
}

/// The public client of its single-page app, where the spec names none.
pub fn spa_client(app: &str, namespace: &str) -> String {
    format!("{namespace}-{app}-spa")
}

/// Its public client for the device flow.
pub fn device_client(app: &str, namespace: &str) -> String {
    format!("{namespace}-{app}-device")
}

/// The Certificate of the app's host name.
pub fn certificate(app: &str, namespace: &str) -> String {
    format!("{app}-{namespace}-cert")
}

/// The Secret of that Certificate.
pub fn certificate_secret(app: &str, namespace: &str) -> String {
    format!("{app}-{namespace}-tls")
}

/// The ListenerSet with all listeners of the app, in the app's namespace.
pub fn listener_set(app: &str) -> String {
    format!("{app}-listeners")
}

/// The HTTPS listener of the app's host name.
pub fn https_listener(app: &str, namespace: &str) -> String {
    format!("tls-{app}-{namespace}")
}

/// The match-all listener of an entry of `routing.tcp`.
pub fn tcp_listener(entry: &str) -> String {
    format!("tcp-{entry}")
}

/// The listener of one name of an entry; `hostname` as it stands in the listener: exact or `*.suffix`, lower case.
///
/// The first 8 hexadecimal digits of the name's SHA-256 tell it from the others of its entry.
pub fn tcp_listener_for(entry: &str, hostname: &str) -> String {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(hostname));
    format!("tcp-{entry}-{a:02x}{b:02x}{c:02x}{d:02x}")
}

/// The TLSRoute of an entry, in the app's namespace; an entry has no dot, so no two pairs share a name.
pub fn tls_route(app: &str, entry: &str) -> String {
    format!("{app}.{entry}")
}

/// The TLSRoute of one name that an entry imports, in the app's namespace; a digest of whence and which name comes last.
pub fn imported_tls_route(app: &str, entry: &str, ingress_route: &str, hostname: &str) -> String {
    fitted(&format!("{app}.{entry}.{ingress_route}"), &[app, entry, ingress_route, hostname])
}

/// The NetworkPolicy that lets the clients of an entry out to the Gateway, in their namespace. `selector` tells it from
/// others of the same entry.
pub fn client_policy(namespace: &str, app: &str, entry: &str, selector: &str) -> String {
    fitted(&format!("{namespace}.{app}.{entry}.egress"), &[namespace, app, entry, selector])
}

/// The NetworkPolicy that lets the Gateway in to backends of the app, in its namespace. `selector` tells it from others.
pub fn backend_policy(app: &str, selector: &str) -> String {
    fitted(&format!("{app}.ingress"), &[app, selector])
}

/// The ReferenceGrant by which routes of the app may lead to a Service of another namespace, in that namespace.
pub fn reference_grant(namespace: &str, app: &str, service: &str) -> String {
    fitted(&format!("{namespace}.{app}.{service}"), &[namespace, app, service])
}

/// As much of `readable` as fits into a name, and the first 8 hexadecimal digits of the SHA-256 of `parts`.
fn fitted(readable: &str, parts: &[&str]) -> String {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(parts.join("\n")));
    let start: String = readable.chars().take(MAX_OBJECT_NAME - 9).collect();
    format!("{}-{a:02x}{b:02x}{c:02x}{d:02x}", start.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_listener_ends_in_the_first_digits_of_sha_256() {
        // printf a.example.com | sha256sum
        assert_eq!(tcp_listener_for("scheduler", "a.example.com"), "tcp-scheduler-7653e495");
    }

    #[test]
    fn a_fitted_name_is_short_enough_and_tells_what_it_is_of() {
        assert!(client_policy("team", "dask", "scheduler", "{}").starts_with("team.dask.scheduler.egress-"));
        let long = "a".repeat(250);
        let (one, other) = (reference_grant("team", &long, "x"), reference_grant("team", &long, "y"));
        assert_eq!((one.len(), one == other), (MAX_OBJECT_NAME, false));
    }
}
