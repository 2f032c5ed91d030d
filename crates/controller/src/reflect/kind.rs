//! The kinds that decisions read, and what the controller does with each.

use std::sync::Arc;

use gateway_api::gateways::Gateway;
use gateway_api::httproutes::HttpRoute;
use gateway_api::listenersets::ListenerSet;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, ResourceQuota, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use portreeve_api::names::GATEWAY_API_GROUP;
use portreeve_api::{
    AdminNetworkPolicy, Certificate, ClusterIssuer, ClusterNetworkPolicy, DnsEndpoint, HelmRelease, HelmRepository,
    IngressRouteTcp, NebariApp, OciRepository, SecurityPolicy, Tenant,
};
use portreeve_plan::World;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Defines [`KindName`] and [`Typed`] from one list: the kind's name, its type, and where its objects stand in a
/// [`World`].
macro_rules! kinds {
    ($($name:ident($type:ty) => $list:ident),+ $(,)?) => {
        /// A kind that decisions read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "each variant is named after its kind")]
        pub enum KindName { $($name),+ }

        /// An object of such a kind, parsed.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum Typed { $($name(Arc<$type>)),+ }

        impl Typed {
            pub(crate) fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$name(object) => &object.metadata),+ }
            }

            /// Adds the object to the list of its kind.
            pub(crate) fn put_into(&self, world: &mut World) {
                match self { $(Self::$name(object) => world.$list.push(object.clone())),+ }
            }

            /// Reads an object that has no `metadata` of its own.
            pub(crate) fn parse(kind: KindName, value: Value, metadata: ObjectMeta) -> Result<Self, serde_json::Error> {
                match kind {
                    $(KindName::$name => {
                        let mut object: $type = parse(value)?;
                        object.metadata = metadata;
                        Ok(Self::$name(Arc::new(object)))
                    })+
                }
            }
        }
    };
}

kinds! {
    NebariApp(NebariApp) => apps,
    Tenant(Tenant) => tenants,
    Namespace(Namespace) => namespaces,
    Service(Service) => services,
    EndpointSlice(EndpointSlice) => endpoint_slices,
    Secret(Secret) => secrets,
    Gateway(Gateway) => gateways,
    ListenerSet(ListenerSet) => listener_sets,
    HttpRoute(HttpRoute) => http_routes,
    TlsRoute(TlsRoute) => tls_routes,
    ReferenceGrant(ReferenceGrant) => reference_grants,
    Certificate(Certificate) => certificates,
    ClusterIssuer(ClusterIssuer) => cluster_issuers,
    SecurityPolicy(SecurityPolicy) => security_policies,
    NetworkPolicy(NetworkPolicy) => network_policies,
    IngressRouteTcp(IngressRouteTcp) => ingress_routes_tcp,
    Deployment(Deployment) => envoy_gateways,
    TenantDeployment(Deployment) => deployments,
    StatefulSet(StatefulSet) => stateful_sets,
    ResourceQuota(ResourceQuota) => resource_quotas,
    LimitRange(LimitRange) => limit_ranges,
    ConfigMap(ConfigMap) => config_maps,
    HelmRecord(Secret) => helm_releases,
    HelmRelease(HelmRelease) => helm_releases_flux,
    OciRepository(OciRepository) => oci_repositories,
    HelmRepository(HelmRepository) => helm_repositories,
    DnsEndpoint(DnsEndpoint) => dns_endpoints,
    ClusterNetworkPolicy(ClusterNetworkPolicy) => cluster_network_policies,
    AdminNetworkPolicy(AdminNetworkPolicy) => admin_network_policies,
    Role(Role) => roles,
    RoleBinding(RoleBinding) => role_bindings,
}

