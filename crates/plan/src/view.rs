//! The world, indexed once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gateway_api::gateways::Gateway;
use gateway_api::httproutes::HttpRoute;
use gateway_api::listenersets::ListenerSet;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, ResourceQuota, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use portreeve_api::names::{self, labels};
use portreeve_api::{
    AdminNetworkPolicy, Certificate, ClusterIssuer, ClusterNetworkPolicy, DnsEndpoint, HelmRelease, HelmRepository,
    IngressRouteTcp, OciRepository, SecurityPolicy,
};

use crate::claim::{GatewayName, OwnerKind};
use crate::gateway::{SharedGateway, gateways_behind};
use crate::isolation::Isolation;
use crate::object::{Key, Kind, Live, Maker};
use crate::output::ObjectRef;
use crate::release::{Release, releases};
use crate::world::{Unreadable, World};

type ByName<'a, T> = HashMap<(&'a str, &'a str), &'a T>;

/// The world, with what is looked up often at hand.
pub(crate) struct View<'a> {
    pub(crate) world: &'a World,
    /// [`World::now`] to the second, as timestamps are stored.
    pub(crate) now: Timestamp,
    namespaces: ByName<'a, Namespace>,
    services: ByName<'a, Service>,
    secrets: ByName<'a, Secret>,
    gateways: ByName<'a, Gateway>,
    listener_sets: ByName<'a, ListenerSet>,
    http_routes: ByName<'a, HttpRoute>,
    tls_routes: ByName<'a, TlsRoute>,
    reference_grants: ByName<'a, ReferenceGrant>,
    certificates: ByName<'a, Certificate>,
    security_policies: ByName<'a, SecurityPolicy>,
    cluster_issuers: ByName<'a, ClusterIssuer>,
    stateful_sets: ByName<'a, StatefulSet>,
    deployments: ByName<'a, Deployment>,
    releases: HashMap<(&'a str, &'a str), Release<'a>>,
    resource_quotas: ByName<'a, ResourceQuota>,
    limit_ranges: ByName<'a, LimitRange>,
    config_maps: ByName<'a, ConfigMap>,
    helm_releases_flux: ByName<'a, HelmRelease>,
    oci_repositories: ByName<'a, OciRepository>,
    helm_repositories: ByName<'a, HelmRepository>,
    http_routes_in: HashMap<&'a str, Vec<&'a HttpRoute>>,
    tls_routes_in: HashMap<&'a str, Vec<&'a TlsRoute>>,
    grants_in: HashMap<&'a str, Vec<&'a ReferenceGrant>>,
    policies_in: HashMap<&'a str, Vec<&'a SecurityPolicy>>,
    /// The first Service of each Gateway's data plane; both by namespace and name.
    data_planes: HashMap<(&'a str, &'a str), (&'a str, &'a str)>,
    network_policies: ByName<'a, NetworkPolicy>,
    roles: ByName<'a, Role>,
    role_bindings: ByName<'a, RoleBinding>,
    /// By kind, namespace and name.
    unreadable: HashMap<(&'a str, &'a str, &'a str), &'a ObjectMeta>,
    admin_network_policies: ByName<'a, AdminNetworkPolicy>,
    cluster_network_policies: ByName<'a, ClusterNetworkPolicy>,
    dns_endpoints: ByName<'a, DnsEndpoint>,
    ingress_routes_in: HashMap<&'a str, Vec<&'a IngressRouteTcp>>,
    /// What NetworkPolicies isolate.
    pub(crate) isolation: Isolation,
    /// Services that have an endpoint, by namespace and name.
    answering: BTreeSet<(&'a str, &'a str)>,
    /// Ports on which ListenerSets of others serve HTTP or HTTPS.
    foreign_http_ports: BTreeSet<(GatewayName, u16)>,
}

