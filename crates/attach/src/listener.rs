use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_api::gateways::{GatewayListeners, GatewayListenersAllowedRoutesKinds, GatewayListenersTlsMode};
use gateway_api::listenersets::{
    ListenerSetListeners, ListenerSetListenersAllowedRoutesKinds, ListenerSetListenersTlsMode,
};
use portreeve_names::{HostPattern, SniPattern};
use portreeve_table::{KeyPair, ListenerId};

use crate::certificates::CertificateProblem;
use crate::conflicts::Conflict;
use crate::index::GATEWAY_GROUP;
use crate::namespaces::NamespaceRule;
use crate::owners::OwnerKind;
use crate::references::CertificateRef;

/// A listener of a Gateway or of a ListenerSet, as its author wrote it.
pub(crate) struct ListenerSpec<'a> {
    name: &'a str,
    port: i32,
    protocol: &'a str,
    hostname: Option<&'a str>,
    /// Absent: no `tls` at all.
    mode: Option<TlsMode>,
    certificates: Vec<CertificateRef<'a>>,
    tls_options: Option<&'a BTreeMap<String, String>>,
    routes_from: NamespaceRule<'a>,
    /// Group and kind; empty: whatever the protocol takes.
    kinds: Vec<(&'a str, &'a str)>,
}

#[derive(Clone, Copy, PartialEq)]
enum TlsMode {
    Terminate,
    Passthrough,
}

/// A listener of a Gateway or of a ListenerSet, and what was decided about it.
pub(crate) struct Listener<'a> {
    pub id: ListenerId,
    /// The place of its Gateway or ListenerSet in [`crate::decisions::Decisions::owners`].
    pub owner: usize,
    pub name: &'a str,
    pub port: u16,
    pub protocol: Protocol<'a>,
    pub hosts: HostPattern,
    pub certificates: Vec<CertificateRef<'a>>,
    pub tls_options: Option<&'a BTreeMap<String, String>>,
    pub routes_from: NamespaceRule<'a>,
    /// The kinds of route that it takes.
    pub kinds: Vec<RouteKind>,
    /// The kinds that it names and that cannot be attached to it.
    pub invalid_kinds: Vec<String>,
    /// Narrows the host names of its routes; or says why that cannot be known.
    pub sni_pattern: Result<Option<SniPattern>, String>,
    /// Why it is not accepted.
    pub fault: Option<ListenerFault>,
    /// What is wrong with the first reference to a certificate that is wrong.
    pub certificate_problem: Option<CertificateProblem>,
    /// The first certificate that can be served.
    pub certificate: Option<Arc<KeyPair>>,
    /// Whether another TLS listener of the same port has names in common with it.
    pub overlaps: bool,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol<'a> {
    Http,
    Https,
    TlsPassthrough,
    TlsTerminate,
    Tcp,
    Other(&'a str),
}

/// Listeners of different families cannot share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Http,
    Tls,
    Tcp,
}

/// The kinds of route that can be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RouteKind {
    Http,
    Tls,
}

/// Why a listener is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListenerFault {
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Conflicted(#[from] Conflict),
    #[error("protocol '{0}' is not supported; use HTTP, HTTPS or TLS")]
    UnsupportedProtocol(String),
    /// Its limits on route host names are unknown, so no route is safe to serve.
    #[error("{0}; no route is served here until it can be read")]
    UnreadablePattern(String),
    /// Serving without the check would let anybody in.
    #[error("the Gateway asks for client certificates on this port (spec.tls.frontend), which is not supported")]
    ClientCertificates,
    #[error("the Gateway itself is not accepted")]
    GatewayRefused,
}

impl ListenerFault {
    /// The reason of `Accepted=False`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Conflicted(conflict) => conflict.reason(),
            Self::UnsupportedProtocol(_) => "UnsupportedProtocol",
            Self::Unreadable(_) | Self::UnreadablePattern(_) | Self::ClientCertificates => "UnsupportedValue",
            Self::GatewayRefused => "Invalid",
        }
    }
}