/// One kind.
#[derive(Debug)]
pub struct Kind {
    /// Its name in code.
    pub name: KindName,
    /// Its API group; empty for the core group.
    pub group: &'static str,
    /// As in `kind`.
    pub kind: &'static str,
    /// As in paths.
    pub plural: &'static str,
    /// The versions that are read, the best first. All have the shape of the first, as which they are parsed.
    pub versions: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether the API server has it only where a `CustomResourceDefinition` says so.
    pub custom: bool,
    /// Whether it is read only where tenants are served.
    pub of_tenants: bool,
    /// Whether only the metadata of its objects is read.
    pub metadata_only: bool,
    /// Which of its objects are watched, by their fields; `None` for all.
    pub fields: Option<&'static str>,
    /// Which of its objects are watched, by their labels; `None` for all.
    pub labels: Option<&'static str>,
    /// What else than to list and watch is done with its objects.
    pub verbs: &'static [&'static str],
    /// What is done with parts of them.
    pub subresources: &'static [(&'static str, &'static [&'static str])],
}

/// Server-side apply needs `create` where it makes an object.
const APPLY_AND_DELETE: &[&str] = &["create", "patch", "delete"];
const STATUS: (&str, &[&str]) = ("status", &["patch"]);
/// To be named as a controller by objects that block its deletion, where the API server asks for it
/// (admission plugin `OwnerReferencesPermissionEnforcement`).
const FINALIZERS: (&str, &[&str]) = ("finalizers", &["update"]);

const RBAC: &str = "rbac.authorization.k8s.io";
const OWNER: Kind = Kind { custom: true, verbs: &["patch"], subresources: &[STATUS, FINALIZERS], ..BUILT_IN };
const OF_TENANTS: Kind = Kind { of_tenants: true, ..BUILT_IN };
/// What is made for tenants, by the label that it has.
const MADE: Kind = Kind { labels: Some(MADE_FOR_TENANTS), verbs: APPLY_AND_DELETE, ..OF_TENANTS };
const MADE_FOR_TENANTS: &str = "app.kubernetes.io/managed-by in (kubespaces-operator,portreeve)";
const FLUX: Kind = Kind { custom: true, verbs: APPLY_AND_DELETE, ..OF_TENANTS };
const GATEWAY_API: Kind = Kind { group: GATEWAY_API_GROUP, custom: true, ..BUILT_IN };
const BUILT_IN: Kind = Kind {
    name: KindName::Namespace,
    group: "",
    kind: "",
    plural: "",
    versions: &["v1"],
    namespaced: true,
    custom: false,
    of_tenants: false,
    metadata_only: false,
    fields: None,
    labels: None,
    verbs: &[],
    subresources: &[],
};

