use std::collections::BTreeMap;
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
use portreeve_api::{
    AdminNetworkPolicy, Certificate, Claim, ClusterIssuer, ClusterNetworkPolicy, DnsEndpoint, HelmRelease,
    HelmRepository, IngressRouteTcp, NebariApp, OciRepository, SecurityPolicy, Tenant, names,
};
use portreeve_names::HostPattern;

use crate::claim::{GatewayName, Owner};
use crate::login::{Login, ProvisionReport, RemovalReport};
use crate::output::ObjectRef;
use crate::tenancy::{DialResult, TenantApi, TenantApps, TenantIsolation};

/// Everything that a decision may depend on. Shared, so that a snapshot of a cluster costs no copies.
///
/// Every object has a name, a namespace where its kind has one, and a `metadata.uid` (standalone, the shell gives them
/// one that lasts). No object is there twice; the order of the lists means nothing.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The clock, read once. It never goes back between two plans.
    pub now: jiff::Timestamp,
    /// What the platform has configured.
    pub config: Config,
    /// Which kinds the API server knows.
    pub served: Served,
    /// All apps.
    pub apps: Vec<Arc<NebariApp>>,
    /// All tenants.
    pub tenants: Vec<Arc<Tenant>>,
    /// Owners that cannot be read now, as far as the shell knows of them. What they hold nobody else gets meanwhile.
    pub absent: Vec<Absent>,
    /// All namespaces.
    pub namespaces: Vec<Arc<Namespace>>,
    /// All Services.
    pub services: Vec<Arc<Service>>,
    /// All `EndpointSlice`s.
    pub endpoint_slices: Vec<Arc<EndpointSlice>>,
    /// At least all Secrets of type `kubernetes.io/tls`, and those that apps and tenants name.
    pub secrets: Vec<Arc<Secret>>,
    /// All Gateways.
    pub gateways: Vec<Arc<Gateway>>,
    /// All ListenerSets.
    pub listener_sets: Vec<Arc<ListenerSet>>,
    /// All HTTPRoutes.
    pub http_routes: Vec<Arc<HttpRoute>>,
    /// All TLSRoutes, in whatever version they are served.
    pub tls_routes: Vec<Arc<TlsRoute>>,
    /// All `ReferenceGrant`s.
    pub reference_grants: Vec<Arc<ReferenceGrant>>,
    /// All Certificates.
    pub certificates: Vec<Arc<Certificate>>,
    /// Every `ClusterIssuer`.
    pub cluster_issuers: Vec<Arc<ClusterIssuer>>,
    /// All objects of the kind `SecurityPolicy`.
    pub security_policies: Vec<Arc<SecurityPolicy>>,
    /// The Deployments of Envoy Gateway (label `control-plane=envoy-gateway`), which tell its version.
    pub envoy_gateways: Vec<Arc<Deployment>>,
    /// All objects of the kind `NetworkPolicy`.
    pub network_policies: Vec<Arc<NetworkPolicy>>,
    /// All Roles.
    pub roles: Vec<Arc<Role>>,
    /// All objects of the kind RoleBinding.
    pub role_bindings: Vec<Arc<RoleBinding>>,
    /// All IngressRouteTCPs; none where the cluster does not know that kind.
    pub ingress_routes_tcp: Vec<Arc<IngressRouteTcp>>,
    /// At least those in tenants' namespaces.
    pub stateful_sets: Vec<Arc<StatefulSet>>,
    /// At least those in tenants' namespaces. Those of Envoy Gateway are in [`World::envoy_gateways`].
    pub deployments: Vec<Arc<Deployment>>,
    /// At least those that were made for tenants, by their label `app.kubernetes.io/managed-by`.
    pub resource_quotas: Vec<Arc<ResourceQuota>>,
    /// As [`World::resource_quotas`].
    pub limit_ranges: Vec<Arc<LimitRange>>,
    /// As [`World::resource_quotas`].
    pub config_maps: Vec<Arc<ConfigMap>>,
    /// Every `HelmRelease` of Flux; none where the cluster does not know that kind.
    pub helm_releases_flux: Vec<Arc<HelmRelease>>,
    /// Every `OCIRepository` of Flux; none where the cluster does not know that kind.
    pub oci_repositories: Vec<Arc<OciRepository>>,
    /// Every `HelmRepository` of Flux; none where the cluster does not know that kind.
    pub helm_repositories: Vec<Arc<HelmRepository>>,
    /// The Helm client's own record of releases: Secrets of type `helm.sh/release.v1` with the label `owner=helm`. Only
    /// their metadata is read: the labels `name`, `status` and `version`, and [`crate::VALUES_LABEL`].
    pub helm_releases: Vec<Arc<Secret>>,
    /// By namespace and name, releases for which [`crate::ReleaseStep`] failed last, and what the Helm client said. The
    /// text has no times or counts.
    pub failed_releases: BTreeMap<(String, String), String>,
    /// Objects that are there and cannot be read, of the kinds that Portreeve writes.
    pub unreadable: Vec<Unreadable>,
    /// Objects that the API server refused when they were applied last, and its words.
    pub refused: BTreeMap<ObjectRef, String>,
    /// Ports that the shell dialled in vain, and why; nothing where it cannot dial. The text has no times or counts.
    pub failed_dials: BTreeMap<(GatewayName, u16), String>,
    /// Every DNSEndpoint of external-dns; none where the cluster does not know that kind.
    pub dns_endpoints: Vec<Arc<DnsEndpoint>>,
    /// All objects of the kind `ClusterNetworkPolicy`.
    pub cluster_network_policies: Vec<Arc<ClusterNetworkPolicy>>,
    /// All objects of the kind `AdminNetworkPolicy`.
    pub admin_network_policies: Vec<Arc<AdminNetworkPolicy>>,
    /// What came of [`crate::Plan::dials`], by host name; nothing for a name that has not been dialled yet.
    pub dialled: BTreeMap<String, DialResult>,
    /// Entries of tenants that the API server refuses (status 422), by Gateway and name of the listener, with what it
    /// says. The planner leaves them out, so that one tenant never keeps the others of its shard waiting, and tells
    /// their tenants why.
    ///
    /// The shell finds them when the apply of a Gateway is refused. It reads the Gateway again and applies, of the
    /// body's `spec.listeners`, first those that the Gateway has already just as they are in the body (so what goes, goes
    /// first); then it adds the others one by one, in the order of the body, which is that of the tenants' age. An entry
    /// that is refused is noted here and left out of what follows. It forgets a note when the Tenant or the part of the
    /// Gateway that is not Portreeve's changes, and after ten minutes at the latest.
    pub rejected_entries: BTreeMap<(GatewayName, String), String>,
    /// What became of the last of [`crate::Plan::provision`] for an app, by its namespace and name.
    pub provisions: BTreeMap<(String, String), ProvisionReport>,
    /// What became of [`crate::Plan::deprovision`] for an app, by its namespace and name.
    pub removals: BTreeMap<(String, String), RemovalReport>,
}

