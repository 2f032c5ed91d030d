//! HTTPRoutes of others on the shared Gateways, and the names that they claim there.

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::gateways::{GatewayListeners, GatewayListenersAllowedRoutesNamespacesFrom as AllowedFrom};
use gateway_api::httproutes::{HttpRoute, HttpRouteParentRefs};
use gateway_api::listenersets::ListenerSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portreeve_api::names::GATEWAY_API_GROUP;
use portreeve_api::names::labels;
use portreeve_api::nebari_app::GatewayChoice;
use portreeve_names::{HostPattern, Hostname};

use crate::acknowledgement::{Parent, http_route_statuses, route};
use crate::claim::GatewayName;
use crate::condition::Reason;
use crate::gateway::SharedGateway;
use crate::object::{Key, Kind, Live, Maker};
use crate::selector::selects;
use crate::view::View;
use crate::wanted::Wanted;
use crate::world::World;

/// A listener of a Gateway that has no host name and takes routes of every namespace: whoever may create a route there
/// can claim any name that nobody else has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenListener {
    /// The Gateway.
    pub gateway: GatewayName,
    /// The name of the listener.
    pub listener: String,
}

/// Every listener of a Gateway that is open to all, in order.
pub fn listeners_open_to_all(world: &World) -> Vec<OpenListener> {
    let mut open = Vec::new();
    for gateway in &world.gateways {
        let metadata = &gateway.metadata;
        let gateway_name = GatewayName::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let is_open = |listener: &&GatewayListeners| {
            listener.hostname.as_deref().unwrap_or_default().is_empty() && allowed_from(listener) == AllowedFrom::All
        };
        let names = gateway.spec.listeners.iter().filter(is_open).map(|listener| listener.name.clone());
        open.extend(names.map(|listener| OpenListener { gateway: gateway_name.clone(), listener }));
    }
    open.sort();
    open
}

/// What routes and listeners that Portreeve did not make claim on the shared Gateways.
#[derive(Default)]
pub(crate) struct Contests<'a> {
    by_hosts: BTreeMap<HostPattern, Vec<Contest<'a>>>,
    listeners: BTreeMap<HostPattern, Vec<ForeignListener<'a>>>,
}

/// A listener that a ListenerSet of somebody else adds to a shared Gateway.
pub(crate) struct ForeignListener<'a> {
    set: &'a ListenerSet,
    pub(crate) gateway: GatewayName,
    pub(crate) port: i32,
    pub(crate) hosts: HostPattern,
}

/// A route on a listener.
#[derive(Clone, Debug)]
pub(crate) struct Contest<'a> {
    route: &'a HttpRoute,
    parent: &'a HttpRouteParentRefs,
    gateway: GatewayName,
    section: &'a str,
}

/// Whether a route is a challenge of cert-manager.
pub(crate) fn is_solver(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(labels::HTTP01_SOLVER)).is_some_and(|value| value == labels::TRUE)
}

/// Whether Portreeve wants an object to be as it makes it, or is about to remove it. An owner reference proves nothing:
/// whoever may create routes can write one.
fn is_ours(live: Live<'_>, wanted: &Wanted<'_, '_>) -> bool {
    let metadata = live.metadata();
    let (namespace, name) =
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
    wanted.is_wanted(&Key::new(live.kind(), namespace, name)) || live.is_made()
}

impl<'a> Contests<'a> {
    pub(crate) fn of(view: &View<'a>, wanted: &Wanted<'_, '_>) -> Self {
        let mut contests = Self::default();
        for set in view.world.listener_sets.iter().filter(|set| !is_ours(Live::ListenerSet(set), wanted)) {
            for listener in listeners_of(view, set) {
                contests.listeners.entry(listener.hosts.clone()).or_default().push(listener);
            }
        }
        for route in &view.world.http_routes {
            // A route without a name takes what is left, and claims nothing.
            let names = route.spec.hostnames.iter().flatten().filter_map(|name| HostPattern::parse(name).ok());
            let names: Vec<HostPattern> = names.collect();
            if names.is_empty() || is_ours(Live::HttpRoute(route), wanted) {
                continue;
            }
            for contest in attachments(view, route) {
                for hosts in &names {
                    contests.by_hosts.entry(hosts.clone()).or_default().push(contest.clone());
                }
            }
        }
        contests
    }

    /// Those that claim a name, or all names around it.
    pub(crate) fn over(&self, name: &Hostname) -> impl Iterator<Item = (&HostPattern, &Contest<'a>)> {
        let found = patterns_over(name).filter_map(|pattern| self.by_hosts.get_key_value(&pattern));
        found.flat_map(|(hosts, contests)| contests.iter().map(move |contest| (hosts, contest)))
    }

    /// The listeners whose host name is this one, or a wildcard around it.
    pub(crate) fn listeners_over(&self, name: &Hostname) -> impl Iterator<Item = &ForeignListener<'a>> {
        patterns_over(name).filter_map(|pattern| self.listeners.get(&pattern)).flatten()
    }
}

/// A name, and every wildcard around it.
fn patterns_over(name: &Hostname) -> impl Iterator<Item = HostPattern> {
    let suffixes = std::iter::successors(parent(name), parent).map(HostPattern::Wildcard);
    std::iter::once(HostPattern::Exact(name.clone())).chain(suffixes)
}

