//! Which kinds the API server has, and in which version they are watched.

use std::collections::BTreeMap;

use kube::CustomResource;
use portreeve_plan::{Served, TlsRouteVersion};
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::kind::{KINDS, Kind, KindName};

/// The part of a `CustomResourceDefinition` that says what is served. The schemas are megabytes and are not kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, CustomResource)]
#[kube(
    group = "apiextensions.k8s.io",
    version = "v1",
    kind = "CustomResourceDefinition",
    plural = "customresourcedefinitions",
    status = "DefinitionStatus",
    schema = "disabled"
)]
pub(crate) struct DefinitionSpec {
    versions: Vec<DefinedVersion>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct DefinedVersion {
    name: String,
    served: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct DefinitionStatus {
    #[serde(default)]
    conditions: Vec<DefinitionCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct DefinitionCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

/// What the operator was told to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    /// The version of TLSRoute to use where `v1` is not served; none: no TLSRoutes then.
    pub(crate) tls_routes: Option<TlsRouteVersion>,
    /// Whether tenants are served.
    pub(crate) tenants: bool,
    /// Whether apps move from the listeners of the former operator to their own.
    pub(crate) migration: bool,
}

/// What the definitions say is served, by the name of the definition.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    versions: BTreeMap<String, Vec<String>>,
}

impl Definitions {
    /// Takes in a definition as it is now; returns whether that changed anything.
    pub(crate) fn put(&mut self, definition: &CustomResourceDefinition) -> bool {
        let Some(name) = &definition.metadata.name else { return false };
        let is_read = |kind: &Kind| kind.custom && kind.definition() == *name;
        if !KINDS.iter().any(is_read) {
            return false;
        }
        let conditions = definition.status.iter().flat_map(|status| &status.conditions);
        // Before it is established its paths answer 404.
        let is_established =
            conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
        let served = definition.spec.versions.iter().filter(|version| version.served && is_established);
        let served: Vec<_> = served.map(|version| version.name.clone()).collect();
        self.versions.insert(name.clone(), served.clone()) != Some(served)
    }

    /// Takes in that a definition is gone.
    pub(crate) fn remove(&mut self, definition: &CustomResourceDefinition) -> bool {
        definition.metadata.name.as_ref().is_some_and(|name| self.versions.remove(name).is_some())
    }

    /// Forgets all but those that are `listed`.
    pub(crate) fn retain(&mut self, listed: impl Fn(&str) -> bool) {
        self.versions.retain(|name, _| listed(name));
    }

    /// Which kinds to watch, and in which version.
    pub(crate) fn wanted(&self, choices: Choices) -> BTreeMap<KindName, &'static str> {
        KINDS.iter().filter_map(|kind| Some((kind.name, self.version(kind, choices)?))).collect()
    }

    /// Whether a definition is there, in any version.
    pub(crate) fn serves(&self, definition: &str) -> bool {
        self.versions.get(definition).is_some_and(|versions| !versions.is_empty())
    }

    fn version(&self, kind: &Kind, choices: Choices) -> Option<&'static str> {
        match kind.name {
            _ if kind.of_tenants && !choices.tenants => return None,
            KindName::Deployment if !choices.migration => return None,
            _ => {}
        }
        if !kind.custom {
            return kind.versions.first().copied();
        }
        let served = self.versions.get(&kind.definition())?;
        let may_use = |version: &str| kind.name != KindName::TlsRoute || may_use_tls_routes(version, choices);
        kind.versions.iter().copied().find(|version| served.iter().any(|one| one == version) && may_use(version))
    }
}

/// `v1` always, an experimental version only when told so.
fn may_use_tls_routes(version: &str, choices: Choices) -> bool {
    version == "v1" || choices.tls_routes.is_some_and(|chosen| tls_route_version(version) == Some(chosen))
}

fn tls_route_version(version: &str) -> Option<TlsRouteVersion> {
    match version {
        "v1" => Some(TlsRouteVersion::V1),
        "v1alpha3" => Some(TlsRouteVersion::V1Alpha3),
        "v1alpha2" => Some(TlsRouteVersion::V1Alpha2),
        _ => None,
    }
}