/// An object of which only its metadata can be read: it is not as its kind was when this program was built.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Its kind.
    pub kind: String,
    /// Its metadata.
    pub metadata: ObjectMeta,
}

/// An owner that is on record but cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Absent {
    /// Who it is.
    pub owner: Owner,
    /// Its uid, where that is known: what was made for it stays.
    pub uid: Option<String>,
    /// What it was granted.
    pub grants: Vec<Claim>,
}

/// What the platform has configured.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The ClusterIssuer of apps (`TLS_CLUSTER_ISSUER_NAME`); without one, apps are served on the shared listener.
    pub cluster_issuer: Option<String>,
    /// Who may claim which names; names outside all zones are everybody's.
    pub zones: Vec<Zone>,
    /// The path to tenants' API servers; absent: off.
    pub tenant_api: Option<TenantApi>,
    /// The path to tenants' apps; absent: off.
    pub tenant_apps: Option<TenantApps>,
    /// How tenants' virtual clusters come to be.
    pub provisioner: Provisioner,
    /// Namespaces that no tenant may have, beside those that none ever may.
    pub protected_namespaces: Vec<String>,
    /// Paths of the chart's values that tenants may set, beside those that all may: fields, separated by dots.
    pub allowed_overrides: Vec<String>,
    /// How tenants' namespaces are closed; absent: they are not.
    pub tenant_isolation: Option<TenantIsolation>,
    /// Where NetworkPolicies find the pods of a Gateway.
    pub data_plane: DataPlane,
    /// Whether an owner may not go before what was made for it is gone: the contract's finalizer is put on it. For a
    /// cluster; where nobody carries out [`crate::Plan::guard`], [`crate::Plan::patches`] and [`crate::Plan::copies`],
    /// this is off.
    pub guard_deletion: bool,
    /// What becomes of the listeners that the former operator put on the shared Gateways
    /// (`--migrate-legacy-listeners`).
    pub legacy_listeners: LegacyListeners,
    /// How apps sign visitors in; absent where nothing serves that can: what must be protected then is not served.
    pub login: Option<Login>,
}

