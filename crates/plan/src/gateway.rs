//! A shared Gateway, as far as planning asks about it.

use std::collections::BTreeMap;

use gateway_api::gateways::{
    Gateway, GatewayAllowedListenersNamespacesFrom as AllowedFrom,
    GatewayAllowedListenersNamespacesSelector as Selector, GatewayListeners,
};
use k8s_openapi::api::core::v1::Service;
use portreeve_api::names::{self, labels};
use serde_json::{Value, json};

use crate::claim::GatewayName;
use crate::selector::{Requirement, selects};
use crate::view::{View, name_of};
use crate::world::DataPlane;

/// The port of an HTTPS listener where the Gateway has none of its own.
pub(crate) const HTTPS_PORT: u16 = 443;

/// The port of the plain HTTP listener where the Gateway has none.
pub(crate) const HTTP_PORT: u16 = 80;

/// A Gateway that exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedGateway<'a> {
    pub(crate) object: &'a Gateway,
}

impl<'a> SharedGateway<'a> {
    /// The listener with this name.
    pub(crate) fn section(self, name: &str) -> Option<&'a GatewayListeners> {
        self.object.spec.listeners.iter().find(|listener| listener.name == name)
    }

    /// The port of the Gateway's own HTTPS listener: the one called `https`, else the first.
    pub(crate) fn https_port(self) -> Option<u16> {
        let https = || self.object.spec.listeners.iter().filter(|listener| listener.protocol == "HTTPS");
        let listener = https().find(|listener| listener.name == names::HTTPS_LISTENER).or_else(|| https().next())?;
        u16::try_from(listener.port).ok()
    }

    /// Whether one of its own listeners serves HTTP or HTTPS on this port.
    pub(crate) fn serves_http_on(self, port: u16) -> bool {
        self.object
            .spec
            .listeners
            .iter()
            .any(|listener| listener.port == i32::from(port) && matches!(listener.protocol.as_str(), "HTTP" | "HTTPS"))
    }

    /// Whether it takes in the ListenerSets of a namespace (`spec.allowedListeners`, default none).
    pub(crate) fn admits_listener_sets_of(self, view: &View<'_>, namespace: &str) -> bool {
        let allowed = self.object.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        let Some(allowed) = allowed else { return false };
        match &allowed.from {
            Some(AllowedFrom::All) => true,
            Some(AllowedFrom::Same) => self.object.metadata.namespace.as_deref() == Some(namespace),
            Some(AllowedFrom::Selector) => allowed.selector.as_ref().is_some_and(|selector| {
                let label = |key: &str| view.namespace_label(namespace, key);
                selects(selector.match_labels.as_ref(), requirements(selector), label)
            }),
            Some(AllowedFrom::None) | None => false,
        }
    }

    /// Whether it takes in the ListenerSets of any namespace at all, as far as can be said before there is one.
    pub(crate) fn admits_any_listener_sets(self) -> bool {
        let allowed = self.object.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        allowed.is_some_and(|allowed| matches!(allowed.from, Some(AllowedFrom::All | AllowedFrom::Selector)))
    }

    /// Where clients reach it, as its controller says.
    pub(crate) fn addresses(self) -> Vec<String> {
        let addresses = self.object.status.as_ref().and_then(|status| status.addresses.as_ref());
        addresses.into_iter().flatten().map(|address| address.value.clone()).collect()
    }

    /// Where pods reach it: the Service of its data plane, else its first address.
    pub(crate) fn in_cluster_address(self, view: &View<'_>) -> Option<String> {
        let (namespace, name) = name_of(self.object);
        let service = view.data_plane(namespace, name);
        let host = service.map(|(namespace, name)| format!("{name}.{namespace}.svc.cluster.local"));
        host.or_else(|| self.addresses().into_iter().next())
    }
}

/// The Gateways whose data plane a Service is, by namespace and name.
///
/// The Service says so with the labels that Envoy Gateway gives it, or with those of GEP-1762 for a Gateway of its own
/// namespace.
pub(crate) fn gateways_behind(service: &Service) -> impl Iterator<Item = (&str, &str)> {
    let label = |key: &str| service.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let envoy =
        label("gateway.envoyproxy.io/owning-gateway-namespace").zip(label("gateway.envoyproxy.io/owning-gateway-name"));
    let of_gep = service.metadata.namespace.as_deref().zip(label("gateway.networking.k8s.io/gateway-name"));
    envoy.into_iter().chain(of_gep)
}

impl DataPlane {
    /// The pods of a Gateway, as a peer of a NetworkPolicy. Namespace and labels are in one peer: some network plugins
    /// ignore a peer that names a namespace only.
    pub(crate) fn pods_of(&self, gateway: &GatewayName) -> Value {
        let namespace = self.namespace.as_deref().unwrap_or(&gateway.namespace);
        let fill = |value: &String| value.replace("{name}", &gateway.name).replace("{namespace}", &gateway.namespace);
        let labels: BTreeMap<&String, String> = self.labels.iter().map(|(key, value)| (key, fill(value))).collect();
        json!({
            "namespaceSelector": { "matchLabels": { labels::NAMESPACE_NAME: namespace } },
            "podSelector": { "matchLabels": labels },
        })
    }
}

impl GatewayName {
    /// The Gateway that an app names.
    pub(crate) fn of_app(choice: portreeve_api::nebari_app::GatewayChoice) -> Self {
        Self::new(names::GATEWAY_NAMESPACE, choice.gateway_name())
    }
}

fn requirements(selector: &Selector) -> impl Iterator<Item = Requirement<'_>> {
    let all = selector.match_expressions.iter().flatten();
    all.map(|one| (one.key.as_str(), one.operator.as_str(), one.values.as_deref().unwrap_or_default()))
}
