//! The kinds that Portreeve makes, and how it finds again what it made.

use gateway_api::gateways::Gateway;
use gateway_api::httproutes::HttpRoute;
use gateway_api::listenersets::ListenerSet;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use portreeve_api::names::{labels, nebari_app as derived, tenant};
use portreeve_api::{
    AdminNetworkPolicy, Certificate, ClusterNetworkPolicy, DnsEndpoint, HelmRelease, HelmRepository, NebariApp,
    OciRepository, SecurityPolicy, Tenant,
};
use serde_json::Value;

use crate::claim::{Owner, OwnerKind};
use crate::contains::contains;
use crate::differ::owned_by_us;
use crate::output::ObjectRef;
use crate::text::label_value;
use crate::world::Served;

/// A kind that Portreeve writes. `Ord` is the order in which objects must be written: each kind may refer to those
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Namespace,
    ResourceQuota,
    LimitRange,
    ConfigMap,
    NetworkPolicy,
    Role,
    RoleBinding,
    AdminNetworkPolicy,
    ClusterNetworkPolicy,
    ReferenceGrant,
    Certificate,
    SecurityPolicy,
    ListenerSet,
    Gateway,
    HttpRoute,
    TlsRoute,
    OciRepository,
    HelmRepository,
    HelmRelease,
    DnsEndpoint,
}