/// How tenants' virtual clusters come to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Provisioner {
    /// There are none: nothing of them is made, nor what limits them. For the standalone shell, where no API server runs
    /// any.
    #[default]
    Nobody,
    /// Somebody else makes them: the values stand in a `ConfigMap` of the tenant's namespace.
    External,
    /// The Helm client: [`crate::Plan::releases`].
    Helm {
        /// The chart (`VCLUSTER_CHART_REF`): a reference to an OCI registry (`oci://…`), an archive (`.tgz`, by path or
        /// URL), a folder, or the URL of a Helm repository, of which it is the chart `vcluster`.
        chart: String,
        /// Its version, where the tenant names none.
        version: String,
    },
    /// Flux, by a `HelmRelease` and its source in the tenant's namespace.
    Flux(FluxCharts),
}

/// Where Flux gets charts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FluxCharts {
    /// `oci://…` with the chart's name at its end, or the URL of a Helm repository.
    pub url: String,
    /// The chart in a Helm repository; in an OCI registry the URL says it.
    pub chart: String,
    /// Its version, where the tenant names none.
    pub version: String,
}

/// What becomes of the listeners `tls-<app>-<namespace>` that the former operator put on the shared Gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LegacyListeners {
    /// They stay, and their apps are served by them (`off`).
    #[default]
    Keep,
    /// Their apps move to listeners of their own (`on`), but not where Envoy Gateway is older than
    /// [`EnvoyGatewayVersion::KEEPS_ROUTES`] or its version is not known.
    Migrate,
    /// Their apps move whatever the version (`force`).
    Force,
}

/// A version of Envoy Gateway. `Ord` by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvoyGatewayVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// The pods that carry the traffic of Gateways, as NetworkPolicies must name them. The default is Envoy Gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPlane {
    /// Their namespace; absent: that of the Gateway.
    pub namespace: Option<String>,
    /// Their labels, of which there is at least one. In values, `{name}` and `{namespace}` stand for those of the Gateway.
    pub labels: BTreeMap<String, String>,
    /// What a pod adds to the ports below 1024, which it may not open.
    pub low_port_offset: u16,
}

/// Names that only some namespaces may claim. Of several zones that cover a name, the most specific decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The names.
    pub names: HostPattern,
    /// Who may claim them; nobody: the names are reserved.
    pub namespaces: Vec<String>,
}

/// Which kinds the API server knows, of those that need a CRD. The default is all, TLSRoute as `v1`, without
/// DNSEndpoint and the policies of administrators, which few clusters have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one of each kind, and none depends on another")]
pub struct Served {
    /// `Gateway` of `gateway.networking.k8s.io/v1`.
    pub gateways: bool,
    /// `HTTPRoute` of `gateway.networking.k8s.io/v1`.
    pub http_routes: bool,
    /// `ReferenceGrant` of `gateway.networking.k8s.io/v1`.
    pub reference_grants: bool,
    /// `SecurityPolicy` of `gateway.envoyproxy.io/v1alpha1`.
    pub security_policies: bool,
    /// `IngressRouteTCP` of `traefik.io/v1alpha1`.
    pub ingress_routes_tcp: bool,
    /// `ListenerSet` of `gateway.networking.k8s.io/v1` (Gateway API 1.5 and later).
    pub listener_sets: bool,
    /// The version in which TLSRoutes are written, if any: `v1` where it is served, else the one that the operator was
    /// told to use (`--tls-route-version`), if that is served.
    pub tls_routes: Option<TlsRouteVersion>,
    /// Whether TLSRoute is served, though only in versions that the operator was not told to use.
    pub other_tls_routes: bool,
    /// `Certificate` of `cert-manager.io/v1`.
    pub certificates: bool,
    /// `HelmRelease` of `helm.toolkit.fluxcd.io/v2`.
    pub helm_releases: bool,
    /// `OCIRepository` of `source.toolkit.fluxcd.io/v1`.
    pub oci_repositories: bool,
    /// `HelmRepository` of `source.toolkit.fluxcd.io/v1`.
    pub helm_repositories: bool,
    /// `DNSEndpoint` of `externaldns.k8s.io/v1alpha1`.
    pub dns_endpoints: bool,
    /// `ClusterNetworkPolicy` of `policy.networking.k8s.io/v1alpha2`.
    pub cluster_network_policies: bool,
    /// `AdminNetworkPolicy` of `policy.networking.k8s.io/v1alpha1`.
    pub admin_network_policies: bool,
}

