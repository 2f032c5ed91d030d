//! What the former operator made for apps outside their namespaces: an entry of a shared Gateway for each, and a
//! Certificate beside it.

use std::collections::BTreeMap;

use gateway_api::gateways::GatewayListeners;
use gateway_api::httproutes::HttpRoute;
use portreeve_api::names::{self, labels, nebari_app as derived};
use portreeve_names::{HostPattern, Hostname};
use serde_json::{Value, json};

use super::App;
use crate::acknowledgement::{gateway_entry, listener};
use crate::body::GATEWAY_API_V1;
use crate::claim::GatewayName;
use crate::condition::Finding;
use crate::contest::is_solver;
use crate::object::{Key, Kind, Live};
use crate::output::Patch;
use crate::text::label_value;
use crate::view::View;

/// An app's entry of a Gateway.
#[derive(Clone, Debug)]
pub(crate) struct LegacyEntry<'a> {
    pub(crate) gateway: GatewayName,
    /// Its place in `spec.listeners`.
    place: usize,
    pub(crate) listener: &'a GatewayListeners,
}

/// The app's entry of one Gateway. Its name is that of other apps too (`a-b` in `c`, `a` in `b-c`); the namespace whose
/// routes it takes is not.
pub(crate) fn entry<'a>(view: &View<'a>, app: &App<'_>, gateway: &GatewayName) -> Option<LegacyEntry<'a>> {
    let name = derived::https_listener(app.name, app.namespace);
    let listeners = &view.gateway(gateway)?.object.spec.listeners;
    let (place, listener) = listeners.iter().enumerate().find(|(_, listener)| listener.name == name)?;
    takes_routes_of(listener, app.namespace).then(|| LegacyEntry { gateway: gateway.clone(), place, listener })
}

/// Whether the former operator made it for some app, as far as its name and the namespace whose routes it takes say.
pub(crate) fn is_legacy_entry(listener: &GatewayListeners) -> bool {
    let app = selected_namespace(listener).and_then(|namespace| listener.name.strip_suffix(namespace));
    app.is_some_and(|app| app.starts_with("tls-") && app.ends_with('-'))
}

/// The app's entries of all shared Gateways: it may have been on another than it names now.
pub(crate) fn entries<'a>(view: &View<'a>, app: &App<'_>) -> Vec<LegacyEntry<'a>> {
    let gateways = [names::INTERNAL_GATEWAY, names::PUBLIC_GATEWAY];
    let gateways = gateways.map(|gateway| GatewayName::new(names::GATEWAY_NAMESPACE, gateway));
    gateways.iter().filter_map(|gateway| entry(view, app, gateway)).collect()
}

/// The app's Certificate in the Gateways' namespace, if it is there and its labels name the app.
pub(crate) fn certificate(view: &View<'_>, app: &App<'_>) -> Option<Key> {
    let name = derived::certificate(app.name, app.namespace);
    let found = view.certificate(names::GATEWAY_NAMESPACE, &name)?;
    let labels = found.metadata.labels.as_ref()?;
    let says = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
    let is_of_app = says(labels::MANAGED_BY, labels::NEBARI_OPERATOR)
        && says(labels::NEBARI_APP_NAME, &label_value(app.name))
        && says(labels::NEBARI_APP_NAMESPACE, app.namespace);
    // In that namespace an app's own Certificate has the same labels, and the app for its controller.
    let is_own = app.namespace == names::GATEWAY_NAMESPACE;
    (is_of_app && !is_own).then(|| Key::new(Kind::Certificate, names::GATEWAY_NAMESPACE, name))
}

/// A route that only this entry serves under `hostname`, or any name without one: it would serve nobody once the entry is gone. cert-manager
/// makes its own anew; ours follow their app.
pub(crate) fn dependent_route<'a>(
    view: &View<'a>,
    app: &App<'_>,
    entry: &LegacyEntry<'_>,
    hostname: Option<&Hostname>,
) -> Option<&'a str> {
    let set = derived::listener_set(app.name);
    let routes = view.http_routes_in(app.namespace).iter();
    let is_ours = |route: &HttpRoute| Live::HttpRoute(route).maker().is(app.identity());
    let others = routes.filter(|route| !is_solver(&route.metadata) && !is_ours(route));
    let mut dependent = others.filter(|route| {
        let parents = || route.spec.parent_refs.iter().flatten();
        let on_entry = parents().any(|parent| {
            let namespace = parent.namespace.as_deref().unwrap_or(app.namespace);
            let section = parent.section_name.as_ref().is_none_or(|section| *section == entry.listener.name);
            parent.kind.as_deref().is_none_or(|kind| kind == Kind::Gateway.as_str())
                && namespace == &*entry.gateway.namespace
                && parent.name == *entry.gateway.name
                && section
        });
        let on_set = parents().any(|parent| {
            let here = parent.namespace.as_deref().is_none_or(|namespace| namespace == app.namespace);
            parent.kind.as_deref() == Some(Kind::ListenerSet.as_str()) && here && parent.name == set
        });
        on_entry && !on_set && hostname.is_none_or(|hostname| asks_for(route, hostname))
    });
    dependent.find_map(|route| route.metadata.name.as_deref())
}