impl<'a> Listener<'a> {
    pub(crate) fn new(owner: usize, owner_id: &str, spec: ListenerSpec<'a>) -> Self {
        let protocol = Protocol::of(&spec);
        let (hosts, port, fault) = match readable(&spec) {
            Ok((hosts, port)) => (hosts, port, None),
            Err(problem) => (HostPattern::Any, 0, Some(ListenerFault::Unreadable(problem))),
        };
        let (kinds, invalid_kinds) = kinds(protocol, &spec.kinds);
        Self {
            id: ListenerId(format!("{owner_id}/{}", spec.name).into()),
            owner,
            name: spec.name,
            port,
            protocol,
            hosts,
            certificates: spec.certificates,
            tls_options: spec.tls_options,
            routes_from: spec.routes_from,
            kinds,
            invalid_kinds,
            sni_pattern: Ok(None),
            fault,
            certificate_problem: None,
            certificate: None,
            overlaps: false,
        }
    }

    /// Whether TLS ends here, so that a certificate is needed.
    pub(crate) fn terminates(&self) -> bool {
        matches!(self.protocol, Protocol::Https | Protocol::TlsTerminate)
    }

    /// Whether connections for its names reach its routes.
    pub(crate) fn is_usable(&self) -> bool {
        self.fault.is_none() && !self.kinds.is_empty() && (self.certificate.is_some() || !self.terminates())
    }

    /// Whether its names stay its own. A listener that cannot be served for now must not lose them to a listener
    /// with a wider host name, whose routes may be somebody else's.
    pub(crate) fn keeps_names(&self) -> bool {
        matches!(self.fault, None | Some(ListenerFault::UnreadablePattern(_) | ListenerFault::ClientCertificates))
    }

    /// Why it is not usable.
    pub(crate) fn hindrance(&self) -> Option<String> {
        if self.is_usable() {
            return None;
        }
        let fault = self.fault.as_ref().map(ToString::to_string);
        fault
            .or_else(|| self.certificate_problem.as_ref().map(ToString::to_string))
            .or_else(|| Some("it allows no kind of route that it could take".to_owned()))
    }

    /// The names that this listener and a route's host name have in common and that may be served.
    pub(crate) fn common_names(&self, route_hosts: &HostPattern) -> Option<HostPattern> {
        let common = self.hosts.intersect(route_hosts)?;
        match &self.sni_pattern {
            Ok(None) => Some(common),
            Ok(Some(pattern)) if pattern.covers(&common) => Some(common),
            Ok(Some(_)) | Err(_) => None,
        }
    }
}

impl<'a> Protocol<'a> {
    fn of(spec: &ListenerSpec<'a>) -> Self {
        match (spec.protocol, spec.mode) {
            ("HTTP", _) => Self::Http,
            ("HTTPS", _) => Self::Https,
            ("TLS", Some(TlsMode::Passthrough)) => Self::TlsPassthrough,
            ("TLS", _) => Self::TlsTerminate,
            ("TCP", _) => Self::Tcp,
            (other, _) => Self::Other(other),
        }
    }

    /// `None` where no other listener is in the way: UDP, and what is not known.
    pub(crate) fn family(self) -> Option<Family> {
        match self {
            Self::Http => Some(Family::Http),
            Self::Https | Self::TlsPassthrough | Self::TlsTerminate => Some(Family::Tls),
            Self::Tcp => Some(Family::Tcp),
            Self::Other(_) => None,
        }
    }

    /// As `spec.listeners[].protocol` has it.
    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::TlsPassthrough | Self::TlsTerminate => "TLS",
            Self::Tcp => "TCP",
            Self::Other(other) => other,
        }
    }

    pub(crate) fn is_supported(self) -> bool {
        self.route_kind().is_some()
    }

    fn route_kind(self) -> Option<RouteKind> {
        match self {
            Self::Http | Self::Https => Some(RouteKind::Http),
            Self::TlsPassthrough | Self::TlsTerminate => Some(RouteKind::Tls),
            Self::Tcp | Self::Other(_) => None,
        }
    }
}