/// A version of TLSRoute. All have the same shape; `v1` needs at least one host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRouteVersion {
    /// Gateway API 1.5 and later.
    V1,
    /// Experimental channel of 1.4 and later.
    V1Alpha3,
    /// Experimental channel of 1.4 and before.
    V1Alpha2,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            gateways: true,
            http_routes: true,
            reference_grants: true,
            security_policies: true,
            ingress_routes_tcp: true,
            listener_sets: true,
            tls_routes: Some(TlsRouteVersion::V1),
            other_tls_routes: false,
            certificates: true,
            helm_releases: true,
            oci_repositories: true,
            helm_repositories: true,
            dns_endpoints: false,
            cluster_network_policies: false,
            admin_network_policies: false,
        }
    }
}

impl World {
    /// The version of the Envoy Gateway that serves the shared Gateways, the oldest where there are several; `None` when
    /// one of them does not tell it, or when there is none.
    pub fn envoy_gateway(&self) -> Option<EnvoyGatewayVersion> {
        let versions = self.envoy_gateways.iter().map(|deployment| EnvoyGatewayVersion::of(deployment));
        versions.collect::<Option<Vec<_>>>()?.into_iter().min()
    }
}

impl EnvoyGatewayVersion {
    /// The first that keeps the routes of a listener with which another conflicts (envoyproxy/gateway#9768).
    pub const KEEPS_ROUTES: Self = Self { major: 1, minor: 9, patch: 1 };

    /// The tag of the image that runs, else what the chart's label says.
    fn of(deployment: &Deployment) -> Option<Self> {
        let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let mut containers = pod.into_iter().flat_map(|pod| &pod.containers);
        let image = containers.find(|container| container.name == "envoy-gateway").and_then(|one| one.image.as_deref());
        let tag = image.and_then(|image| image.split('@').next()?.rsplit_once(':')).map(|(_, tag)| tag);
        let labels = deployment.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get("app.kubernetes.io/version")).map(String::as_str);
        tag.and_then(Self::parse).or_else(|| label.and_then(Self::parse))
    }

    /// Such as `v1.9.1`. What comes before a release (`-rc.1`) is no version, nor is `latest`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let version = Self { major: next()?, minor: next()?, patch: next()? };
        numbers.next().is_none().then_some(version)
    }
}

impl std::fmt::Display for EnvoyGatewayVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Default for DataPlane {
    fn default() -> Self {
        let labels = [
            ("gateway.envoyproxy.io/owning-gateway-name", "{name}"),
            ("gateway.envoyproxy.io/owning-gateway-namespace", "{namespace}"),
        ];
        Self {
            namespace: Some(names::GATEWAY_NAMESPACE.to_owned()),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            low_port_offset: 10_000,
        }
    }
}

impl TlsRouteVersion {
    /// As it stands in `apiVersion`, with the group.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "gateway.networking.k8s.io/v1",
            Self::V1Alpha3 => "gateway.networking.k8s.io/v1alpha3",
            Self::V1Alpha2 => "gateway.networking.k8s.io/v1alpha2",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(image: &str, label: Option<&str>) -> Arc<Deployment> {
        let labels = label.map(|label| json!({ "app.kubernetes.io/version": label }));
        let containers = json!([{"name": "envoy-gateway", "image": image}, {"name": "sidecar", "image": "x:v1.0.0"}]);
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": labels},
            "spec": {"selector": {}, "template": {"spec": {"containers": containers}}},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn version(deployments: &[Arc<Deployment>]) -> Option<String> {
        let world = World { envoy_gateways: deployments.to_vec(), ..World::default() };
        world.envoy_gateway().map(|version| version.to_string())
    }

    #[test]
    fn the_oldest_envoy_gateway_counts_and_one_that_does_not_tell_its_version_hides_all() {
        let current = deployment("envoyproxy/gateway:v1.9.1", None);
        assert_eq!(version(&[]), None);
        assert_eq!(version(std::slice::from_ref(&current)).as_deref(), Some("1.9.1"));
        let old = deployment("localhost:5000/gateway:v1.5.0@sha256:0", Some("v1.9.1"));
        assert_eq!(version(&[current.clone(), old]).as_deref(), Some("1.5.0"));
        assert_eq!(version(&[deployment("gateway:latest", Some("v1.9.2"))]).as_deref(), Some("1.9.2"));
        for unknown in ["gateway:latest", "gateway", "localhost:5000/gateway", "gateway:v1.9.1-rc.1", "gateway:1.9.1.1"]
        {
            assert_eq!(version(&[current.clone(), deployment(unknown, None)]), None, "{unknown}");
        }
    }
}