impl<'a> View<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let mut view = Self {
            world,
            now: Timestamp::from_second(world.now.as_second()).unwrap_or(world.now),
            namespaces: by_name(&world.namespaces),
            services: by_name(&world.services),
            secrets: by_name(&world.secrets),
            gateways: by_name(&world.gateways),
            listener_sets: by_name(&world.listener_sets),
            http_routes: by_name(&world.http_routes),
            tls_routes: by_name(&world.tls_routes),
            reference_grants: by_name(&world.reference_grants),
            certificates: by_name(&world.certificates),
            security_policies: by_name(&world.security_policies),
            cluster_issuers: by_name(&world.cluster_issuers),
            stateful_sets: by_name(&world.stateful_sets),
            deployments: by_name(&world.deployments),
            releases: releases(world),
            resource_quotas: by_name(&world.resource_quotas),
            limit_ranges: by_name(&world.limit_ranges),
            config_maps: by_name(&world.config_maps),
            helm_releases_flux: by_name(&world.helm_releases_flux),
            oci_repositories: by_name(&world.oci_repositories),
            helm_repositories: by_name(&world.helm_repositories),
            http_routes_in: by_namespace(&world.http_routes),
            tls_routes_in: by_namespace(&world.tls_routes),
            grants_in: by_namespace(&world.reference_grants),
            policies_in: by_namespace(&world.security_policies),
            data_planes: data_planes(world),
            network_policies: by_name(&world.network_policies),
            roles: by_name(&world.roles),
            role_bindings: by_name(&world.role_bindings),
            unreadable: unreadable(world),
            admin_network_policies: by_name(&world.admin_network_policies),
            cluster_network_policies: by_name(&world.cluster_network_policies),
            dns_endpoints: by_name(&world.dns_endpoints),
            ingress_routes_in: by_namespace(&world.ingress_routes_tcp),
            isolation: Isolation::of(world),
            answering: answering(world),
            foreign_http_ports: BTreeSet::new(),
        };
        view.foreign_http_ports = view.find_foreign_http_ports();
        view
    }

    pub(crate) fn namespace(&self, name: &str) -> Option<&'a Namespace> {
        self.namespaces.get(&("", name)).copied()
    }

    /// The labels of a namespace; none when it is not there.
    pub(crate) fn namespace_labels(&self, name: &str) -> Option<&'a BTreeMap<String, String>> {
        self.namespace(name)?.metadata.labels.as_ref()
    }

    /// A label of a namespace. Kubernetes sets the one with the namespace's own name; a manifest need not.
    pub(crate) fn namespace_label<'l>(&'l self, namespace: &'l str, key: &str) -> Option<&'l str> {
        if key == labels::NAMESPACE_NAME {
            return Some(namespace);
        }
        self.namespace_labels(namespace)?.get(key).map(String::as_str)
    }

    /// Whether objects can be made in a namespace: it is there, and is not being deleted.
    pub(crate) fn is_lasting(&self, namespace: &str) -> bool {
        self.namespace(namespace).is_some_and(|found| found.metadata.deletion_timestamp.is_none())
    }

    /// Whether the apps of a namespace are served.
    pub(crate) fn is_opted_in(&self, namespace: &str) -> bool {
        let value = self.namespace_labels(namespace).and_then(|found| found.get(labels::MANAGED));
        value.is_some_and(|value| value == labels::TRUE)
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&'a Service> {
        self.services.get(&(namespace, name)).copied()
    }

    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<&'a Secret> {
        self.secrets.get(&(namespace, name)).copied()
    }

    pub(crate) fn gateway(&self, name: &GatewayName) -> Option<SharedGateway<'a>> {
        self.gateways.get(&(&*name.namespace, &*name.name)).map(|object| SharedGateway { object })
    }

    /// Whether routes may name this section of a Gateway. They may wait for a Gateway that is away, as when it is made
    /// anew; one that is there without the section serves none of them.
    pub(crate) fn may_borrow(&self, gateway: &GatewayName, section: &str) -> bool {
        self.gateway(gateway).is_none_or(|gateway| gateway.section(section).is_some())
    }

    pub(crate) fn listener_set(&self, namespace: &str, name: &str) -> Option<&'a ListenerSet> {
        self.listener_sets.get(&(namespace, name)).copied()
    }

    pub(crate) fn http_route(&self, namespace: &str, name: &str) -> Option<&'a HttpRoute> {
        self.http_routes.get(&(namespace, name)).copied()
    }

    pub(crate) fn tls_route(&self, namespace: &str, name: &str) -> Option<&'a TlsRoute> {
        self.tls_routes.get(&(namespace, name)).copied()
    }

    pub(crate) fn certificate(&self, namespace: &str, name: &str) -> Option<&'a Certificate> {
        self.certificates.get(&(namespace, name)).copied()
    }

    pub(crate) fn cluster_issuer(&self, name: &str) -> Option<&'a ClusterIssuer> {
        self.cluster_issuers.get(&("", name)).copied()
    }

    pub(crate) fn stateful_set(&self, namespace: &str, name: &str) -> Option<&'a StatefulSet> {
        self.stateful_sets.get(&(namespace, name)).copied()
    }

    pub(crate) fn deployment(&self, namespace: &str, name: &str) -> Option<&'a Deployment> {
        self.deployments.get(&(namespace, name)).copied()
    }

    /// What the Helm client has recorded of a release.
    pub(crate) fn release(&self, namespace: &str, name: &str) -> Option<Release<'a>> {
        self.releases.get(&(namespace, name)).copied()
    }

    /// The namespaces, in order, in which the Helm client has recorded a release of this name.
    pub(crate) fn namespaces_with_release(&self, name: &str) -> BTreeSet<&'a str> {
        self.releases.keys().filter(|(_, release)| *release == name).map(|(namespace, _)| *namespace).collect()
    }

    /// All HTTPRoutes of a namespace, by name.
    pub(crate) fn http_routes_in(&self, namespace: &str) -> &[&'a HttpRoute] {
        self.http_routes_in.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// All TLSRoutes of a namespace, by name.
    pub(crate) fn tls_routes_in(&self, namespace: &str) -> &[&'a TlsRoute] {
        self.tls_routes_in.get(namespace).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn security_policy(&self, namespace: &str, name: &str) -> Option<&'a SecurityPolicy> {
        self.security_policies.get(&(namespace, name)).copied()
    }

    pub(crate) fn policies_in(&self, namespace: &str) -> &[&'a SecurityPolicy] {
        self.policies_in.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// The Service of a Gateway's data plane, by namespace and name; of several the first.
    pub(crate) fn data_plane(&self, namespace: &str, gateway: &str) -> Option<(&'a str, &'a str)> {
        self.data_planes.get(&(namespace, gateway)).copied()
    }

    /// All IngressRouteTCPs of a namespace, by name.
    pub(crate) fn ingress_routes_in(&self, namespace: &str) -> &[&'a IngressRouteTcp] {
        self.ingress_routes_in.get(namespace).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn dns_endpoint(&self, namespace: &str, name: &str) -> Option<&'a DnsEndpoint> {
        self.dns_endpoints.get(&(namespace, name)).copied()
    }

    /// Whether a Service has a ready endpoint.
    pub(crate) fn has_endpoint(&self, namespace: &str, service: &str) -> bool {
        self.answering.contains(&(namespace, service))
    }

    /// Whether ListenerSets of others serve HTTP or HTTPS on this port.
    pub(crate) fn is_foreign_http_port(&self, gateway: &GatewayName, port: u16) -> bool {
        self.foreign_http_ports.contains(&(gateway.clone(), port))
    }

    /// Whether a route of `kind` in `from` may refer to a Service in another namespace: by a grant of others, or since
    /// the Service consents, by one of ours.
    pub(crate) fn may_refer(&self, kind: Kind, from: &str, namespace: &str, service: &str) -> bool {
        self.consents(from, namespace, service) || self.is_granted(kind, from, namespace, service)
    }

    /// Whether a Service says itself that routes of `from` may lead to it.
    pub(crate) fn consents(&self, from: &str, namespace: &str, service: &str) -> bool {
        let service = self.service(namespace, service);
        let annotation = service.and_then(|service| service.metadata.annotations.as_ref()?.get(labels::ALLOW_FROM));
        annotation.is_some_and(|allowed| allowed.split(',').any(|one| one.trim() == from))
    }

    fn is_granted(&self, kind: Kind, from: &str, namespace: &str, service: &str) -> bool {
        let grants = self.grants_in.get(namespace).into_iter().flatten();
        let of_others = grants.filter(|grant| !matches!(Live::ReferenceGrant(grant).maker(), Maker::AppLabel(..)));
        of_others.into_iter().any(|grant| {
            let permits_from =
                grant.spec.from.iter().any(|one| {
                    one.group == names::GATEWAY_API_GROUP && one.kind == kind.as_str() && one.namespace == from
                });
            let permits_to = grant.spec.to.iter().any(|one| {
                one.group.is_empty() && one.kind == "Service" && one.name.as_deref().is_none_or(|name| name == service)
            });
            permits_from && permits_to
        })
    }

    /// An object of a kind that Portreeve writes.
    pub(crate) fn live(&self, key: &Key) -> Option<Live<'a>> {
        let name = (key.namespace.as_str(), key.name.as_str());
        match key.kind {
            Kind::Namespace => self.namespaces.get(&name).map(|object| Live::Namespace(object)),
            Kind::ResourceQuota => self.resource_quotas.get(&name).map(|object| Live::ResourceQuota(object)),
            Kind::LimitRange => self.limit_ranges.get(&name).map(|object| Live::LimitRange(object)),
            Kind::ConfigMap => self.config_maps.get(&name).map(|object| Live::ConfigMap(object)),
            Kind::NetworkPolicy => self.network_policies.get(&name).map(|object| Live::NetworkPolicy(object)),
            Kind::Role => self.roles.get(&name).map(|object| Live::Role(object)),
            Kind::RoleBinding => self.role_bindings.get(&name).map(|object| Live::RoleBinding(object)),
            Kind::AdminNetworkPolicy => {
                self.admin_network_policies.get(&name).map(|object| Live::AdminNetworkPolicy(object))
            }
            Kind::ClusterNetworkPolicy => {
                self.cluster_network_policies.get(&name).map(|object| Live::ClusterNetworkPolicy(object))
            }
            Kind::ReferenceGrant => self.reference_grants.get(&name).map(|object| Live::ReferenceGrant(object)),
            Kind::Certificate => self.certificates.get(&name).map(|object| Live::Certificate(object)),
            Kind::SecurityPolicy => self.security_policies.get(&name).map(|object| Live::SecurityPolicy(object)),
            Kind::ListenerSet => self.listener_sets.get(&name).map(|object| Live::ListenerSet(object)),
            Kind::Gateway => self.gateways.get(&name).map(|object| Live::Gateway(object)),
            Kind::HttpRoute => self.http_routes.get(&name).map(|object| Live::HttpRoute(object)),
            Kind::TlsRoute => self.tls_routes.get(&name).map(|object| Live::TlsRoute(object)),
            Kind::OciRepository => self.oci_repositories.get(&name).map(|object| Live::OciRepository(object)),
            Kind::HelmRepository => self.helm_repositories.get(&name).map(|object| Live::HelmRepository(object)),
            Kind::HelmRelease => self.helm_releases_flux.get(&name).map(|object| Live::HelmRelease(object)),
            Kind::DnsEndpoint => self.dns_endpoints.get(&name).map(|object| Live::DnsEndpoint(object)),
        }
    }

    /// What is known of an object that is there and cannot be read.
    pub(crate) fn unreadable(&self, key: &Key) -> Option<&'a ObjectMeta> {
        self.unreadable.get(&(key.kind.as_str(), &*key.namespace, &*key.name)).copied()
    }

    /// Why the API server refused an object when it was applied last, if it did.
    pub(crate) fn refused(&self, object: &ObjectRef) -> Option<&'a str> {
        self.world.refused.get(object).map(String::as_str)
    }

    /// All objects of the kinds that Portreeve makes for an owner.
    pub(crate) fn all_live(&self) -> impl Iterator<Item = (Kind, Live<'a>)> {
        let world = self.world;
        let namespaces = world.namespaces.iter().map(|object| (Kind::Namespace, Live::Namespace(object)));
        let network_policies =
            world.network_policies.iter().map(|object| (Kind::NetworkPolicy, Live::NetworkPolicy(object)));
        let roles = world.roles.iter().map(|object| (Kind::Role, Live::Role(object)));
        let bindings = world.role_bindings.iter().map(|object| (Kind::RoleBinding, Live::RoleBinding(object)));
        let grants = world.reference_grants.iter().map(|object| (Kind::ReferenceGrant, Live::ReferenceGrant(object)));
        let certificates = world.certificates.iter().map(|object| (Kind::Certificate, Live::Certificate(object)));
        let policies =
            world.security_policies.iter().map(|object| (Kind::SecurityPolicy, Live::SecurityPolicy(object)));
        let sets = world.listener_sets.iter().map(|object| (Kind::ListenerSet, Live::ListenerSet(object)));
        let http_routes = world.http_routes.iter().map(|object| (Kind::HttpRoute, Live::HttpRoute(object)));
        let tls_routes = world.tls_routes.iter().map(|object| (Kind::TlsRoute, Live::TlsRoute(object)));
        let admin = world
            .admin_network_policies
            .iter()
            .map(|object| (Kind::AdminNetworkPolicy, Live::AdminNetworkPolicy(object)));
        let cluster = world.cluster_network_policies.iter();
        let cluster = cluster.map(|object| (Kind::ClusterNetworkPolicy, Live::ClusterNetworkPolicy(object)));
        let records = world.dns_endpoints.iter().map(|object| (Kind::DnsEndpoint, Live::DnsEndpoint(object)));
        let objects = namespaces
            .chain(network_policies)
            .chain(roles)
            .chain(bindings)
            .chain(grants)
            .chain(certificates)
            .chain(policies);
        let objects = objects.chain(admin).chain(cluster).chain(sets).chain(http_routes).chain(tls_routes);
        objects.chain(records).chain(all_provisioned(world))
    }

    /// Only ListenerSets that the Gateway admits count, or anybody could take a port from others. Those of apps do not:
    /// their ports follow the Gateway's own.
    fn find_foreign_http_ports(&self) -> BTreeSet<(GatewayName, u16)> {
        let mut ports = BTreeSet::new();
        for set in &self.world.listener_sets {
            if matches!(Live::ListenerSet(set).maker(), Maker::Uid(OwnerKind::NebariApp, _)) {
                continue;
            }
            let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
            let parent = &set.spec.parent_ref;
            let gateway = GatewayName::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name);
            let admitted = self.gateway(&gateway).is_some_and(|shared| shared.admits_listener_sets_of(self, namespace));
            let http =
                set.spec.listeners.iter().filter(|listener| matches!(listener.protocol.as_str(), "HTTP" | "HTTPS"));
            let numbers = http.filter_map(|listener| u16::try_from(listener.port).ok());
            ports.extend(numbers.filter(|_| admitted).map(|port| (gateway.clone(), port)));
        }
        ports
    }
}

