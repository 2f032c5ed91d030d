//! Complete server-side-apply bodies. Every default is written out, so that an API server that fills in defaults adds
//! nothing that was not said.
//!
//! Bodies are built for every object in every plan. `json!` copies each value that is put into it, so parts that are
//! values already are moved in.

use std::collections::BTreeMap;

use portreeve_api::{LabelSelector, names};
use portreeve_names::HostPattern;
use serde_json::{Value, json};

use crate::acknowledgement::Parent;
use crate::claim::{GatewayName, OwnerKind};
use crate::object::{Key, Kind, OwnerIdentity};
use crate::output::ObjectRef;

/// Group and version of the kinds of Gateway API that are always `v1`.
pub(crate) const GATEWAY_API_V1: &str = "gateway.networking.k8s.io/v1";

/// Group and version of Certificate.
pub(crate) const CERTIFICATE_V1: &str = "cert-manager.io/v1";

/// Group and version of SecurityPolicy.
pub(crate) const SECURITY_POLICY_V1ALPHA1: &str = "gateway.envoyproxy.io/v1alpha1";

/// Group and version of `HelmRelease`.
pub(crate) const HELM_RELEASE_V2: &str = "helm.toolkit.fluxcd.io/v2";

/// Group and version of the kinds by which Flux gets charts.
pub(crate) const FLUX_SOURCE_V1: &str = "source.toolkit.fluxcd.io/v1";

/// Group and version of Role and RoleBinding.
pub(crate) const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// Group and version of NetworkPolicy.
pub(crate) const NETWORK_POLICY_V1: &str = "networking.k8s.io/v1";

/// Group and version of `AdminNetworkPolicy`.
pub(crate) const ADMIN_NETWORK_POLICY_V1ALPHA1: &str = "policy.networking.k8s.io/v1alpha1";

/// Group and version of `ClusterNetworkPolicy`.
pub(crate) const CLUSTER_NETWORK_POLICY_V1ALPHA2: &str = "policy.networking.k8s.io/v1alpha2";

/// Group and version of DNSEndpoint.
pub(crate) const DNS_ENDPOINT_V1ALPHA1: &str = "externaldns.k8s.io/v1alpha1";

/// The most matches that one rule of an HTTPRoute may have (Gateway API, `maxItems`).
const MAX_MATCHES: usize = 64;

/// A Service as a backend.
pub(crate) struct Backend<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    /// Its share among several.
    pub(crate) weight: i32,
}

/// Which way the traffic goes that a NetworkPolicy lets through.
pub(crate) enum Traffic {
    /// Into the pods that it selects.
    Ingress,
    /// Out of them.
    Egress,
}

/// How paths are compared, and the path.
pub(crate) type PathMatch<'a> = (&'static str, &'a str);

/// What an object says about itself.
#[derive(Default)]
pub(crate) struct Metadata<'a> {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The controller; absent for objects that stay when the owner goes.
    pub(crate) owner: Option<OwnerIdentity<'a>>,
    /// What has to happen before it may go.
    pub(crate) finalizers: Vec<&'static str>,
}

/// An object with `metadata` and `spec`; `Null` as `spec` leaves it out.
pub(crate) fn object(key: &Key, api_version: &str, metadata: Metadata<'_>, spec: Value) -> Value {
    let mut meta = json!({ "name": key.name });
    if !key.namespace.is_empty() {
        meta["namespace"] = key.namespace.as_str().into();
    }
    for (field, map) in [("labels", metadata.labels), ("annotations", metadata.annotations)] {
        if !map.is_empty() {
            meta[field] = map.into_iter().collect();
        }
    }
    if let Some(owner) = metadata.owner {
        meta["ownerReferences"] = vec![owner.reference()].into();
    }
    if !metadata.finalizers.is_empty() {
        meta["finalizers"] = metadata.finalizers.into();
    }
    let mut body = json!({ "apiVersion": api_version, "kind": key.kind.as_str() });
    body["metadata"] = meta;
    if !spec.is_null() {
        body["spec"] = spec;
    }
    body
}

/// `spec` of a ListenerSet.
pub(crate) fn listener_set(gateway: &GatewayName, listeners: Vec<Value>) -> Value {
    let mut spec = json!({
        "parentRef": {
            "group": names::GATEWAY_API_GROUP,
            "kind": Kind::Gateway.as_str(),
            "namespace": &*gateway.namespace,
            "name": &*gateway.name,
        },
    });
    spec["listeners"] = listeners.into();
    spec
}

/// A listener that terminates HTTPS with the certificate of a Secret of its object's own namespace.
pub(crate) fn https_listener(name: &str, hosts: &HostPattern, port: u16, secret: &str, allowed_routes: Value) -> Value {
    let tls = json!({ "mode": "Terminate", "certificateRefs": [{ "group": "", "kind": "Secret", "name": secret }] });
    listener(name, hosts, port, "HTTPS", tls, allowed_routes)
}

/// A listener that passes TLS through. Its routes are TLSRoutes of its object's own namespace.
pub(crate) fn passthrough_listener(name: &str, hosts: &HostPattern, port: u16) -> Value {
    listener(name, hosts, port, "TLS", json!({ "mode": "Passthrough" }), routes_of_same_namespace(Kind::TlsRoute))
}