/// Every kind, in the order of [`KindName`].
pub static KINDS: [Kind; 31] = [
    Kind {
        name: KindName::NebariApp,
        group: "reconcilers.nebari.dev",
        kind: "NebariApp",
        plural: "nebariapps",
        ..OWNER
    },
    Kind {
        name: KindName::Tenant,
        group: "kubespaces.io",
        kind: "Tenant",
        plural: "tenants",
        versions: &["v1alpha1"],
        namespaced: false,
        of_tenants: true,
        ..OWNER
    },
    Kind { name: KindName::Namespace, kind: "Namespace", plural: "namespaces", namespaced: false, ..BUILT_IN },
    Kind { name: KindName::Service, kind: "Service", plural: "services", ..BUILT_IN },
    Kind {
        name: KindName::EndpointSlice,
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        ..BUILT_IN
    },
    Kind {
        name: KindName::Secret,
        kind: "Secret",
        plural: "secrets",
        fields: Some("type=kubernetes.io/tls"),
        // Those of apps' clients are written, and so is the copy of a certificate; the one of Keycloak's administrator is
        // read. Whoever lets an app read its Secret must be able to read it.
        verbs: &["create", "get", "patch"],
        ..BUILT_IN
    },
    Kind { name: KindName::Gateway, kind: "Gateway", plural: "gateways", ..GATEWAY_API },
    Kind {
        name: KindName::ListenerSet,
        kind: "ListenerSet",
        plural: "listenersets",
        verbs: APPLY_AND_DELETE,
        ..GATEWAY_API
    },
    Kind { name: KindName::HttpRoute, kind: "HTTPRoute", plural: "httproutes", verbs: APPLY_AND_DELETE, ..GATEWAY_API },
    Kind {
        name: KindName::TlsRoute,
        kind: "TLSRoute",
        plural: "tlsroutes",
        versions: &["v1", "v1alpha3", "v1alpha2"],
        verbs: APPLY_AND_DELETE,
        ..GATEWAY_API
    },
    Kind {
        name: KindName::ReferenceGrant,
        kind: "ReferenceGrant",
        plural: "referencegrants",
        verbs: APPLY_AND_DELETE,
        ..GATEWAY_API
    },
    Kind {
        name: KindName::Certificate,
        group: "cert-manager.io",
        kind: "Certificate",
        plural: "certificates",
        custom: true,
        verbs: APPLY_AND_DELETE,
        ..BUILT_IN
    },
    Kind {
        name: KindName::ClusterIssuer,
        group: "cert-manager.io",
        kind: "ClusterIssuer",
        plural: "clusterissuers",
        namespaced: false,
        custom: true,
        ..BUILT_IN
    },
    Kind {
        name: KindName::SecurityPolicy,
        group: "gateway.envoyproxy.io",
        kind: "SecurityPolicy",
        plural: "securitypolicies",
        versions: &["v1alpha1"],
        custom: true,
        verbs: APPLY_AND_DELETE,
        ..BUILT_IN
    },
    Kind {
        name: KindName::NetworkPolicy,
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        verbs: APPLY_AND_DELETE,
        ..BUILT_IN
    },
    Kind {
        name: KindName::IngressRouteTcp,
        group: "traefik.io",
        kind: "IngressRouteTCP",
        plural: "ingressroutetcps",
        versions: &["v1alpha1"],
        custom: true,
        ..BUILT_IN
    },
    // Those of Envoy Gateway, for its version. They are read only while apps move from the former operator's listeners.
    Kind {
        name: KindName::Deployment,
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        labels: Some("control-plane=envoy-gateway"),
        ..BUILT_IN
    },
    // Virtual clusters that are no StatefulSets.
    Kind {
        name: KindName::TenantDeployment,
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        labels: Some("control-plane!=envoy-gateway"),
        ..OF_TENANTS
    },
    Kind { name: KindName::StatefulSet, group: "apps", kind: "StatefulSet", plural: "statefulsets", ..OF_TENANTS },
    Kind { name: KindName::ResourceQuota, kind: "ResourceQuota", plural: "resourcequotas", ..MADE },
    Kind { name: KindName::LimitRange, kind: "LimitRange", plural: "limitranges", ..MADE },
    Kind { name: KindName::ConfigMap, kind: "ConfigMap", plural: "configmaps", ..MADE },
    // What the Helm client notes of its releases. Their charts and values are in the data, which is not read.
    Kind {
        name: KindName::HelmRecord,
        kind: "Secret",
        plural: "secrets",
        metadata_only: true,
        fields: Some("type=helm.sh/release.v1"),
        labels: Some("owner=helm"),
        ..OF_TENANTS
    },
    Kind {
        name: KindName::HelmRelease,
        group: "helm.toolkit.fluxcd.io",
        kind: "HelmRelease",
        plural: "helmreleases",
        versions: &["v2"],
        ..FLUX
    },
    Kind {
        name: KindName::OciRepository,
        group: "source.toolkit.fluxcd.io",
        kind: "OCIRepository",
        plural: "ocirepositories",
        ..FLUX
    },
    Kind {
        name: KindName::HelmRepository,
        group: "source.toolkit.fluxcd.io",
        kind: "HelmRepository",
        plural: "helmrepositories",
        ..FLUX
    },
    Kind {
        name: KindName::DnsEndpoint,
        group: "externaldns.k8s.io",
        kind: "DNSEndpoint",
        plural: "dnsendpoints",
        versions: &["v1alpha1"],
        custom: true,
        verbs: APPLY_AND_DELETE,
        ..OF_TENANTS
    },
    Kind {
        name: KindName::ClusterNetworkPolicy,
        group: "policy.networking.k8s.io",
        kind: "ClusterNetworkPolicy",
        plural: "clusternetworkpolicies",
        versions: &["v1alpha2"],
        namespaced: false,
        custom: true,
        verbs: APPLY_AND_DELETE,
        ..OF_TENANTS
    },
    Kind {
        name: KindName::AdminNetworkPolicy,
        group: "policy.networking.k8s.io",
        kind: "AdminNetworkPolicy",
        plural: "adminnetworkpolicies",
        versions: &["v1alpha1"],
        namespaced: false,
        custom: true,
        verbs: APPLY_AND_DELETE,
        ..OF_TENANTS
    },
    Kind { name: KindName::Role, group: RBAC, kind: "Role", plural: "roles", verbs: APPLY_AND_DELETE, ..BUILT_IN },
    Kind {
        name: KindName::RoleBinding,
        group: RBAC,
        kind: "RoleBinding",
        plural: "rolebindings",
        verbs: APPLY_AND_DELETE,
        ..BUILT_IN
    },
];

