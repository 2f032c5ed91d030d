//! What nobody has to write: namespaces that objects use, Services of `--backend`, the Gateways that the contracts name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use portreeve_api::names;
use portreeve_plan::{Config, ObjectRef};
use serde_json::{Value, json};

/// Objects by what they are called.
type Objects = BTreeMap<ObjectRef, Arc<Value>>;

/// Where a Service is reached: `NAMESPACE/SERVICE[:PORT]=ADDR:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendEndpoint {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub service: String,
    /// The Service's port; all of its ports when absent.
    pub port: Option<u16>,
    /// What is dialled.
    pub address: SocketAddr,
}

/// Text that is no [`BackendEndpoint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not NAMESPACE/SERVICE[:PORT]=ADDR:PORT, such as team/hub:80=127.0.0.1:3000")]
pub struct NoBackendEndpoint;

/// What the local CA is called where an issuer has to be named.
pub const LOCAL_ISSUER: &str = "portreeve-local";
/// The name that the shared Gateways' certificate always has, so that it is never without one.
const LOCALHOST: &str = "localhost";
/// The most names in one certificate; more than browsers ever meet.
const MAX_CERTIFICATE_NAMES: usize = 100;

impl FromStr for BackendEndpoint {
    type Err = NoBackendEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (service, address) = text.split_once('=').ok_or(NoBackendEndpoint)?;
        let (namespace, service) = service.split_once('/').ok_or(NoBackendEndpoint)?;
        let (service, port) = match service.split_once(':') {
            Some((service, port)) => (service, Some(port.parse().map_err(|_| NoBackendEndpoint)?)),
            None => (service, None),
        };
        if namespace.is_empty() || service.is_empty() || port == Some(0) {
            return Err(NoBackendEndpoint);
        }
        let address: SocketAddr = address.parse().map_err(|_| NoBackendEndpoint)?;
        if address.port() == 0 {
            return Err(NoBackendEndpoint);
        }
        Ok(Self { namespace: namespace.to_owned(), service: service.to_owned(), port, address })
    }
}

impl fmt::Display for BackendEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, service, port, address } = self;
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        write!(f, "{namespace}/{service}{port}={address}")
    }
}

/// Adds what the objects need and nobody wrote: endpoints of `--backend`, then the namespaces of all, but for those that
/// are made for tenants.
///
/// The endpoints of a Service that `--backend` names are those of `--backend` alone.
pub fn assume(objects: &mut Objects, backends: &[BackendEndpoint]) {
    let named: BTreeSet<_> = backends.iter().map(|backend| (&*backend.namespace, &*backend.service)).collect();
    objects.retain(|object, value| {
        let service = value["metadata"]["labels"]["kubernetes.io/service-name"].as_str().unwrap_or_default();
        object.kind != "EndpointSlice" || !named.contains(&(object.namespace.as_deref().unwrap_or_default(), service))
    });
    for (namespace, service) in named {
        let own: Vec<_> =
            backends.iter().filter(|backend| backend.namespace == namespace && backend.service == service).collect();
        let service = objects
            .entry(object("v1", "Service", Some(namespace), service))
            .or_insert_with(|| assumed_service(&own))
            .clone();
        for (index, backend) in own.iter().enumerate() {
            let (object, slice) = endpoint_slice(index, backend, &service);
            objects.insert(object, slice);
        }
    }
    let tenants = objects.keys().filter(|object| object.kind == "Tenant");
    let of_tenants: BTreeSet<_> = tenants.map(|tenant| names::tenant::default_namespace(&tenant.name)).collect();
    let mut namespaces: BTreeSet<_> = objects.keys().filter_map(|object| object.namespace.clone()).collect();
    namespaces.retain(|namespace| !of_tenants.contains(namespace));
    for name in namespaces {
        let object = object("v1", "Namespace", None, &name);
        objects.entry(object).or_insert_with_key(|object| value(object, &json!({})));
    }
}

