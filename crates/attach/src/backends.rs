//! From `backendRefs` to addresses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use portreeve_table as table;

use crate::annotations::{self, BadSetting};
use crate::index::{Index, Name, Referent, Referrer};
use crate::listener::{RouteKind, kind_name};
use crate::references::BackendRef;

/// Protocols that need TLS (KEP-3726), which an HTTPRoute's backend is not spoken to with.
const UNSUPPORTED_APP_PROTOCOLS: [&str; 2] = ["kubernetes.io/wss", "https"];
/// HTTP/2 in the clear, from the first byte (KEP-3726).
const H2C: &str = "kubernetes.io/h2c";

/// A backend of a rule, and where it leads.
#[derive(Clone, Debug)]
pub(crate) struct Backend<'a> {
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub port: Option<u16>,
    pub weight: u32,
    pub endpoints: Result<Arc<[SocketAddr]>, BackendProblem>,
    /// How it wants to be spoken to, if it can be dialled.
    pub options: table::BackendOptions,
}

/// Why a backend cannot be dialled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BackendProblem {
    #[error("a backend is a Service, not a {0}")]
    InvalidKind(String),
    /// Says nothing about whether the Service exists.
    #[error("no ReferenceGrant in namespace '{0}' permits it")]
    NotPermitted(String),
    #[error("it names no port")]
    NoPort,
    #[error("the Service does not exist")]
    NotFound,
    #[error("the Service has no TCP port {0}")]
    UnknownPort(u16),
    /// It could lead anywhere, also to what only the gateway may reach (CVE-2021-25740).
    #[error("Services of type ExternalName are refused")]
    ExternalName,
    #[error("the port's appProtocol '{0}' is not supported")]
    AppProtocol(String),
    #[error("the Service's annotation {0}")]
    Setting(#[from] BadSetting),
    /// One connection to it carries the requests of many clients.
    #[error("the Service wants PROXY protocol headers, which HTTP backends cannot get; they have X-Forwarded-For")]
    ProxyProtocolForHttp,
    #[error("the Service has no ready endpoint")]
    NoEndpoint,
}

impl BackendProblem {
    /// The reason of `ResolvedRefs=False`; a Service without endpoints is resolved.
    pub(crate) fn reason(&self) -> Option<&'static str> {
        match self {
            Self::InvalidKind(_) | Self::ExternalName => Some("InvalidKind"),
            Self::NotPermitted(_) => Some("RefNotPermitted"),
            Self::NoPort | Self::NotFound | Self::UnknownPort(_) => Some("BackendNotFound"),
            Self::AppProtocol(_) | Self::ProxyProtocolForHttp => Some("UnsupportedProtocol"),
            Self::Setting(_) => Some("UnsupportedValue"),
            Self::NoEndpoint => None,
        }
    }
}

impl Backend<'_> {
    /// `namespace/name:port`.
    pub(crate) fn service(&self) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}/{}{port}", self.namespace, self.name)
    }
}

impl From<&Backend<'_>> for table::Backend {
    fn from(backend: &Backend<'_>) -> Self {
        let fault = |problem: &BackendProblem| match problem.reason() {
            Some(_) => table::BackendFault::Unresolved,
            None => table::BackendFault::NoEndpoint,
        };
        Self {
            service: backend.service().into(),
            weight: backend.weight,
            endpoints: backend.endpoints.as_ref().map(Arc::clone).map_err(fault),
            options: backend.options.clone(),
        }
    }
}

/// Follows one reference of a route that lives in `namespace`.
pub(crate) fn resolve<'a>(
    index: &Index<'a>,
    route: RouteKind,
    namespace: &'a str,
    reference: BackendRef<'a>,
) -> Backend<'a> {
    let found = look_up(index, route, namespace, reference);
    let (endpoints, options) = match found {
        Ok((endpoints, options)) => (Ok(endpoints), options),
        Err(problem) => (Err(problem), table::BackendOptions::default()),
    };
    Backend {
        kind: reference.kind,
        namespace: reference.namespace.unwrap_or(namespace),
        name: reference.name,
        port: reference.port,
        weight: reference.weight,
        endpoints,
        options,
    }
}