/// What else is done where tenants are served.
///
/// Secrets of certificates go with their tenants, and so do the records of runs of Helm that did not end; Gateways are
/// deleted that were made from the template.
pub(crate) const TENANT_VERBS: [(KindName, &[&str]); 4] = [
    (KindName::Namespace, APPLY_AND_DELETE),
    (KindName::Gateway, &["create", "delete", "get", "patch"]),
    (KindName::Secret, &["delete"]),
    (KindName::HelmRecord, &["delete"]),
];
/// What else is done while apps move from the listeners of the former operator to their own.
pub(crate) const MIGRATION_VERBS: [(KindName, &[&str]); 1] = [(KindName::Gateway, &["patch"])];

impl Kind {
    /// The kind of this name.
    pub fn of(name: KindName) -> &'static Self {
        // The table is in the order of the names, which a test checks.
        &KINDS[name as usize]
    }

    /// The kind that a manifest means.
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        KINDS.iter().find(|known| known.group == group && known.kind == kind)
    }

    /// Where the API server has it, in one version.
    pub fn resource(&self, version: &str) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: version.to_owned(),
            api_version: self.api_version(version),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// The name of its `CustomResourceDefinition`, if it has one.
    pub fn definition(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// What logs and those who ask whether all is ready are told of it.
    pub fn label(&self) -> String {
        if self.title() != self.kind {
            return self.title().to_owned();
        }
        if self.group.is_empty() { self.plural.to_owned() } else { self.definition() }
    }

    /// As in metrics: its kind, unless only some of its objects are meant.
    pub fn title(&self) -> &'static str {
        match self.name {
            KindName::HelmRecord => "Secret of Helm",
            KindName::TenantDeployment => "Deployment of tenants",
            _ => self.kind,
        }
    }

    /// As in `apiVersion`.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The version as which its objects are parsed.
    pub fn parsed_as(&self) -> String {
        self.api_version(self.versions.first().copied().unwrap_or_default())
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_names() {
        for (place, kind) in KINDS.iter().enumerate() {
            assert_eq!(kind.name as usize, place, "{}", kind.kind);
        }
    }

    #[test]
    fn kinds_are_found_by_group_whatever_the_version() {
        let kind = Kind::find("gateway.networking.k8s.io/v1alpha2", "TLSRoute").unwrap();
        assert_eq!(kind.name, KindName::TlsRoute);
        assert!(Kind::find("networking.istio.io/v1", "Gateway").is_none());
        assert_eq!(Kind::find("v1", "Service").unwrap().parsed_as(), "v1");
    }
}