/// The listeners by name that a ListenerSet adds to a shared Gateway, if that admits it.
fn listeners_of<'a>(view: &View<'a>, set: &'a ListenerSet) -> Vec<ForeignListener<'a>> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let parent = &set.spec.parent_ref;
    let gateway = GatewayName::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name);
    let admits = |shared: SharedGateway<'_>| shared.admits_listener_sets_of(view, namespace);
    if !is_shared(&gateway) || !view.gateway(&gateway).is_some_and(admits) {
        return Vec::new();
    }
    let told_apart = set.spec.listeners.iter().filter(|one| matches!(one.protocol.as_str(), "HTTP" | "HTTPS" | "TLS"));
    let named = told_apart.filter_map(|one| Some((one.port, HostPattern::parse(one.hostname.as_deref()?).ok()?)));
    named.map(|(port, hosts)| ForeignListener { set, gateway: gateway.clone(), port, hosts }).collect()
}

fn is_shared(gateway: &GatewayName) -> bool {
    [GatewayChoice::Public, GatewayChoice::Internal].map(GatewayName::of_app).contains(gateway)
}

fn parent(name: &Hostname) -> Option<Hostname> {
    Hostname::parse(name.parent()?).ok()
}

/// The listeners of the shared Gateways that a route asks for and that take it in.
fn attachments<'a>(view: &View<'a>, route: &'a HttpRoute) -> Vec<Contest<'a>> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    for parent in route.spec.parent_refs.iter().flatten() {
        let is_gateway = parent.kind.as_deref().is_none_or(|kind| kind == Kind::Gateway.as_str())
            && parent.group.as_deref().is_none_or(|group| group == GATEWAY_API_GROUP);
        let gateway = GatewayName::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name);
        let Some(object) = view.gateway(&gateway).filter(|_| is_gateway && is_shared(&gateway)) else { continue };
        let named = |listener: &&GatewayListeners| {
            parent.section_name.as_ref().is_none_or(|section| *section == listener.name)
                && parent.port.is_none_or(|port| port == listener.port)
                && matches!(listener.protocol.as_str(), "HTTP" | "HTTPS")
        };
        let listeners = object.object.spec.listeners.iter().filter(named);
        let open = listeners.filter(|listener| takes_routes_of(view, &gateway, listener, namespace));
        found.extend(open.map(|listener| Contest {
            route,
            parent,
            gateway: gateway.clone(),
            section: listener.name.as_str(),
        }));
    }
    found
}

fn allowed_from(listener: &GatewayListeners) -> AllowedFrom {
    let namespaces = listener.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    namespaces.and_then(|allowed| allowed.from.clone()).unwrap_or(AllowedFrom::Same)
}

fn takes_routes_of(view: &View<'_>, gateway: &GatewayName, listener: &GatewayListeners, namespace: &str) -> bool {
    match allowed_from(listener) {
        AllowedFrom::All => true,
        AllowedFrom::Same => *gateway.namespace == *namespace,
        AllowedFrom::Selector => {
            let namespaces = listener.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
            namespaces.and_then(|allowed| allowed.selector.as_ref()).is_some_and(|selector| {
                let requirements = selector.match_expressions.iter().flatten();
                let requirements = requirements
                    .map(|one| (one.key.as_str(), one.operator.as_str(), one.values.as_deref().unwrap_or_default()));
                let label = |key: &str| view.namespace_label(namespace, key);
                selects(selector.match_labels.as_ref(), requirements, label)
            })
        }
    }
}

impl ForeignListener<'_> {
    /// `Namespace/name` of the ListenerSet.
    pub(crate) fn name(&self) -> String {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{}/{}", text(&self.set.metadata.namespace), text(&self.set.metadata.name))
    }

    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        self.set.metadata.namespace.as_deref() == Some(namespace)
    }
}

impl Contest<'_> {
    /// `Namespace/name`, by which several are told in order.
    pub(crate) fn name(&self) -> String {
        let metadata = &self.route.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
    }

    pub(crate) fn is_in(&self, namespace: &str) -> bool {
        self.route.metadata.namespace.as_deref() == Some(namespace)
    }

    /// Whether the route is there on behalf of an app or its certificate: a challenge of cert-manager, or made by the
    /// app's own controller.
    pub(crate) fn is_of_app(&self) -> bool {
        is_solver(&self.route.metadata) || matches!(Live::HttpRoute(self.route).maker(), Maker::Uid(..))
    }

    /// Whether it is on this listener, the gateway has taken it, and it goes before a route that was made at another
    /// time.
    pub(crate) fn goes_before(&self, gateway: &GatewayName, section: &str, other: Option<&ObjectMeta>) -> bool {
        let parent = Parent {
            kind: Kind::Gateway.as_str(),
            namespace: self.gateway.namespace.to_string(),
            name: self.gateway.name.to_string(),
            section: self.parent.section_name.clone(),
        };
        let refused = route(&http_route_statuses(self.route), &[parent], 0);
        let accepted = refused.is_none_or(|refusal| refusal.reason == Reason::RouteRefsNotResolved);
        let here = self.gateway == *gateway && self.section == section;
        // What has no time yet is the youngest.
        let age = |metadata: &ObjectMeta| {
            let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created.is_none(), created)
        };
        accepted && here && other.is_none_or(|other| age(&self.route.metadata) <= age(other))
    }
}

/// The routes among these, each once.
pub(crate) fn names<'c, 'a: 'c>(contests: impl IntoIterator<Item = &'c Contest<'a>>) -> BTreeSet<String> {
    contests.into_iter().map(Contest::name).collect()
}