fn look_up<'a>(
    index: &Index<'a>,
    route: RouteKind,
    home: &'a str,
    reference: BackendRef<'a>,
) -> Result<(Arc<[SocketAddr]>, table::BackendOptions), BackendProblem> {
    if (reference.group, reference.kind) != ("", "Service") {
        return Err(BackendProblem::InvalidKind(kind_name(reference.group, reference.kind)));
    }
    let name = (reference.namespace.unwrap_or(home), reference.name);
    let to = Referent { kind: "Service", namespace: name.0, name: name.1 };
    if !index.permits(Referrer { kind: route.as_str(), namespace: home }, to) {
        return Err(BackendProblem::NotPermitted(name.0.to_owned()));
    }
    let service = index.service(name).ok_or(BackendProblem::NotFound)?;
    let port = service_port(service, reference.port)?;
    if let (RouteKind::Http, Some(protocol)) = (route, unsupported_app_protocol(port)) {
        return Err(BackendProblem::AppProtocol(protocol.to_owned()));
    }
    let http2 = port.app_protocol.as_deref() == Some(H2C);
    let options = table::BackendOptions { http2, ..annotations::backend_options(&service.metadata)? };
    if route == RouteKind::Http && options.proxy_protocol.is_some() {
        return Err(BackendProblem::ProxyProtocolForHttp);
    }
    let addresses = ready_addresses(index, name, service, port);
    if addresses.is_empty() { Err(BackendProblem::NoEndpoint) } else { Ok((addresses.into(), options)) }
}

pub(crate) fn service_port(service: &Service, port: Option<u16>) -> Result<&ServicePort, BackendProblem> {
    let spec = service.spec.as_ref();
    if spec.is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName")) {
        return Err(BackendProblem::ExternalName);
    }
    let wanted = port.ok_or(BackendProblem::NoPort)?;
    let mut ports = spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let is_meant = |port: &&ServicePort| port.port == i32::from(wanted) && is_tcp(port.protocol.as_deref());
    ports.find(is_meant).ok_or(BackendProblem::UnknownPort(wanted))
}

fn unsupported_app_protocol(port: &ServicePort) -> Option<&str> {
    port.app_protocol.as_deref().filter(|protocol| UNSUPPORTED_APP_PROTOCOLS.contains(protocol))
}

/// Absent means TCP.
pub(crate) fn is_tcp(protocol: Option<&str>) -> bool {
    matches!(protocol, None | Some("TCP"))
}

/// The ready endpoints in a fixed order. Of a Service with two address families only the first is used if it has any:
/// both lead to the same Pods, and the gateway's host may speak only one of them.
pub(crate) fn ready_addresses(
    index: &Index<'_>,
    name: Name<'_>,
    service: &Service,
    port: &ServicePort,
) -> Vec<SocketAddr> {
    let slices = index.slices(name).iter();
    let mut addresses: Vec<_> = slices.flat_map(|slice| slice_addresses(slice, port)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_ref());
    let first = families.and_then(|families| families.first()).map(|family| family == "IPv6");
    if let Some(v6) = first.filter(|v6| addresses.iter().any(|address| address.is_ipv6() == *v6)) {
        addresses.retain(|address| address.is_ipv6() == v6);
    }
    addresses
}

fn slice_addresses(slice: &EndpointSlice, port: &ServicePort) -> Vec<SocketAddr> {
    let Some(number) = target_port(slice, port) else { return Vec::new() };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint));
    // The first address is the one to use; more are no longer defined (EndpointSlice API).
    let addresses = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
    addresses.map(|address| SocketAddr::new(address, number)).collect()
}

/// Not known counts as ready (EndpointSlice API, `conditions.ready`).
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

/// A slice names its ports as the Service does and has their numbers already resolved; without a number it has all.
fn target_port(slice: &EndpointSlice, port: &ServicePort) -> Option<u16> {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    let is_meant =
        |candidate: &&EndpointPort| name(&candidate.name) == name(&port.name) && is_tcp(candidate.protocol.as_deref());
    let number = slice.ports.iter().flatten().find(is_meant)?.port.unwrap_or(match port.target_port {
        Some(IntOrString::Int(number)) => number,
        Some(IntOrString::String(_)) | None => port.port,
    });
    u16::try_from(number).ok()
}