/// All objects of the kinds of which tenants' virtual clusters are made.
pub(crate) fn all_provisioned(world: &World) -> impl Iterator<Item = (Kind, Live<'_>)> {
    let quotas = world.resource_quotas.iter().map(|object| (Kind::ResourceQuota, Live::ResourceQuota(object)));
    let limits = world.limit_ranges.iter().map(|object| (Kind::LimitRange, Live::LimitRange(object)));
    let config_maps = world.config_maps.iter().map(|object| (Kind::ConfigMap, Live::ConfigMap(object)));
    let charts = world.oci_repositories.iter().map(|object| (Kind::OciRepository, Live::OciRepository(object)));
    let repositories =
        world.helm_repositories.iter().map(|object| (Kind::HelmRepository, Live::HelmRepository(object)));
    let releases = world.helm_releases_flux.iter().map(|object| (Kind::HelmRelease, Live::HelmRelease(object)));
    quotas.chain(limits).chain(config_maps).chain(charts).chain(repositories).chain(releases)
}

fn unreadable(world: &World) -> HashMap<(&str, &str, &str), &ObjectMeta> {
    let all = world.unreadable.iter().map(|Unreadable { kind, metadata }| {
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        ((kind.as_str(), namespace.unwrap_or_default(), name.unwrap_or_default()), metadata)
    });
    all.collect()
}

