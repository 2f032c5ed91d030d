//! The kinds of others of which we know a part only.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use portreeve_api::{Certificate, ClusterIssuer, IngressRouteTcp, SecurityPolicy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const CERTIFICATE: &str = "
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: { name: docs-team-cert, namespace: team }
spec:
  secretName: docs-team-tls
  dnsNames: [docs.example.com]
  issuerRef: { name: letsencrypt, kind: ClusterIssuer }
  privateKey: { rotationPolicy: Always }
status:
  conditions: [{ type: Ready, status: 'True' }]
  revision: 1
";

const SECURITY_POLICY: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: { name: docs-security, namespace: team }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: HTTPRoute, name: docs-route }]
  oidc: { clientID: team-docs }
status:
  ancestors:
  - ancestorRef: { group: gateway.networking.k8s.io, kind: Gateway, name: nebari-gateway, namespace: envoy-gateway-system }
    controllerName: gateway.envoyproxy.io/gatewayclass-controller
    conditions:
    - { type: Accepted, status: 'True', reason: Accepted, message: '', lastTransitionTime: '2026-08-01T00:00:00Z', observedGeneration: 1 }
";

const CLUSTER_ISSUER: &str = "
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: { name: letsencrypt }
spec:
  acme:
    server: https://acme.example.com/directory
    solvers:
    - dns01: { webhook: { groupName: acme.example.com } }
    - selector: { dnsZones: [example.com] }
      http01:
        gatewayHTTPRoute:
          labels: { a: b }
          parentRefs:
          - { name: nebari-gateway, kind: Gateway }
          - { name: other, namespace: elsewhere }
";

const INGRESS_ROUTE_TCP: &str = "
apiVersion: traefik.io/v1alpha1
kind: IngressRouteTCP
metadata: { name: dask-1, namespace: team }
spec:
  entryPoints: [tcp]
  routes:
  - { match: HostSNI(`a.b`), priority: 1, middlewares: [{ name: m }], services: [{ name: dask-1, port: 8786, nativeLB: true }] }
  tls: { passthrough: true, options: { name: o } }
";

#[test]
fn what_we_do_not_know_is_kept() {
    for (written, through) in [
        (CERTIFICATE, through::<Certificate> as fn(&Value) -> Value),
        (CLUSTER_ISSUER, through::<ClusterIssuer>),
        (SECURITY_POLICY, through::<SecurityPolicy>),
        (INGRESS_ROUTE_TCP, through::<IngressRouteTcp>),
    ] {
        let written: Value = serde_saphyr::from_str(written).unwrap();
        assert_eq!(through(&written), written);
    }
}

#[test]
fn an_issuer_names_the_parents_of_its_routes() {
    let issuer: ClusterIssuer = serde_saphyr::from_str(CLUSTER_ISSUER).unwrap();
    let parents: Vec<_> = issuer.spec.http01_parents().map(|parent| parent.namespace.as_deref()).collect();
    assert_eq!(parents, [None, Some("elsewhere")]);
}

#[test]
fn a_policy_names_its_targets_in_either_form() {
    let targets = |text: &str| {
        let policy: SecurityPolicy = serde_saphyr::from_str(text).unwrap();
        policy.spec.targets().map(|target| target.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(targets(SECURITY_POLICY), ["docs-route"]);
    let older = SECURITY_POLICY.replace("targetRefs: [", "targetRef: ").replace("docs-route }]", "docs-route }");
    assert_eq!(targets(&older), ["docs-route"]);
}

fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    serde_json::to_value(serde_json::from_value::<T>(object.clone()).unwrap()).unwrap()
}