/// Only routes of this kind, from the namespace of the listener's object.
pub(crate) fn routes_of_same_namespace(kind: Kind) -> Value {
    json!({
        "namespaces": { "from": "Same" },
        "kinds": [{ "group": names::GATEWAY_API_GROUP, "kind": kind.as_str() }],
    })
}

fn listener(name: &str, hosts: &HostPattern, port: u16, protocol: &str, tls: Value, allowed_routes: Value) -> Value {
    let mut listener = json!({ "name": name, "port": port, "protocol": protocol });
    listener["tls"] = tls;
    listener["allowedRoutes"] = allowed_routes;
    if let Some(hostname) = hosts.to_field() {
        listener["hostname"] = hostname.into();
    }
    listener
}

/// `spec` of an HTTPRoute of one backend. Without a backend, every request that it matches is refused.
pub(crate) fn http_route(
    parents: &[Parent],
    hostname: &str,
    paths: &[PathMatch<'_>],
    backend: Option<&Backend<'_>>,
    namespace: &str,
) -> Value {
    let path = |(type_, value): &PathMatch<'_>| json!({ "path": { "type": type_, "value": value } });
    let rules = paths.chunks(MAX_MATCHES).map(|paths| {
        let mut rule = backend.map_or_else(|| json!({ "backendRefs": [] }), |backend| backend.rule(namespace));
        rule["matches"] = paths.iter().map(path).collect();
        rule
    });
    route(parents, json!([hostname]), rules.collect())
}

/// `spec` of a TLSRoute.
pub(crate) fn tls_route(parents: &[Parent], hostnames: &[String], backends: &[Backend<'_>], namespace: &str) -> Value {
    let mut rule = json!({});
    rule["backendRefs"] = backends.iter().map(|backend| backend.reference(namespace)).collect();
    route(parents, json!(hostnames), vec![rule])
}

fn route(parents: &[Parent], hostnames: Value, rules: Vec<Value>) -> Value {
    let mut spec = json!({});
    spec["parentRefs"] = parents.iter().map(Parent::to_value).collect();
    spec["hostnames"] = hostnames;
    spec["rules"] = rules.into();
    spec
}

/// `spec` of a NetworkPolicy that lets the pods it selects and one peer meet at some ports.
pub(crate) fn network_policy(pods: &LabelSelector, traffic: &Traffic, peer: &Value, ports: &[Value]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({ "protocol": "TCP", "port": port })).collect();
    match traffic {
        Traffic::Ingress => json!({
            "podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{ "from": [peer], "ports": ports }],
        }),
        Traffic::Egress => json!({
            "podSelector": pods, "policyTypes": ["Egress"], "egress": [{ "to": [peer], "ports": ports }],
        }),
    }
}

/// `spec` of a Certificate of one name.
pub(crate) fn certificate(secret: &str, dns_name: &str, cluster_issuer: &str) -> Value {
    json!({
        "secretName": secret,
        "dnsNames": [dns_name],
        "issuerRef": { "group": "cert-manager.io", "kind": "ClusterIssuer", "name": cluster_issuer },
    })
}

/// `spec` of a ReferenceGrant that lets routes of one namespace, of these kinds, reach one Service.
pub(crate) fn reference_grant(routes: impl IntoIterator<Item = Kind>, from_namespace: &str, service: &str) -> Value {
    let from =
        |kind: Kind| json!({ "group": names::GATEWAY_API_GROUP, "kind": kind.as_str(), "namespace": from_namespace });
    json!({
        "from": routes.into_iter().map(from).collect::<Vec<_>>(),
        "to": [{ "group": "", "kind": "Service", "name": service }],
    })
}

impl Backend<'_> {
    /// A rule of a route in `namespace` that leads to it.
    fn rule(&self, namespace: &str) -> Value {
        let mut rule = json!({});
        rule["backendRefs"] = vec![self.reference(namespace)].into();
        rule
    }

    /// As a route in `namespace` names it.
    fn reference(&self, namespace: &str) -> Value {
        let mut reference =
            json!({ "group": "", "kind": "Service", "name": self.name, "port": self.port, "weight": self.weight });
        if self.namespace != namespace {
            reference["namespace"] = self.namespace.into();
        }
        reference
    }
}

impl OwnerIdentity<'_> {
    /// The owner itself, as an object.
    pub(crate) fn object_ref(&self) -> ObjectRef {
        let (api_version, kind) = self.kind.api();
        ObjectRef {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: (!self.namespace.is_empty()).then(|| self.namespace.to_owned()),
            name: self.name.to_owned(),
        }
    }

    /// As its objects name it.
    pub(crate) fn reference(&self) -> Value {
        let (api_version, kind) = self.kind.api();
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

impl OwnerKind {
    /// The contract's finalizer.
    pub(crate) fn finalizer(self) -> &'static str {
        match self {
            Self::NebariApp => names::nebari_app::FINALIZER,
            Self::Tenant => names::tenant::FINALIZER,
        }
    }

    /// `apiVersion` and `kind`.
    pub(crate) fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::NebariApp => ("reconcilers.nebari.dev/v1", "NebariApp"),
            Self::Tenant => ("kubespaces.io/v1alpha1", "Tenant"),
        }
    }
}