pub(crate) fn name_of<T: Resource>(object: &T) -> (&str, &str) {
    let metadata = object.meta();
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn by_name<T: Resource>(objects: &[Arc<T>]) -> ByName<'_, T> {
    objects.iter().map(|object| (name_of(&**object), &**object)).collect()
}

/// Sorted by name within a namespace, so that the order of the world means nothing.
fn by_namespace<T: Resource>(objects: &[Arc<T>]) -> HashMap<&str, Vec<&T>> {
    let mut all: HashMap<&str, Vec<&T>> = HashMap::new();
    for object in objects {
        all.entry(name_of(&**object).0).or_default().push(object);
    }
    for list in all.values_mut() {
        list.sort_by_key(|object| name_of(*object));
    }
    all
}

fn data_planes(world: &World) -> HashMap<(&str, &str), (&str, &str)> {
    let mut first = HashMap::new();
    for service in &world.services {
        let name = name_of(&**service);
        for gateway in gateways_behind(service) {
            first.entry(gateway).and_modify(|first| *first = name.min(*first)).or_insert(name);
        }
    }
    first
}

/// The label by which an EndpointSlice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

fn answering(world: &World) -> BTreeSet<(&str, &str)> {
    let mut services = BTreeSet::new();
    for slice in &world.endpoint_slices {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        let ready = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
            // Absent means ready (EndpointConditions.ready).
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false);
            ready && !endpoint.addresses.is_empty()
        };
        if let Some(service) = service
            && slice.endpoints.iter().flatten().any(ready)
        {
            services.insert((slice.metadata.namespace.as_deref().unwrap_or_default(), service.as_str()));
        }
    }
    services
}
