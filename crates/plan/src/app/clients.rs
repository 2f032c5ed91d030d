//! `clients`: NetworkPolicies that let pods reach the Gateway, and the Gateway reach the app's backends.
//!
//! A policy isolates the pods that it selects, so one that would select a pod which nobody has isolated would cut it
//! off. Ours select only what another policy selects too.

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::core::v1::Service;
use portreeve_api::LabelSelector;
use portreeve_api::names::{labels, nebari_app as derived};
use portreeve_api::nebari_app::TcpClient;
use serde_json::{Value, json};

use super::import::Imports;
use super::lower::EntryListener;
use super::render::Rendering;
use super::{Entry, Rendered};
use crate::body::{self, Metadata, NETWORK_POLICY_V1, Traffic};
use crate::condition::{Finding, Reason};
use crate::object::{Key, Kind, Live};
use crate::selector::{both, matches, mistake};
use crate::text::{label_value, list};
use crate::view::View;

/// What became of the clients of an entry.
#[derive(Default)]
pub(crate) struct Clients {
    /// The policies that are wanted, by name.
    policies: BTreeSet<String>,
    /// Namespaces whose pods would need a policy, but which have not opted in.
    not_opted_in: BTreeSet<String>,
    mistake: Option<String>,
}

/// Pods that are isolated, by the text of their selector.
type Pods = BTreeMap<String, LabelSelector>;

/// Ports of pods, as a NetworkPolicy says them, by their text.
type Ports = BTreeMap<String, Value>;

/// The pods of the app that the Gateway must be let in to, and at which ports.
pub(super) type Backends = BTreeMap<String, (LabelSelector, Ports)>;

impl Clients {
    /// `ClientsReady`
    pub(super) fn finding(&self, rendered: &Rendered) -> Finding {
        if let Some(mistake) = &self.mistake {
            return Reason::InvalidSpec.because(format!("clients: {mistake}"));
        }
        if let Some(foreign) = self.policies.iter().find_map(|name| rendered.blocked(Kind::NetworkPolicy, name)) {
            return foreign;
        }
        if !self.not_opted_in.is_empty() {
            return Reason::ClientNamespaceNotOptedIn.because(format!(
                "NetworkPolicies keep clients from the Gateway in namespaces without the label nebari.dev/managed=true, \
                 where Portreeve makes no policy: {}",
                list(&self.not_opted_in)
            ));
        }
        if self.policies.is_empty() {
            return Reason::NotNeeded.because("no NetworkPolicy is in the way of the clients");
        }
        Reason::ClientsAllowed.because("NetworkPolicies let the clients reach the Gateway")
    }
}