/// Names an object of a kind that Portreeve writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    /// Empty for kinds that have none.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// An object as it is in the world.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Live<'a> {
    Namespace(&'a Namespace),
    ResourceQuota(&'a ResourceQuota),
    LimitRange(&'a LimitRange),
    ConfigMap(&'a ConfigMap),
    NetworkPolicy(&'a NetworkPolicy),
    Role(&'a Role),
    RoleBinding(&'a RoleBinding),
    AdminNetworkPolicy(&'a AdminNetworkPolicy),
    ClusterNetworkPolicy(&'a ClusterNetworkPolicy),
    ReferenceGrant(&'a ReferenceGrant),
    Certificate(&'a Certificate),
    SecurityPolicy(&'a SecurityPolicy),
    ListenerSet(&'a ListenerSet),
    Gateway(&'a Gateway),
    HttpRoute(&'a HttpRoute),
    TlsRoute(&'a TlsRoute),
    OciRepository(&'a OciRepository),
    HelmRepository(&'a HelmRepository),
    HelmRelease(&'a HelmRelease),
    DnsEndpoint(&'a DnsEndpoint),
}

/// Who made an object, as far as the object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Maker<'a> {
    /// The owner with this uid, which its controller owner reference names.
    Uid(OwnerKind, &'a str),
    /// The app that the contract's labels name, by its namespace and the value of the label.
    AppLabel(&'a str, &'a str),
    /// The tenant that the contract's labels name.
    TenantLabel(&'a str),
    /// Somebody else.
    Foreign,
}

/// The owner of objects: what their owner references and labels say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerIdentity<'a> {
    pub(crate) kind: OwnerKind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::ResourceQuota => "ResourceQuota",
            Self::LimitRange => "LimitRange",
            Self::ConfigMap => "ConfigMap",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::AdminNetworkPolicy => "AdminNetworkPolicy",
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Self::ReferenceGrant => "ReferenceGrant",
            Self::Certificate => "Certificate",
            Self::SecurityPolicy => "SecurityPolicy",
            Self::ListenerSet => "ListenerSet",
            Self::Gateway => "Gateway",
            Self::HttpRoute => "HTTPRoute",
            Self::TlsRoute => "TLSRoute",
            Self::OciRepository => "OCIRepository",
            Self::HelmRepository => "HelmRepository",
            Self::HelmRelease => "HelmRelease",
            Self::DnsEndpoint => "DNSEndpoint",
        }
    }

    /// The name of its CRD; absent for what every API server knows.
    fn crd(self) -> Option<&'static str> {
        match self {
            Self::Namespace
            | Self::ResourceQuota
            | Self::LimitRange
            | Self::ConfigMap
            | Self::NetworkPolicy
            | Self::Role
            | Self::RoleBinding => None,
            Self::AdminNetworkPolicy => Some("adminnetworkpolicies.policy.networking.k8s.io"),
            Self::ClusterNetworkPolicy => Some("clusternetworkpolicies.policy.networking.k8s.io"),
            Self::ReferenceGrant => Some("referencegrants.gateway.networking.k8s.io"),
            Self::Certificate => Some("certificates.cert-manager.io"),
            Self::SecurityPolicy => Some("securitypolicies.gateway.envoyproxy.io"),
            Self::ListenerSet => Some("listenersets.gateway.networking.k8s.io"),
            Self::Gateway => Some("gateways.gateway.networking.k8s.io"),
            Self::HttpRoute => Some("httproutes.gateway.networking.k8s.io"),
            Self::TlsRoute => Some("tlsroutes.gateway.networking.k8s.io"),
            Self::OciRepository => Some("ocirepositories.source.toolkit.fluxcd.io"),
            Self::HelmRepository => Some("helmrepositories.source.toolkit.fluxcd.io"),
            Self::HelmRelease => Some("helmreleases.helm.toolkit.fluxcd.io"),
            Self::DnsEndpoint => Some("dnsendpoints.externaldns.k8s.io"),
        }
    }

    /// Whether the API server knows it, so that objects of it can be written.
    pub(crate) fn is_served(self, served: &Served) -> bool {
        match self {
            Self::Namespace
            | Self::ResourceQuota
            | Self::LimitRange
            | Self::ConfigMap
            | Self::NetworkPolicy
            | Self::Role
            | Self::RoleBinding => true,
            Self::AdminNetworkPolicy => served.admin_network_policies,
            Self::ClusterNetworkPolicy => served.cluster_network_policies,
            Self::ReferenceGrant => served.reference_grants,
            Self::Certificate => served.certificates,
            Self::SecurityPolicy => served.security_policies,
            Self::ListenerSet => served.listener_sets,
            Self::Gateway => served.gateways,
            Self::HttpRoute => served.http_routes,
            Self::TlsRoute => served.tls_routes.is_some(),
            Self::OciRepository => served.oci_repositories,
            Self::HelmRepository => served.helm_repositories,
            Self::HelmRelease => served.helm_releases,
            Self::DnsEndpoint => served.dns_endpoints,
        }
    }

    /// What is missing, and what to do, if the API server does not know it in a version that may be used.
    pub(crate) fn unserved(self, served: &Served) -> Option<String> {
        let crd = self.crd().filter(|_| !self.is_served(served))?;
        if self == Self::TlsRoute && served.other_tls_routes {
            return Some(format!(
                "the cluster serves {crd} only in old versions: install Gateway API 1.5 or later, or name one of them \
                 with --tls-route-version"
            ));
        }
        let install = match self {
            Self::Certificate => "cert-manager",
            Self::SecurityPolicy => "Envoy Gateway",
            Self::OciRepository | Self::HelmRepository | Self::HelmRelease => "Flux",
            Self::DnsEndpoint => "external-dns with its source crd",
            _ => "Gateway API 1.5 or later",
        };
        Some(format!("the cluster lacks the CRD {crd}: install {install}"))
    }
}

impl Key {
    pub(crate) fn new(kind: Kind, namespace: &str, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.into() }
    }

    /// The kind and the name, as messages say them.
    pub(crate) fn describe(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind.as_str(), self.name),
            namespace => format!("{} {namespace}/{}", self.kind.as_str(), self.name),
        }
    }

    pub(crate) fn object_ref(&self, api_version: &str) -> ObjectRef {
        ObjectRef {
            api_version: api_version.to_owned(),
            kind: self.kind.as_str().to_owned(),
            namespace: (!self.namespace.is_empty()).then(|| self.namespace.clone()),
            name: self.name.clone(),
        }
    }
}

impl<'a> Live<'a> {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Namespace(_) => Kind::Namespace,
            Self::ResourceQuota(_) => Kind::ResourceQuota,
            Self::LimitRange(_) => Kind::LimitRange,
            Self::ConfigMap(_) => Kind::ConfigMap,
            Self::NetworkPolicy(_) => Kind::NetworkPolicy,
            Self::Role(_) => Kind::Role,
            Self::RoleBinding(_) => Kind::RoleBinding,
            Self::AdminNetworkPolicy(_) => Kind::AdminNetworkPolicy,
            Self::ClusterNetworkPolicy(_) => Kind::ClusterNetworkPolicy,
            Self::ReferenceGrant(_) => Kind::ReferenceGrant,
            Self::Certificate(_) => Kind::Certificate,
            Self::SecurityPolicy(_) => Kind::SecurityPolicy,
            Self::ListenerSet(_) => Kind::ListenerSet,
            Self::Gateway(_) => Kind::Gateway,
            Self::HttpRoute(_) => Kind::HttpRoute,
            Self::TlsRoute(_) => Kind::TlsRoute,
            Self::OciRepository(_) => Kind::OciRepository,
            Self::HelmRepository(_) => Kind::HelmRepository,
            Self::HelmRelease(_) => Kind::HelmRelease,
            Self::DnsEndpoint(_) => Kind::DnsEndpoint,
        }
    }

    pub(crate) fn metadata(self) -> &'a ObjectMeta {
        match self {
            Self::Namespace(object) => &object.metadata,
            Self::ResourceQuota(object) => &object.metadata,
            Self::LimitRange(object) => &object.metadata,
            Self::ConfigMap(object) => &object.metadata,
            Self::NetworkPolicy(object) => &object.metadata,
            Self::Role(object) => &object.metadata,
            Self::RoleBinding(object) => &object.metadata,
            Self::AdminNetworkPolicy(object) => &object.metadata,
            Self::ClusterNetworkPolicy(object) => &object.metadata,
            Self::ReferenceGrant(object) => &object.metadata,
            Self::Certificate(object) => &object.metadata,
            Self::SecurityPolicy(object) => &object.metadata,
            Self::ListenerSet(object) => &object.metadata,
            Self::Gateway(object) => &object.metadata,
            Self::HttpRoute(object) => &object.metadata,
            Self::TlsRoute(object) => &object.metadata,
            Self::OciRepository(object) => &object.metadata,
            Self::HelmRepository(object) => &object.metadata,
            Self::HelmRelease(object) => &object.metadata,
            Self::DnsEndpoint(object) => &object.metadata,
        }
    }

    /// Whether what `body` wants of it, beside its metadata, is there.
    pub(crate) fn contents_contain(self, body: &Value) -> bool {
        match self {
            Self::Role(object) => contains("rules", &object.rules, &body["rules"]),
            Self::RoleBinding(object) => {
                contains("roleRef", &object.role_ref, &body["roleRef"])
                    && contains("subjects", &object.subjects, &body["subjects"])
            }
            _ => self.spec_contains(&body["spec"]),
        }
    }

    /// Whether all that is `wanted` is in its `spec`.
    pub(crate) fn spec_contains(self, wanted: &Value) -> bool {
        match self {
            Self::Namespace(object) => contains("spec", &object.spec, wanted),
            Self::ResourceQuota(object) => contains("spec", &object.spec, wanted),
            Self::LimitRange(object) => contains("spec", &object.spec, wanted),
            // They have something else instead.
            Self::ConfigMap(_) | Self::Role(_) | Self::RoleBinding(_) => wanted.is_null(),
            Self::NetworkPolicy(object) => contains("spec", &object.spec, wanted),
            Self::AdminNetworkPolicy(object) => contains("spec", &object.spec, wanted),
            Self::ClusterNetworkPolicy(object) => contains("spec", &object.spec, wanted),
            Self::ReferenceGrant(object) => contains("spec", &object.spec, wanted),
            Self::Certificate(object) => contains("spec", &object.spec, wanted),
            Self::SecurityPolicy(object) => contains("spec", &object.spec, wanted),
            Self::ListenerSet(object) => contains("spec", &object.spec, wanted),
            Self::Gateway(object) => contains("spec", &object.spec, wanted),
            Self::HttpRoute(object) => contains("spec", &object.spec, wanted),
            Self::TlsRoute(object) => contains("spec", &object.spec, wanted),
            Self::DnsEndpoint(object) => contains("spec", &object.spec, wanted),
            Self::OciRepository(object) => contains("spec", &object.spec, wanted),
            Self::HelmRepository(object) => contains("spec", &object.spec, wanted),
            Self::HelmRelease(object) => contains("spec", &object.spec, wanted),
        }
    }

    /// Whether all that is `wanted` is in its `data`; only a `ConfigMap` has such.
    pub(crate) fn data_contains(self, wanted: &Value) -> bool {
        match self {
            Self::ConfigMap(object) => contains("data", &object.data, wanted),
            _ => wanted.is_null(),
        }
    }

    /// The object without its status, as the API server would show it.
    pub(crate) fn to_value(self) -> Value {
        let spec = match self {
            Self::Namespace(object) => serde_json::to_value(&object.spec),
            Self::ResourceQuota(object) => serde_json::to_value(&object.spec),
            Self::LimitRange(object) => serde_json::to_value(&object.spec),
            Self::ConfigMap(_) | Self::Role(_) | Self::RoleBinding(_) => Ok(Value::Null),
            Self::NetworkPolicy(object) => serde_json::to_value(&object.spec),
            Self::AdminNetworkPolicy(object) => serde_json::to_value(&object.spec),
            Self::ClusterNetworkPolicy(object) => serde_json::to_value(&object.spec),
            Self::ReferenceGrant(object) => serde_json::to_value(&object.spec),
            Self::Certificate(object) => serde_json::to_value(&object.spec),
            Self::SecurityPolicy(object) => serde_json::to_value(&object.spec),
            Self::ListenerSet(object) => serde_json::to_value(&object.spec),
            Self::Gateway(object) => serde_json::to_value(&object.spec),
            Self::HttpRoute(object) => serde_json::to_value(&object.spec),
            Self::TlsRoute(object) => serde_json::to_value(&object.spec),
            Self::OciRepository(object) => serde_json::to_value(&object.spec),
            Self::HelmRepository(object) => serde_json::to_value(&object.spec),
            Self::HelmRelease(object) => serde_json::to_value(&object.spec),
            Self::DnsEndpoint(object) => serde_json::to_value(&object.spec),
        };
        let metadata = serde_json::to_value(self.metadata());
        serde_json::json!({ "metadata": metadata.unwrap_or_default(), "spec": spec.unwrap_or_default() })
    }

    /// Whether Portreeve, or an operator that it replaces, has written this object: by its labels or its managed
    /// fields.
    pub(crate) fn bears_our_mark(self) -> bool {
        let metadata = self.metadata();
        let manager = metadata.labels.as_ref().and_then(|labels| labels.get(labels::MANAGED_BY)).map(String::as_str);
        matches!(manager, Some(labels::NEBARI_OPERATOR | labels::KUBESPACES_OPERATOR))
            || owned_by_us(metadata.managed_fields.as_deref()).next().is_some()
    }

    /// Whether it has the name that the contract gives to such an object of the app that controls it. The former operator
    /// wrote no labels on these.
    pub(crate) fn is_called_after_its_app(self) -> bool {
        let metadata = self.metadata();
        let app = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let name = app.and_then(|app| match self {
            Self::SecurityPolicy(_) => Some(derived::security_policy(&app.name)),
            Self::Role(_) | Self::RoleBinding(_) => Some(derived::oidc_secret_reader(&app.name)),
            _ => None,
        });
        name.is_some() && name == metadata.name
    }

    /// Who made this object.
    pub(crate) fn maker(self) -> Maker<'a> {
        maker_of(self.kind(), self.metadata())
    }

    /// Whether Portreeve, or an operator that it replaces, has made this object for an app or a tenant.
    pub(crate) fn is_made(self) -> bool {
        match self.maker() {
            // An app's own controller may make the app the controller of objects that are not ours.
            Maker::Uid(..) => self.bears_our_mark() || self.is_called_after_its_app(),
            Maker::AppLabel(..) | Maker::TenantLabel(_) => true,
            Maker::Foreign => false,
        }
    }
}

/// Who made an object, by its metadata.
pub(crate) fn maker_of(kind: Kind, metadata: &ObjectMeta) -> Maker<'_> {
    match metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true)) {
        Some(owner) if is_a::<NebariApp>(owner) => Maker::Uid(OwnerKind::NebariApp, &owner.uid),
        Some(owner) if is_a::<Tenant>(owner) => Maker::Uid(OwnerKind::Tenant, &owner.uid),
        Some(_) => Maker::Foreign,
        None => maker_by_labels(kind, metadata),
    }
}

impl Maker<'_> {
    /// Whether this is `owner`.
    pub(crate) fn is(&self, owner: OwnerIdentity<'_>) -> bool {
        match *self {
            // An owner without a uid owns nothing; two of them would own each other's objects.
            Self::Uid(kind, uid) => kind == owner.kind && uid == owner.uid && !uid.is_empty(),
            Self::AppLabel(namespace, value) => {
                owner.kind == OwnerKind::NebariApp && owner.namespace == namespace && label_value(owner.name) == value
            }
            Self::TenantLabel(value) => owner.kind == OwnerKind::Tenant && owner.name == value,
            Self::Foreign => false,
        }
    }
}

impl Owner {
    /// What messages call it.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            OwnerKind::NebariApp => format!("NebariApp {}/{}", self.namespace, self.name),
            OwnerKind::Tenant => format!("Tenant {}", self.name),
        }
    }
}

fn is_a<K: Resource<DynamicType = ()>>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}

/// Labels alone prove little, since people copy them: Portreeve must have applied the object, or it must have the name that
/// the former operators gave to theirs.
fn maker_by_labels(kind: Kind, metadata: &ObjectMeta) -> Maker<'_> {
    match maker_that_labels_name(kind, metadata) {
        maker if kind == Kind::Namespace => maker,
        maker if owned_by_us(metadata.managed_fields.as_deref()).next().is_some() => maker,
        maker if has_name_of_contract(kind, metadata, &maker) => maker,
        _ => Maker::Foreign,
    }
}

fn has_name_of_contract(kind: Kind, metadata: &ObjectMeta, maker: &Maker<'_>) -> bool {
    let names = match (kind, maker) {
        (Kind::HttpRoute, Maker::AppLabel(_, app)) => vec![derived::http_route(app), derived::public_http_route(app)],
        (Kind::Certificate, Maker::AppLabel(namespace, app)) => vec![derived::certificate(app, namespace)],
        (Kind::TlsRoute, Maker::TenantLabel(name)) => vec![tenant::api_tls_route(name)],
        (Kind::ReferenceGrant, Maker::TenantLabel(_)) => vec![tenant::API_REFERENCE_GRANT.to_owned()],
        (Kind::Certificate, Maker::TenantLabel(name)) => vec![tenant::apps_certificate(name)],
        (Kind::ResourceQuota, Maker::TenantLabel(name)) => vec![format!("{name}-quota")],
        (Kind::LimitRange, Maker::TenantLabel(name)) => vec![format!("{name}-limits")],
        _ => Vec::new(),
    };
    metadata.name.as_ref().is_some_and(|name| names.contains(name))
}

fn maker_that_labels_name(kind: Kind, metadata: &ObjectMeta) -> Maker<'_> {
    // Apps have objects of these kinds outside their own namespaces.
    let travels = matches!(kind, Kind::NetworkPolicy | Kind::ReferenceGrant);
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let here = metadata.namespace.as_deref().unwrap_or_default();
    let home = label(labels::NEBARI_APP_NAMESPACE).unwrap_or(here);
    match label(labels::MANAGED_BY) {
        Some(labels::KUBESPACES_OPERATOR) => label(labels::TENANT).map_or(Maker::Foreign, Maker::TenantLabel),
        // Certificates in the gateway's namespace are of the former layout: whoever moves an app out of it removes them.
        Some(labels::NEBARI_OPERATOR) if travels || home == here => {
            let routes = label(labels::INSTANCE).filter(|_| label(labels::NAME) == Some(labels::NEBARI_APP));
            routes.or(label(labels::NEBARI_APP_NAME)).map_or(Maker::Foreign, |app| Maker::AppLabel(home, app))
        }
        _ => Maker::Foreign,
    }
}
