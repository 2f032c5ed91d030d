//! Gateway API semantics as one pure function: objects in, a routing table and every status out.
//!
//! Room rule: no I/O, no async, no clock, no knowledge of NebariApp or Tenant. The embedded gateway runs on
//! [`attach`]; [`trace`] explains any gateway with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gateway_api::{gatewayclasses::*, gateways::*, httproutes::*, listenersets::*, referencegrants::*, tlsroutes::*};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portreeve_names::Hostname;
use portreeve_table::{PortKey, Table};

/// Every object that decides what a gateway serves. Shared, so that a snapshot of a cluster costs no copies.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub gateway_classes: Vec<Arc<GatewayClass>>,
    pub gateways: Vec<Arc<Gateway>>,
    pub listener_sets: Vec<Arc<ListenerSet>>,
    pub http_routes: Vec<Arc<HttpRoute>>,
    pub tls_routes: Vec<Arc<TlsRoute>>,
    pub reference_grants: Vec<Arc<ReferenceGrant>>,
    pub namespaces: Vec<Arc<Namespace>>,
    pub services: Vec<Arc<Service>>,
    pub endpoint_slices: Vec<Arc<EndpointSlice>>,
    pub secrets: Vec<Arc<Secret>>,
}

/// Which Gateways are served, and under which controller name statuses are written.
#[derive(Clone, Debug)]
pub struct Settings {
    pub controller_name: String,
    pub classes: Classes,
}

/// Which Gateways are served.
#[derive(Clone, Debug)]
pub enum Classes {
    /// All, whatever their class: standalone, where no GatewayClass need exist.
    Every,
    /// Those of the named classes, whether or not the GatewayClass exists.
    Named(BTreeSet<String>),
    /// Those whose GatewayClass exists and names [`Settings::controller_name`].
    OfController,
}

/// What the data plane reports; what is absent has not been tried yet.
#[derive(Clone, Debug, Default)]
pub struct DataPlane {
    /// By Gateway (`namespace/name`): becomes `status.addresses`.
    pub addresses: BTreeMap<Arc<str>, Vec<IpAddr>>,
    pub sockets: BTreeMap<PortKey, SocketState>,
}

/// What became of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// Bound, and the table installed.
    Bound,
    /// Not bound; the text says why.
    Failed(String),
}

/// The routing table, and the statuses that differ from those that the objects carry.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    pub table: Table,
    pub gateway_classes: Vec<StatusOf<GatewayClassStatus>>,
    pub gateways: Vec<StatusOf<GatewayStatus>>,
    pub listener_sets: Vec<StatusOf<ListenerSetStatus>>,
    pub http_routes: Vec<StatusOf<HttpRouteStatus>>,
    pub tls_routes: Vec<StatusOf<TlsRouteStatus>>,
    /// What a person should know and no status can say, such as a certificate that has expired.
    pub warnings: Vec<Warning>,
}

/// A status to write.
#[derive(Clone, Debug)]
pub struct StatusOf<S> {
    /// Absent for cluster-scoped kinds.
    pub namespace: Option<String>,
    pub name: String,
    pub status: S,
}

/// Something that works, but not as its owner hopes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// `Kind/namespace/name`.
    pub subject: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// "Where does this go?"
#[derive(Clone, Debug)]
pub struct Question {
    /// `namespace/name`; every Gateway with that port when absent.
    pub gateway: Option<String>,
    pub port: u16,
    /// The server name or host; a client may send none.
    pub name: Option<Hostname>,
    /// What is asked inside, for HTTP and HTTPS listeners.
    pub request: Option<RequestQuestion>,
}

/// The request line of a [`Question`].
#[derive(Clone, Debug)]
pub struct RequestQuestion {
    pub method: String,
    pub path: String,
}

/// The answer to a [`Question`]: the way hop by hop, up to the first that fails.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Trace {
    pub hops: Vec<Hop>,
}

/// One step of the way.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Hop {
    /// `Gateway`, `Listener`, `Route`, `ReferenceGrant`, `Service`, `Endpoints`.
    pub kind: &'static str,
    /// `Kind/namespace/name[/section]`.
    pub subject: String,
    pub ok: bool,
    /// What was found.
    pub finding: String,
    /// What to change, on the hop that fails.
    pub fix: Option<String>,
}

/// Decides what is served and what every status says.
///
/// `now` becomes the `lastTransitionTime` of conditions whose status changes.
pub fn attach(_objects: &Objects, _settings: &Settings, _data_plane: &DataPlane, _now: jiff::Timestamp) -> Attached {
    Attached::default()
}

/// Explains where a connection or request goes, and if nowhere, why and what to change.
pub fn trace(_objects: &Objects, _settings: &Settings, _question: &Question) -> Trace {
    Trace { hops: Vec::new() }
}