impl Rendering<'_, '_, '_> {
    /// Lets the clients of an entry out to the Gateway, and the Gateway in to what the entry leads to.
    pub(super) fn clients(
        &mut self,
        entry: &Entry<'_>,
        granted: &[&EntryListener],
        imports: Option<&Imports>,
        backends: &mut Backends,
    ) -> Clients {
        if let Some(mistake) = entry.clients.iter().find_map(mistake_of) {
            return Clients { mistake: Some(mistake), ..Clients::default() };
        }
        let mut made = self.let_clients_out(entry);
        let own =
            entry.service.filter(|service| service.namespace.as_deref().is_none_or(|one| one == self.app.namespace));
        let own = own.map(|service| (service.name.clone(), service.port));
        let imported = imports.into_iter().flat_map(|imports| imports.backends.iter().cloned());
        for service in self.backends_of_app_routes(granted).into_iter().chain(imported).chain(own) {
            made.policies.extend(self.let_gateway_in(&service, backends));
        }
        made
    }

    /// At the port that the listener has in the pods of the Gateway.
    fn let_clients_out(&mut self, entry: &Entry<'_>) -> Clients {
        let mut made = Clients::default();
        for (namespace, pods) in isolated(self.view, entry.clients) {
            if !self.view.is_opted_in(namespace) {
                made.not_opted_in.insert(namespace.to_owned());
                continue;
            }
            for (text, selector) in pods {
                let name = derived::client_policy(self.app.namespace, self.app.name, entry.name, &text);
                let key = Key::new(Kind::NetworkPolicy, namespace, name.as_str());
                let ports = [self.pod_port(entry.port)];
                let spec = body::network_policy(&selector, &Traffic::Egress, &self.gateway_pods(), &ports);
                made.policies.insert(name);
                self.add_elsewhere(key, NETWORK_POLICY_V1, spec);
            }
        }
        made
    }

    /// Notes which pods of a Service the Gateway must be let in to.
    fn let_gateway_in(&self, (service, port): &(String, u16), backends: &mut Backends) -> BTreeSet<String> {
        let Some((pods, port)) = self.view.service(self.app.namespace, service).and_then(|found| target(found, *port))
        else {
            return BTreeSet::new();
        };
        let isolated = self.view.isolation.ingress(self.app.namespace).iter().filter_map(|other| both(&pods, other));
        let mut names = BTreeSet::new();
        for selector in isolated {
            let text = json!(selector).to_string();
            names.insert(derived::backend_policy(self.app.name, &text));
            backends.entry(text).or_insert_with(|| (selector, Ports::new())).1.insert(port.to_string(), port.clone());
        }
        names
    }

    /// The policies for what [`Self::let_gateway_in`] has noted.
    pub(super) fn backend_policies(&mut self, backends: Backends) {
        for (text, (selector, ports)) in backends {
            let name = derived::backend_policy(self.app.name, &text);
            let key = Key::new(Kind::NetworkPolicy, self.app.namespace, name);
            let ports: Vec<Value> = ports.into_values().collect();
            let spec = body::network_policy(&selector, &Traffic::Ingress, &self.gateway_pods(), &ports);
            let labels = labels::of_app_elsewhere(&label_value(self.app.name), self.app.namespace);
            let metadata = Metadata { labels, owner: Some(self.app.identity()), ..Metadata::default() };
            self.add(key.clone(), body::object(&key, NETWORK_POLICY_V1, metadata, spec));
        }
    }

    /// The Services of the app's namespace to which its own TLSRoutes lead from these listeners of its ListenerSet.
    fn backends_of_app_routes(&self, listeners: &[&EntryListener]) -> BTreeSet<(String, u16)> {
        let set = Key::new(Kind::ListenerSet, self.app.namespace, derived::listener_set(self.app.name));
        let own = self.view.tls_routes_in(self.app.namespace).iter().filter(|route| !Live::TlsRoute(route).is_made());
        let attached = own.filter(|route| listeners.iter().any(|listener| is_attached(route, &set, &listener.name)));
        let backends = attached.flat_map(|route| &route.spec.rules).flat_map(|rule| &rule.backend_refs);
        let here = backends.filter(|backend| {
            backend.kind.as_deref().is_none_or(|kind| kind == "Service")
                && backend.namespace.as_deref().is_none_or(|namespace| namespace == self.app.namespace)
        });
        here.filter_map(|backend| Some((backend.name.clone(), u16::try_from(backend.port?).ok()?))).collect()
    }

    fn gateway_pods(&self) -> Value {
        self.view.world.config.data_plane.pods_of(&self.app.gateway)
    }

    fn pod_port(&self, port: u16) -> Value {
        let low = port < FIRST_FREE_PORT;
        let offset = if low { self.view.world.config.data_plane.low_port_offset } else { 0 };
        port.saturating_add(offset).into()
    }
}

/// Ports below need a privilege.
const FIRST_FREE_PORT: u16 = 1024;

fn mistake_of(client: &TcpClient) -> Option<String> {
    [&client.namespace_selector, &client.pod_selector].into_iter().flatten().find_map(mistake)
}

/// The clients that are isolated for what they send, by namespace.
fn isolated<'v>(view: &'v View<'_>, clients: &[TcpClient]) -> BTreeMap<&'v str, Pods> {
    let mut found: BTreeMap<&str, Pods> = BTreeMap::new();
    for (namespace, isolated) in view.isolation.egress() {
        if !view.is_lasting(namespace) {
            continue;
        }
        let label = |key: &str| view.namespace_label(namespace, key);
        for client in clients.iter().filter(|client| matches(client.namespace_selector.as_ref(), label)) {
            let pods = client.pod_selector.clone().unwrap_or_default();
            for selector in isolated.iter().filter_map(|other| both(&pods, other)) {
                found.entry(namespace).or_default().insert(json!(selector).to_string(), selector);
            }
        }
    }
    found
}

/// The pods behind a port of a Service, and the port that they have; `None` for a Service without a selector, since
/// nobody knows its pods.
fn target(service: &Service, port: u16) -> Option<(LabelSelector, Value)> {
    let spec = service.spec.as_ref()?;
    let labels = spec.selector.clone().filter(|labels| !labels.is_empty())?;
    let found = spec.ports.iter().flatten().find(|one| one.port == i32::from(port))?;
    let target = found.target_port.as_ref().map_or_else(|| port.into(), |target| json!(target));
    Some((LabelSelector { match_labels: Some(labels), match_expressions: None }, target))
}

/// Whether a route names a listener of a ListenerSet, or all of them.
pub(super) fn is_attached(route: &TlsRoute, set: &Key, section: &str) -> bool {
    route.spec.parent_refs.iter().flatten().any(|parent| {
        parent.kind.as_deref() == Some(set.kind.as_str())
            && parent.group.as_deref().is_none_or(|group| group == portreeve_api::names::GATEWAY_API_GROUP)
            && parent.namespace.as_deref().is_none_or(|namespace| namespace == set.namespace)
            && parent.name == set.name
            && parent.section_name.as_ref().is_none_or(|name| name == section)
    })
}