/// The Gateways that the contracts name, where nobody wrote them: those of apps, and those of tenants if tenants are
/// served.
pub fn default_gateways(objects: &mut Objects, config: &Config) {
    let hostnames = objects
        .iter()
        .filter(|(object, _)| object.kind == "NebariApp")
        .filter_map(|(_, app)| app["spec"]["hostname"].as_str());
    let dns_names: BTreeSet<_> = hostnames.chain([LOCALHOST]).map(str::to_owned).take(MAX_CERTIFICATE_NAMES).collect();
    let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": names::GATEWAY_TLS_SECRET}]});
    let shared = json!([
        {"name": names::HTTP_LISTENER, "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}},
        {"name": names::HTTPS_LISTENER, "port": 443, "protocol": "HTTPS", "tls": tls, "allowedRoutes": {"namespaces": {"from": "All"}}},
    ]);
    let added = [names::PUBLIC_GATEWAY, names::INTERNAL_GATEWAY]
        .map(|name| add_gateway(objects, names::GATEWAY_NAMESPACE, name, &shared));
    if added.contains(&true) {
        add(
            objects,
            "cert-manager.io/v1",
            "Certificate",
            names::GATEWAY_NAMESPACE,
            names::GATEWAY_TLS_SECRET,
            &json!({"spec": {
                "secretName": names::GATEWAY_TLS_SECRET, "dnsNames": dns_names, "issuerRef": {"name": LOCAL_ISSUER, "kind": "ClusterIssuer"},
            }}),
        );
    }
    if let Some(api) = &config.tenant_api {
        let listeners = json!([{
            "name": "apipassthrough", "port": 443, "protocol": "TLS", "hostname": format!("*.api.{}", api.domain), "tls": {"mode": "Passthrough"},
        }]);
        add_gateway(objects, &api.gateway_namespace, &api.gateway_name, &listeners);
    }
    if let Some(apps) = &config.tenant_apps {
        add_gateway(
            objects,
            &apps.gateway_namespace,
            &apps.gateway_name,
            &json!([{"name": "http", "port": 80, "protocol": "HTTP"}]),
        );
    }
}

/// Returns whether it was not there.
fn add_gateway(objects: &mut Objects, namespace: &str, name: &str, listeners: &Value) -> bool {
    add(
        objects,
        "gateway.networking.k8s.io/v1",
        "Gateway",
        namespace,
        name,
        &json!({"spec": {
            "gatewayClassName": names::GATEWAY_CLASS, "listeners": listeners, "allowedListeners": {"namespaces": {"from": "All"}},
        }}),
    )
}

fn add(objects: &mut Objects, api_version: &str, kind: &str, namespace: &str, name: &str, fields: &Value) -> bool {
    let object = object(api_version, kind, Some(namespace), name);
    let is_new = !objects.contains_key(&object);
    objects.entry(object).or_insert_with_key(|object| value(object, fields));
    is_new
}

/// A Service with the ports that `--backend` names; where it names none, the port that is dialled.
fn assumed_service(backends: &[&BackendEndpoint]) -> Arc<Value> {
    let ports: BTreeSet<_> = backends.iter().map(|backend| backend.port.unwrap_or(backend.address.port())).collect();
    let ports: Vec<_> = ports.into_iter().map(|port| json!({"name": format!("port-{port}"), "port": port})).collect();
    let (namespace, service) =
        backends.first().map(|backend| (&*backend.namespace, &*backend.service)).unwrap_or_default();
    value(&object("v1", "Service", Some(namespace), service), &json!({"spec": {"ports": ports}}))
}

fn endpoint_slice(index: usize, backend: &BackendEndpoint, service: &Value) -> (ObjectRef, Arc<Value>) {
    let ports: Vec<_> = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|port| backend.port.is_none_or(|wanted| port["port"] == wanted))
        .map(|port| json!({"name": port["name"].as_str().unwrap_or_default(), "port": backend.address.port()}))
        .collect();
    let name = format!("{}-backend-{index}", backend.service);
    let object = object("discovery.k8s.io/v1", "EndpointSlice", Some(&backend.namespace), &name);
    let mut slice = Value::clone(&value(
        &object,
        &json!({
            "addressType": if backend.address.is_ipv4() { "IPv4" } else { "IPv6" },
            "ports": ports,
            "endpoints": [{"addresses": [backend.address.ip()], "conditions": {"ready": true}}],
        }),
    ));
    slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": backend.service});
    (object, Arc::new(slice))
}

fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

/// An object of this name with these fields.
fn value(object: &ObjectRef, fields: &Value) -> Arc<Value> {
    let mut value = json!({"apiVersion": object.api_version, "kind": object.kind, "metadata": {"name": object.name}});
    if let Some(namespace) = &object.namespace {
        value["metadata"]["namespace"] = namespace.as_str().into();
    }
    for (name, field) in fields.as_object().into_iter().flatten() {
        value[name] = field.clone();
    }
    Arc::new(value)
}

#[cfg(test)]
#[path = "assumed_tests.rs"]
mod tests;
