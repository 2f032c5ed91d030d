//! Whether the shared Gateways keep tenants apart. The platform makes them, so they are checked, not trusted.

use gateway_api::gateways::{GatewayListeners, GatewayListenersTlsMode};
use gateway_api::listenersets::ListenerSet;
use portreeve_api::LabelSelector;
use portreeve_api::names::{labels, tenant as derived};
use portreeve_names::{HostPattern, Hostname};
use serde::{Deserialize, Serialize};

use super::Tenant;
use crate::claim::GatewayName;
use crate::gateway::SharedGateway;
use crate::selector::matches;
use crate::tenancy::TenantApi;
use crate::view::{View, name_of};

/// A tenant's namespace, as it is or is going to be.
pub(super) struct Home<'t> {
    tenant: &'t str,
    namespace: &'t str,
}

/// Of which namespaces a listener takes routes (`allowedRoutes.namespaces`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Admission {
    /// Absent: of its object's own.
    from: Option<String>,
    selector: Option<LabelSelector>,
}

/// Why the apps Gateway does not keep these tenants apart: which listener admits their routes, and how to mend it.
/// Tenants' own entries are left out: they admit one tenant's namespace each.
pub(super) fn apps_fault(view: &View<'_>, gateway: SharedGateway<'_>, homes: &[Home<'_>]) -> Option<String> {
    let (namespace, _) = name_of(gateway.object);
    if homes.iter().any(|home| gateway.admits_listener_sets_of(view, home.namespace)) {
        return Some(
            "spec.allowedListeners.namespaces admits ListenerSets of tenants' namespaces: select others only"
                .to_owned(),
        );
    }
    let is_own =
        |listener: &GatewayListeners| homes.iter().any(|home| listener.name == derived::apps_listener(home.tenant));
    let others = gateway.object.spec.listeners.iter().filter(|listener| !is_own(listener));
    let own = others.map(|listener| {
        let field = format!("spec.listeners[{}].allowedRoutes.namespaces", listener.name);
        (Admission::of(listener.allowed_routes.as_ref()), namespace, field)
    });
    let of_sets = admitted_sets(view, gateway).into_iter().flat_map(|set| {
        let (home, name) = name_of(set);
        set.spec.listeners.iter().map(move |listener| {
            let field =
                format!("ListenerSet {home}/{name}: spec.listeners[{}].allowedRoutes.namespaces", listener.name);
            (Admission::of(listener.allowed_routes.as_ref()), home, field)
        })
    });
    let (_, _, field) = own.chain(of_sets).find(|(admission, here, _)| admission.is_open_to(view, here, homes))?;
    Some(format!("{field} admits routes of tenants: set from to Same, or select namespaces that are no tenant's"))
}

/// Why the API Gateway does not keep a tenant apart: what is wrong with the listener that is to pass its name through,
/// or which other one lets somebody else have the name.
pub(super) fn api_fault(
    view: &View<'_>,
    gateway: SharedGateway<'_>,
    api: &TenantApi,
    host: &Hostname,
) -> Option<String> {
    let chosen = |listener: &&GatewayListeners| match &api.section {
        Some(section) => *section == listener.name,
        None => listener.protocol == "TLS",
    };
    let listeners = || gateway.object.spec.listeners.iter();
    let mut found = listeners().filter(chosen).peekable();
    if found.peek().is_none() {
        let what = api.section.as_deref().unwrap_or("for TLS passthrough");
        return Some(format!("there is no listener {what}"));
    }
    let fault = found.find_map(|listener| passthrough_fault(listener, host));
    let (namespace, _) = name_of(gateway.object);
    let opens = |admission: &Admission, here: &str, hostname: Option<&str>| {
        let covers = HostPattern::parse_optional(hostname).is_ok_and(|hosts| hosts.matches(host));
        covers && !admission.is_of_one(here, namespace)
    };
    let other = || {
        let other = listeners().filter(|listener| !chosen(listener)).find(|listener| {
            opens(&Admission::of(listener.allowed_routes.as_ref()), namespace, listener.hostname.as_deref())
        })?;
        Some(format!(
            "listener {} takes the name too and admits routes of other namespaces: set allowedRoutes.namespaces.from to \
             Same",
            other.name
        ))
    };
    let in_set = || {
        admitted_sets(view, gateway).into_iter().find_map(|set| {
            let (home, name) = name_of(set);
            let listener = set.spec.listeners.iter().find(|listener| {
                opens(&Admission::of(listener.allowed_routes.as_ref()), home, listener.hostname.as_deref())
            })?;
            Some(format!(
                "listener {} of ListenerSet {home}/{name} takes the name too: let spec.allowedListeners not admit it",
                listener.name
            ))
        })
    };
    fault.or_else(other).or_else(in_set)
}

fn passthrough_fault(listener: &GatewayListeners, hostname: &Hostname) -> Option<String> {
    let name = &listener.name;
    let passthrough =
        listener.tls.as_ref().and_then(|tls| tls.mode.as_ref()) == Some(&GatewayListenersTlsMode::Passthrough);
    if listener.protocol != "TLS" || !passthrough {
        return Some(format!("listener {name} must have protocol TLS and tls.mode Passthrough"));
    }
    if !matches!(Admission::of(listener.allowed_routes.as_ref()).from.as_deref(), None | Some("Same")) {
        return Some(format!(
            "listener {name} admits routes of other namespaces: set allowedRoutes.namespaces.from to Same"
        ));
    }
    let hosts = HostPattern::parse_optional(listener.hostname.as_deref()).ok();
    let covered = hosts.is_some_and(|hosts| hosts.matches(hostname));
    (!covered).then(|| format!("the hostname of listener {name} does not cover {hostname}"))
}

/// The ListenerSets that a Gateway takes in, by name, but for tenants' own.
fn admitted_sets<'a>(view: &View<'a>, gateway: SharedGateway<'_>) -> Vec<&'a ListenerSet> {
    let (namespace, name) = name_of(gateway.object);
    let sets = view.world.listener_sets.iter().map(|set| &**set).filter(|set| {
        let parent = &set.spec.parent_ref;
        let home = name_of(*set).0;
        parent.name == name
            && parent.namespace.as_deref().unwrap_or(home) == namespace
            && !is_of_tenant(set)
            && gateway.admits_listener_sets_of(view, home)
    });
    let mut sets: Vec<&ListenerSet> = sets.collect();
    sets.sort_by_key(|set| name_of(*set));
    sets
}

fn is_of_tenant(set: &ListenerSet) -> bool {
    use crate::claim::OwnerKind;
    use crate::object::{Live, Maker};
    matches!(Live::ListenerSet(set).maker(), Maker::Uid(OwnerKind::Tenant, _))
}

impl<'t> Home<'t> {
    pub(super) fn of(tenant: &'t Tenant<'_>) -> Self {
        Self { tenant: tenant.name, namespace: &tenant.namespace }
    }

    fn label<'l>(&'l self, view: &'l View<'_>, key: &str) -> Option<&'l str> {
        match key {
            labels::TENANT => Some(self.tenant),
            labels::MANAGED_BY => Some(labels::KUBESPACES_OPERATOR),
            _ => view.namespace_label(self.namespace, key),
        }
    }
}

impl Admission {
    fn of<T: Serialize>(allowed_routes: Option<&T>) -> Self {
        let value = allowed_routes.and_then(|allowed| serde_json::to_value(allowed).ok()).unwrap_or_default();
        serde_json::from_value(value["namespaces"].clone()).unwrap_or_default()
    }

    /// Whether it admits any of these namespaces, or all. `here` is that of the listener's object.
    fn is_open_to(&self, view: &View<'_>, here: &str, homes: &[Home<'_>]) -> bool {
        match self.from.as_deref() {
            Some("All") => true,
            Some("Selector") => self
                .selector
                .as_ref()
                .is_some_and(|selector| homes.iter().any(|home| matches(Some(selector), |key| home.label(view, key)))),
            Some("None") => false,
            _ => homes.iter().any(|home| home.namespace == here),
        }
    }

    /// Whether it admits none but this namespace.
    fn is_of_one(&self, here: &str, namespace: &str) -> bool {
        match self.from.as_deref() {
            Some("None") => true,
            None | Some("Same") => here == namespace,
            Some(_) => false,
        }
    }
}

/// What messages say of a Gateway's fault.
pub(super) fn say(gateway: &GatewayName, fault: &str) -> String {
    format!("Gateway {gateway}: {fault}")
}