impl RouteKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "HTTPRoute",
            Self::Tls => "TLSRoute",
        }
    }
}

/// The host names and the port; or what no cluster would have let in, but a file may say.
fn readable(spec: &ListenerSpec<'_>) -> Result<(HostPattern, u16), String> {
    match (spec.protocol, spec.mode) {
        ("HTTP", Some(_)) => return Err("a listener of protocol HTTP cannot have tls; use HTTPS".to_owned()),
        ("HTTPS", Some(TlsMode::Passthrough)) => {
            return Err("protocol HTTPS cannot pass TLS through; use protocol TLS with tls.mode Passthrough".to_owned());
        }
        ("TLS", None) => return Err("a listener of protocol TLS needs tls.mode".to_owned()),
        _ => {}
    }
    let hosts = HostPattern::parse_optional(spec.hostname).map_err(|error| error.to_string())?;
    match u16::try_from(spec.port) {
        Ok(port) if port > 0 => Ok((hosts, port)),
        _ => Err(format!("{} is not a port; use 1 to 65535", spec.port)),
    }
}

/// The kinds that a listener takes, and those that it names in vain.
fn kinds(protocol: Protocol<'_>, named: &[(&str, &str)]) -> (Vec<RouteKind>, Vec<String>) {
    let possible: Vec<_> = protocol.route_kind().into_iter().collect();
    if named.is_empty() {
        return (possible, Vec::new());
    }
    let is = |kind: &RouteKind, (group, name): (&str, &str)| group == GATEWAY_GROUP && name == kind.as_str();
    let taken = possible.iter().copied().filter(|kind| named.iter().any(|name| is(kind, *name))).collect();
    let invalid = named.iter().filter(|name| !possible.iter().any(|kind| is(kind, **name)));
    (taken, invalid.map(|(group, kind)| kind_name(group, kind)).collect())
}

/// The kind, with its group unless that is Gateway API's or the core group.
pub(crate) fn kind_name(group: &str, kind: &str) -> String {
    if [GATEWAY_GROUP, ""].contains(&group) { kind.to_owned() } else { format!("{group}/{kind}") }
}

impl OwnerKind {
    /// As `kind` has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "Gateway",
            Self::ListenerSet => "ListenerSet",
        }
    }
}

macro_rules! listener_spec_from {
    ($($listener:ty, $mode:ident, $kinds:ty);*) => {$(
        impl<'a> From<&'a $listener> for ListenerSpec<'a> {
            fn from(listener: &'a $listener) -> Self {
                let routes = listener.allowed_routes.as_ref();
                let namespaces = routes.and_then(|routes| routes.namespaces.as_ref());
                let kinds = routes.into_iter().flat_map(|routes| routes.kinds.iter().flatten());
                let group_and_kind = |kind: &'a $kinds| (kind.group.as_deref().unwrap_or(GATEWAY_GROUP), &*kind.kind);
                Self {
                    name: &listener.name,
                    port: listener.port,
                    protocol: &listener.protocol,
                    hostname: listener.hostname.as_deref(),
                    mode: listener.tls.as_ref().map(|tls| match tls.mode {
                        Some($mode::Passthrough) => TlsMode::Passthrough,
                        Some($mode::Terminate) | None => TlsMode::Terminate,
                    }),
                    certificates: listener
                        .tls
                        .iter()
                        .flat_map(|tls| tls.certificate_refs.iter().flatten())
                        .map(CertificateRef::from)
                        .collect(),
                    tls_options: listener.tls.as_ref().and_then(|tls| tls.options.as_ref()),
                    routes_from: namespaces.map_or(NamespaceRule::Same, NamespaceRule::from),
                    kinds: kinds.map(group_and_kind).collect(),
                }
            }
        }
    )*};
}

listener_spec_from!(
    GatewayListeners, GatewayListenersTlsMode, GatewayListenersAllowedRoutesKinds;
    ListenerSetListeners, ListenerSetListenersTlsMode, ListenerSetListenersAllowedRoutesKinds
);