/// Another listener of the Gateway with this port and host name, as messages name it: the gateway serves one of the two.
/// Neither the app's entry nor its ListenerSet is one. Where others have theirs is told only within one namespace.
pub(crate) fn rival(
    view: &View<'_>,
    app: &App<'_>,
    gateway: &GatewayName,
    port: i32,
    hostname: &Hostname,
) -> Option<String> {
    let is_rival = |its_port: i32, its_name: Option<&String>| its_port == port && is_name(its_name, hostname);
    let shared = view.gateway(gateway)?;
    let own = derived::https_listener(app.name, app.namespace);
    let mut entries = shared.object.spec.listeners.iter().filter(|listener| listener.name != own);
    if let Some(rival) = entries.find(|listener| is_rival(listener.port, listener.hostname.as_ref())) {
        return Some(format!("listener {} of Gateway {gateway}", rival.name));
    }
    let sets = view.world.listener_sets.iter().filter(|set| {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let parent = &set.spec.parent_ref;
        !Live::ListenerSet(set).maker().is(app.identity())
            && parent.name == *gateway.name
            && parent.namespace.as_deref().unwrap_or(namespace) == &*gateway.namespace
            && shared.admits_listener_sets_of(view, namespace)
    });
    let rivals = sets
        .filter(|set| set.spec.listeners.iter().any(|listener| is_rival(listener.port, listener.hostname.as_ref())));
    let rival = rivals.map(|set| (set.metadata.namespace.as_deref(), set.metadata.name.as_deref())).min()?;
    let name = rival.1.filter(|_| rival.0 == Some(app.namespace));
    Some(name.map_or("another ListenerSet".to_owned(), |name| format!("ListenerSet {name}")))
}

/// Takes entries out of their Gateways: one patch for each, the last entry first, so that no place changes meanwhile.
pub(crate) fn removal(entries: Vec<LegacyEntry<'_>>) -> Vec<Patch> {
    let mut by_gateway: BTreeMap<GatewayName, BTreeMap<usize, &GatewayListeners>> = BTreeMap::new();
    for entry in entries {
        by_gateway.entry(entry.gateway).or_default().insert(entry.place, entry.listener);
    }
    let patch = |(gateway, entries): (GatewayName, BTreeMap<usize, &GatewayListeners>)| Patch {
        object: Key::new(Kind::Gateway, &gateway.namespace, &*gateway.name).object_ref(GATEWAY_API_V1),
        operations: entries.into_iter().rev().flat_map(|(place, listener)| removal_of(place, listener)).collect(),
    };
    by_gateway.into_iter().map(patch).collect()
}

fn removal_of(place: usize, listener: &GatewayListeners) -> Vec<Value> {
    let path = format!("/spec/listeners/{place}");
    let test = |field: &str, value: &str| json!({ "op": "test", "path": format!("{path}/{field}"), "value": value });
    let hostname = listener.hostname.as_deref().map(|hostname| test("hostname", hostname));
    let tests = [test("name", &listener.name)].into_iter().chain(hostname);
    tests.chain([json!({ "op": "remove", "path": path })]).collect()
}

fn takes_routes_of(listener: &GatewayListeners, namespace: &str) -> bool {
    selected_namespace(listener) == Some(namespace)
}

/// The one namespace whose routes a listener takes, if it is selected by its name.
fn selected_namespace(listener: &GatewayListeners) -> Option<&str> {
    let namespaces = listener.allowed_routes.as_ref()?.namespaces.as_ref()?;
    let labels = namespaces.selector.as_ref()?.match_labels.as_ref()?;
    labels.get(labels::NAMESPACE_NAME).map(String::as_str)
}

fn is_name(text: Option<&String>, hostname: &Hostname) -> bool {
    text.and_then(|text| Hostname::parse(text).ok()).as_ref() == Some(hostname)
}

fn asks_for(route: &HttpRoute, hostname: &Hostname) -> bool {
    let wanted = HostPattern::Exact(hostname.clone());
    let hostnames = route.spec.hostnames.as_deref().unwrap_or_default();
    hostnames.is_empty() || hostnames.iter().any(|name| HostPattern::parse(name).is_ok_and(|name| name.covers(&wanted)))
}

impl LegacyEntry<'_> {
    /// Whether it serves this name.
    pub(crate) fn serves(&self, hostname: &Hostname) -> bool {
        is_name(self.listener.hostname.as_ref(), hostname)
    }

    /// Whether the gateway serves it, as far as it says.
    pub(crate) fn is_programmed(&self, view: &View<'_>) -> bool {
        self.broken(view).is_none()
    }

    /// What is wrong with it, or not known yet.
    pub(crate) fn broken(&self, view: &View<'_>) -> Option<Finding> {
        let section = &self.listener.name;
        // Nobody records when an entry of the Gateway changed, so whatever was said of it counts.
        listener(view.gateway(&self.gateway).and_then(|gateway| gateway_entry(gateway, section)), section, 0)
    }

    /// Whether no route depends on it.
    pub(crate) fn is_unused(&self, view: &View<'_>, app: &App<'_>) -> bool {
        let served = self.listener.hostname.as_deref().and_then(|served| Hostname::parse(served).ok());
        dependent_route(view, app, self, served.as_ref()).is_none()
    }
}
