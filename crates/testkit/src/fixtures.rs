//! Objects that many tests need, as YAML for [`crate::Bed::apply`].

use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// A namespace.
pub fn namespace(name: &str) -> String {
    format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n")
}

/// A namespace that is opted in.
pub fn opted_in_namespace(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{nebari.dev/managed: \"true\"}}}}}}\n"
    )
}

/// The platform's shared Gateway `envoy-gateway-system/nebari-gateway`, with listeners `http` on 80 and `https` on 443 that
/// admit routes from all namespaces; with `allows_listener_sets`, it admits ListenerSets from all namespaces too.
///
/// The Secret `nebari-gateway-tls` is not in it: see [`tls_secret`].
pub fn shared_gateway(allows_listener_sets: bool) -> String {
    let allowed = if allows_listener_sets { "allowedListeners: {namespaces: {from: All}}" } else { "" };
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: nebari-gateway, namespace: envoy-gateway-system}}
spec:
  gatewayClassName: envoy-gateway
  {allowed}
  listeners:
  - {{name: http, port: 80, protocol: HTTP, allowedRoutes: {{namespaces: {{from: All}}}}}}
  - name: https
    port: 443
    protocol: HTTPS
    allowedRoutes: {{namespaces: {{from: All}}}}
    tls: {{mode: Terminate, certificateRefs: [{{name: nebari-gateway-tls}}]}}
"
    )
}

/// Where the Gateways of tenants are.
pub const TENANT_GATEWAYS: &str = "kubespaces-system";

/// A Gateway that passes TLS through to tenants' API servers under `example.test`, and admits routes of these namespaces
/// (`Same`, `All`).
pub fn tenant_api_gateway(name: &str, from: &str) -> String {
    tenant_gateway(
        name,
        &[json!({"name": "apipassthrough", "hostname": "*.api.example.test", "port": 443, "protocol": "TLS",
            "tls": {"mode": "Passthrough"}, "allowedRoutes": {"namespaces": {"from": from}}})],
    )
}

/// A Gateway for tenants' apps with so many listeners of the platform's own, at least one.
pub fn tenant_apps_gateway(name: &str, listeners: usize) -> String {
    let listener = |number: usize| {
        json!({"name": format!("http-{number}"), "hostname": format!("platform-{number}.example.test"), "port": 80,
            "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "Same"}}})
    };
    let first =
        json!({"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "Same"}}});
    let listeners: Vec<Value> = std::iter::once(first).chain((1..listeners).map(listener)).collect();
    tenant_gateway(name, &listeners)
}

fn tenant_gateway(name: &str, listeners: &[Value]) -> String {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"namespace": TENANT_GATEWAYS, "name": name},
        "spec": {"gatewayClassName": "envoy-gateway", "listeners": listeners}})
    .to_string()
}

/// A Secret of type `kubernetes.io/tls`.
pub fn tls_secret(namespace: &str, name: &str, identity: &crate::tls::Identity) -> String {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"namespace": namespace, "name": name},
        "stringData": {"tls.crt": identity.certificate_pem(), "tls.key": identity.key_pem()},
    })
    .to_string()
}

/// A headless Service and the slice that leads its `port` to the same port at `address`.
pub fn service_at(namespace: &str, name: &str, port: u16, address: Ipv4Addr) -> String {
    format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{clusterIP: None, ports: [{{name: main, port: {port}, targetPort: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: main, port: {port}, protocol: TCP}}]
endpoints: [{{addresses: [\"{address}\"], conditions: {{ready: true}}}}]
"
    )
}
