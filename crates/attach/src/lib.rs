//! Gateway API semantics as one pure function: objects in, a routing table and every status out.
//!
//! Room rule: no I/O, no async, no clock, no knowledge of NebariApp or Tenant. The embedded gateway runs on
//! [`attach`]; [`trace`] explains any gateway with it.
//!
//! Both are made from the same decisions, which depend on the objects alone: what the data plane could do with them
//! only shows in statuses. The rules are those of Gateway API v1.6.3; where its prose and its conformance suite
//! disagree, the suite decides.

mod annotations;
mod backends;
mod certificates;
mod conditions;
mod conflicts;
mod decisions;
mod duration;
mod http_rules;
mod index;
mod listener;
mod namespaces;
mod network_policy;
mod owners;
mod policies;
mod references;
mod routes;
mod serve;
mod status;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use gateway_api::gatewayclasses::{GatewayClass, GatewayClassStatus};
use gateway_api::gateways::{Gateway, GatewayStatus};
use gateway_api::httproutes::{HttpRoute, HttpRouteStatus};
use gateway_api::listenersets::{ListenerSet, ListenerSetStatus};
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::{TlsRoute, TlsRouteStatus};
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
pub use network_policy::{AdminPolicy, Dependence, Doubt, GatewayPods, PodLabels, Pods, Verdict};
pub use policies::{PolicyAncestor, PolicyStatus, SecurityPolicy};
use portreeve_table::{PortKey, Table};
pub use trace::{Hop, Origin, Question, RequestQuestion, Trace, trace};

/// Every object that decides what a gateway serves. Shared, so that a snapshot of a cluster costs no copies.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Needed for [`Classes::OfController`] only.
    pub gateway_classes: Vec<Arc<GatewayClass>>,
    /// Also those of other controllers: whether a parent exists at all is told from these.
    pub gateways: Vec<Arc<Gateway>>,
    /// In any namespace.
    pub listener_sets: Vec<Arc<ListenerSet>>,
    /// In any namespace.
    pub http_routes: Vec<Arc<HttpRoute>>,
    /// In any namespace.
    pub tls_routes: Vec<Arc<TlsRoute>>,
    /// In any namespace.
    pub reference_grants: Vec<Arc<ReferenceGrant>>,
    /// For their labels; one that is missing counts as having its name as its only label.
    pub namespaces: Vec<Arc<Namespace>>,
    /// What routes name as backends.
    pub services: Vec<Arc<Service>>,
    /// The endpoints of the Services, found by the label `kubernetes.io/service-name`.
    pub endpoint_slices: Vec<Arc<EndpointSlice>>,
    /// The certificates of listeners, and what proves the gateway to identity providers.
    pub secrets: Vec<Arc<Secret>>,
    /// Needed for [`Question::from`] only.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    /// Likewise.
    pub admin_policies: Vec<AdminPolicy>,
    /// What protects routes. A route whose protection cannot be applied is refused: nobody is let in unprotected.
    pub security_policies: Vec<Arc<SecurityPolicy>>,
}

/// Which Gateways are served, and under which controller name statuses are written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// As `GatewayClass.spec.controllerName` and `status.parents[].controllerName` have it.
    pub controller_name: String,
    /// Which Gateways are served.
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
    /// By port: becomes `Programmed` of the listeners.
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
    /// Everything that should be served, whether or not [`DataPlane`] says that it is.
    pub table: Table,
    /// Only with [`Classes::OfController`].
    pub gateway_classes: Vec<StatusOf<GatewayClassStatus>>,
    /// Those of the Gateways that are served.
    pub gateways: Vec<StatusOf<GatewayStatus>>,
    /// Those of the ListenerSets that name such a Gateway.
    pub listener_sets: Vec<StatusOf<ListenerSetStatus>>,
    /// Those of the routes that name either; the entries of other controllers are as they were.
    pub http_routes: Vec<StatusOf<HttpRouteStatus>>,
    /// Likewise.
    pub tls_routes: Vec<StatusOf<TlsRouteStatus>>,
    /// Those of the policies whose routes name either; likewise.
    pub security_policies: Vec<StatusOf<PolicyStatus>>,
    /// What a person should know and no status can say, such as a certificate that has expired.
    pub warnings: Vec<Warning>,
}

/// A status to write.
#[derive(Clone, Debug)]
pub struct StatusOf<S> {
    /// Absent for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Of the object.
    pub name: String,
    /// The whole status, with what others have put there.
    pub status: S,
}

/// Something that works, but not as its owner hopes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// `Kind/namespace/name`, or `Kind/namespace/name/section` for a listener.
    pub subject: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Decides what is served and what every status says.
///
/// `now` becomes the `lastTransitionTime` of conditions whose status changes, and tells which certificates have
/// expired. Neither the order of the objects nor anything outside the arguments matters, and a status is only in the
/// result if the object does not carry it yet: with the statuses written back and everything else as before, the
/// next call returns none.
pub fn attach(objects: &Objects, settings: &Settings, data_plane: &DataPlane, now: jiff::Timestamp) -> Attached {
    let decisions = decisions::decide(objects, settings);
    let owners = status::owner_statuses(&decisions, data_plane, now);
    let routes = status::route_statuses(objects, &decisions, &settings.controller_name, now);
    let mut warnings = certificates::warnings(&decisions, now);
    warnings.extend_from_slice(&decisions.warnings);
    warnings.sort_unstable();
    warnings.dedup();
    Attached {
        table: serve::table(&decisions),
        gateway_classes: status::class_statuses(objects, settings, now),
        gateways: owners.gateways,
        listener_sets: owners.listener_sets,
        http_routes: routes.http,
        tls_routes: routes.tls,
        security_policies: status::policy_statuses(&decisions, &settings.controller_name, now),
        warnings,
    }
}