/// What decisions are told of it.
pub(crate) fn served(cache: &Cache, definitions: &Definitions) -> Served {
    let is_watched = |kind| cache.store(kind).is_some();
    let tls_routes = cache.store(KindName::TlsRoute).and_then(|store| tls_route_version(store.version));
    Served {
        gateways: is_watched(KindName::Gateway),
        http_routes: is_watched(KindName::HttpRoute),
        reference_grants: is_watched(KindName::ReferenceGrant),
        security_policies: is_watched(KindName::SecurityPolicy),
        ingress_routes_tcp: is_watched(KindName::IngressRouteTcp),
        listener_sets: is_watched(KindName::ListenerSet),
        other_tls_routes: tls_routes.is_none() && definitions.serves(&Kind::of(KindName::TlsRoute).definition()),
        tls_routes,
        certificates: is_watched(KindName::Certificate),
        dns_endpoints: is_watched(KindName::DnsEndpoint),
        cluster_network_policies: is_watched(KindName::ClusterNetworkPolicy),
        admin_network_policies: is_watched(KindName::AdminNetworkPolicy),
        helm_releases: is_watched(KindName::HelmRelease),
        oci_repositories: is_watched(KindName::OciRepository),
        helm_repositories: is_watched(KindName::HelmRepository),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(name: &str, versions: &[(&str, bool)], established: &str) -> CustomResourceDefinition {
        let versions: Vec<_> =
            versions.iter().map(|(name, served)| json!({"name": name, "served": served, "schema": {}})).collect();
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name}, "spec": {"group": "x", "versions": versions},
            "status": {"conditions": [{"type": "Established", "status": established}]},
        });
        serde_json::from_value(object).unwrap()
    }

    const TLS_ROUTES: &str = "tlsroutes.gateway.networking.k8s.io";

    /// traps: 19
    #[test]
    fn tls_routes_are_v1_or_what_the_operator_was_told() {
        let mut definitions = Definitions::default();
        let version = |definitions: &Definitions, tls_routes| {
            definitions.wanted(Choices { tls_routes, ..Choices::default() }).get(&KindName::TlsRoute).copied()
        };
        assert_eq!(version(&definitions, None), None);
        assert!(definitions.put(&definition(TLS_ROUTES, &[("v1alpha2", true), ("v1alpha3", true)], "True")));
        assert_eq!(version(&definitions, None), None);
        assert_eq!(version(&definitions, Some(TlsRouteVersion::V1Alpha3)), Some("v1alpha3"));
        assert_eq!(version(&definitions, Some(TlsRouteVersion::V1Alpha2)), Some("v1alpha2"));
        let both = definition(TLS_ROUTES, &[("v1alpha3", true), ("v1", true)], "True");
        assert!(definitions.put(&both));
        assert_eq!(version(&definitions, Some(TlsRouteVersion::V1Alpha3)), Some("v1"));
        assert!(!definitions.put(&both), "nothing new");
        assert!(definitions.put(&definition(TLS_ROUTES, &[("v1", false)], "True")));
        assert_eq!(version(&definitions, None), None);
        assert!(definitions.remove(&both));
    }

    #[test]
    fn a_definition_counts_once_it_is_established() {
        let mut definitions = Definitions::default();
        let name = Kind::of(KindName::Gateway).definition();
        definitions.put(&definition(&name, &[("v1", true)], "False"));
        assert!(!definitions.wanted(Choices::default()).contains_key(&KindName::Gateway));
        definitions.put(&definition(&name, &[("v1", true)], "True"));
        assert_eq!(definitions.wanted(Choices::default()).get(&KindName::Gateway), Some(&"v1"));
        assert!(!definitions.put(&definition("others.example.com", &[("v1", true)], "True")));
    }

    #[test]
    fn tenants_are_watched_only_where_they_are_served() {
        let mut definitions = Definitions::default();
        definitions.put(&definition(&Kind::of(KindName::Tenant).definition(), &[("v1alpha1", true)], "True"));
        assert!(!definitions.wanted(Choices::default()).contains_key(&KindName::Tenant));
        let choices = Choices { tenants: true, ..Choices::default() };
        assert!(definitions.wanted(choices).contains_key(&KindName::Tenant));
        assert!(definitions.wanted(choices).contains_key(&KindName::HelmRecord));
        assert!(!definitions.wanted(Choices::default()).contains_key(&KindName::HelmRecord));
        assert!(definitions.wanted(choices).contains_key(&KindName::Namespace));
    }

    #[test]
    fn the_version_of_envoy_gateway_is_asked_for_only_where_apps_move() {
        let is_wanted = |migration| {
            let choices = Choices { migration, ..Choices::default() };
            Definitions::default().wanted(choices).contains_key(&KindName::Deployment)
        };
        assert!(is_wanted(true) && !is_wanted(false));
    }
}
