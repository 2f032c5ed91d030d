use std::fmt;

use gateway_api::gateways::GatewayListenersTlsCertificateRefs;
use gateway_api::httproutes::{HttpRouteParentRefs, HttpRouteRulesBackendRefs, HttpRouteStatusParentsParentRef};
use gateway_api::listenersets::ListenerSetListenersTlsCertificateRefs;
use gateway_api::tlsroutes::{TlsRouteParentRefs, TlsRouteRulesBackendRefs, TlsRouteStatusParentsParentRef};

use crate::index::GATEWAY_GROUP;

/// What a route names as its parent, as declared, with group and kind filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ParentRef<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    /// Absent: the namespace of the route.
    pub namespace: Option<&'a str>,
    pub name: &'a str,
    pub section: Option<&'a str>,
    pub port: Option<i32>,
}

/// What a rule names as its backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendRef<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    /// Absent: the namespace of the route.
    pub namespace: Option<&'a str>,
    pub name: &'a str,
    pub port: Option<u16>,
    pub weight: u32,
    /// Whether filters are set on the reference itself.
    pub filtered: bool,
}

/// What a listener names as its certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateRef<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    /// Absent: the namespace of the listener's object.
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

impl<'a> ParentRef<'a> {
    /// The same reference with the namespace filled in, so that two spellings compare as equal.
    pub(crate) fn within(self, namespace: &'a str) -> Self {
        Self { namespace: Some(self.namespace.unwrap_or(namespace)), ..self }
    }
}

/// `Kind namespace/name`, without what narrows it.
impl fmt::Display for ParentRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        write!(f, "{} '{namespace}{}'", self.kind, self.name)
    }
}

macro_rules! parent_ref_from {
    ($($reference:ty),*) => {$(
        impl<'a> From<&'a $reference> for ParentRef<'a> {
            fn from(reference: &'a $reference) -> Self {
                Self {
                    group: reference.group.as_deref().unwrap_or(GATEWAY_GROUP),
                    kind: reference.kind.as_deref().unwrap_or("Gateway"),
                    namespace: reference.namespace.as_deref(),
                    name: &reference.name,
                    section: reference.section_name.as_deref(),
                    port: reference.port,
                }
            }
        }
    )*};
}

parent_ref_from!(
    HttpRouteParentRefs,
    TlsRouteParentRefs,
    HttpRouteStatusParentsParentRef,
    TlsRouteStatusParentsParentRef
);

macro_rules! parent_ref_into {
    ($($reference:ty),*) => {$(
        impl From<ParentRef<'_>> for $reference {
            fn from(reference: ParentRef<'_>) -> Self {
                Self {
                    group: Some(reference.group.to_owned()),
                    kind: Some(reference.kind.to_owned()),
                    namespace: reference.namespace.map(str::to_owned),
                    name: reference.name.to_owned(),
                    section_name: reference.section.map(str::to_owned),
                    port: reference.port,
                }
            }
        }
    )*};
}

parent_ref_into!(HttpRouteStatusParentsParentRef, TlsRouteStatusParentsParentRef);

/// `$filtered` says whether the reference has filters of its own; a TLSRoute cannot.
macro_rules! backend_ref_from {
    ($($reference:ty, $filtered:expr);*) => {$(
        impl<'a> From<&'a $reference> for BackendRef<'a> {
            fn from(reference: &'a $reference) -> Self {
                let filtered: fn(&$reference) -> bool = $filtered;
                Self {
                    group: reference.group.as_deref().unwrap_or_default(),
                    kind: reference.kind.as_deref().unwrap_or("Service"),
                    namespace: reference.namespace.as_deref(),
                    name: &reference.name,
                    port: reference.port.and_then(|port| u16::try_from(port).ok()),
                    weight: reference.weight.map_or(1, |weight| u32::try_from(weight).unwrap_or(0)),
                    filtered: filtered(reference),
                }
            }
        }
    )*};
}

backend_ref_from!(
    HttpRouteRulesBackendRefs, |reference| reference.filters.as_ref().is_some_and(|filters| !filters.is_empty());
    TlsRouteRulesBackendRefs, |_| false
);

macro_rules! certificate_ref_from {
    ($($reference:ty),*) => {$(
        impl<'a> From<&'a $reference> for CertificateRef<'a> {
            fn from(reference: &'a $reference) -> Self {
                Self {
                    group: reference.group.as_deref().unwrap_or_default(),
                    kind: reference.kind.as_deref().unwrap_or("Secret"),
                    namespace: reference.namespace.as_deref(),
                    name: &reference.name,
                }
            }
        }
    )*};
}

certificate_ref_from!(GatewayListenersTlsCertificateRefs, ListenerSetListenersTlsCertificateRefs);
