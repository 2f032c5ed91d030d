//! A cluster in memory: what is applied to it is merged as an API server would, and a gateway that serves everything
//! answers when it is asked to.

mod answer;
mod login;
mod policies;
mod releases;
mod report;
mod settled;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::NetworkPolicyEgressRule;
use portreeve_api::names::{nebari_app, tenant};
use portreeve_names::HostPattern;
use portreeve_plan::claim::GatewayName;
use portreeve_plan::{
    Config, DataPlane, DialResult, FluxCharts, GatewayTemplate, LegacyListeners, ObjectRef, Placement, Plan,
    ProvisionReport, Provisioner, RemovalReport, Takeover, TenantApi, TenantApps, TenantIsolation, TlsRouteVersion,
    Unreadable, World, Zone, audit, merge, plan,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) use report::{first_plan, news, outcome};

/// The settings of a case: its first document, of kind `Case`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct Settings {
    kind: String,
    now: Option<Timestamp>,
    cluster_issuer: Option<String>,
    zones: Vec<ZoneSetting>,
    tenant_api: Option<ApiSetting>,
    tenant_apps: Option<AppsSetting>,
    without: Vec<String>,
    tls_route_version: Option<String>,
    other_tls_routes: bool,
    failed_dials: Vec<DialSetting>,
    /// Objects that are there and cannot be read, as `Kind/namespace/name`.
    unreadable: Vec<String>,
    /// Kinds that few clusters have, and this one has.
    with: Vec<String>,
    tenant_isolation: Option<IsolationSetting>,
    /// `Proved`, or a reason and why, by host name.
    dialled: BTreeMap<String, (String, String)>,
    /// Why, by the Gateway and the listener, as `namespace/name listener`.
    rejected_entries: BTreeMap<String, String>,
    guard_deletion: bool,
    /// `external`, or `helm` or `flux` with a chart, as `helm oci://charts/vcluster 0.35.2`.
    provisioner: Option<String>,
    protected_namespaces: Vec<String>,
    allowed_overrides: Vec<String>,
    /// By `namespace/name`, releases that the Helm client cannot get done, and why.
    failed_releases: BTreeMap<String, String>,
    /// `off`, `on` or `force`.
    pub(crate) migrate: String,
    /// As `1.9.1`; without it the version is not known.
    envoy_gateway: Option<String>,
    /// How visitors sign in; without it nothing serves that can.
    login: Option<login::LoginSetting>,
    /// Whether bodies are shown as they are written, every field of them.
    pub(crate) full: bool,
    /// Whether the gateway answers; by default it serves everything.
    #[serde(default)]
    pub(crate) silent: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ZoneSetting {
    names: String,
    namespaces: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApiSetting {
    gateway: String,
    section: Option<String>,
    domain: String,
    external_dns_target: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AppsSetting {
    gateway: String,
    #[serde(default)]
    more_gateways: Vec<String>,
    #[serde(default)]
    gateway_labels: BTreeMap<String, String>,
    /// `spec` of the next Gateway.
    template: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    listener_sets: bool,
    domain: String,
    cluster_issuer: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct IsolationSetting {
    system_namespaces: Vec<String>,
    denied_networks: Vec<String>,
    extra_egress: Vec<NetworkPolicyEgressRule>,
    except: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DialSetting {
    gateway: String,
    port: u16,
    why: String,
}

/// Names an object without its version.
pub(crate) type Name = (String, String, String);

/// Every object as its author wrote it, and as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) settings: Settings,
    authored: BTreeMap<Name, Value>,
    pub(crate) objects: BTreeMap<Name, Value>,
    /// What the identity provider has answered.
    provisions: BTreeMap<(String, String), ProvisionReport>,
    removals: BTreeMap<(String, String), RemovalReport>,
}

impl Cluster {
    /// Reads a case.
    pub(crate) fn read(yaml: &str) -> Self {
        let mut cluster = Self::default();
        for mut document in serde_saphyr::from_multiple::<Value>(yaml).expect("a case is YAML") {
            if document["kind"] == "Case" {
                cluster.settings = serde_json::from_value(document).expect("the settings of a case");
                continue;
            }
            let name = name_of(&document);
            admit(&name, &mut document);
            assert!(cluster.authored.insert(name.clone(), document.clone()).is_none(), "{name:?} is there twice");
            cluster.objects.insert(name, document);
        }
        cluster
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.settings.now.unwrap_or_else(|| "2026-08-01T12:00:00Z".parse().expect("a time"))
    }

    /// An hour goes by, so that what is granted from now on is younger.
    pub(crate) fn pass_an_hour(&mut self) {
        self.wait_until(self.now() + jiff::SignedDuration::from_hours(1));
    }

    pub(crate) fn wait_until(&mut self, now: Timestamp) {
        self.settings.now = Some(now);
    }

    /// Adds an object as its author wrote it, unless one of that name is there.
    pub(crate) fn author(&mut self, mut object: Value) {
        let name = name_of(&object);
        admit(&name, &mut object);
        if !self.authored.contains_key(&name) {
            self.authored.insert(name.clone(), object.clone());
            self.objects.insert(name, object);
        }
    }

    /// Its author changes the spec of an object.
    pub(crate) fn edit(&mut self, object: &Value) {
        let name = name_of(object);
        for stored in [self.authored.get_mut(&name), self.objects.get_mut(&name)].into_iter().flatten() {
            stored["spec"] = object["spec"].clone();
            let generation = stored["metadata"]["generation"].as_i64().unwrap_or_default();
            stored["metadata"]["generation"] = (generation + 1).into();
        }
    }

    /// Somebody adds an entry to the shared Gateway, unless one of that name is there.
    pub(crate) fn add_listener(&mut self, entry: Value) {
        let name = ("Gateway".to_owned(), "envoy-gateway-system".to_owned(), "nebari-gateway".to_owned());
        let mut gateway = self.objects[&name].clone();
        let listeners = gateway["spec"]["listeners"].as_array_mut().expect("listeners");
        if listeners.iter().all(|listener| listener["name"] != entry["name"]) {
            listeners.push(entry);
        }
        self.edit(&gateway);
    }

    /// Its author takes an object away.
    pub(crate) fn withdraw(&mut self, kind: &str, namespace: &str, name: &str) {
        let name = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.authored.remove(&name);
        self.objects.remove(&name);
    }

    pub(crate) fn set_issuer(&mut self, issuer: Option<&str>) {
        self.settings.cluster_issuer = issuer.map(str::to_owned);
    }

    /// The same cluster, with the statuses of owners, before anything was made in it.
    pub(crate) fn forget_what_was_made(&self) -> Self {
        let mut fresh = Self { settings: self.settings.clone(), ..Self::default() };
        for (name, object) in &self.authored {
            let mut object = object.clone();
            object["status"] = self.objects[name]["status"].clone();
            fresh.authored.insert(name.clone(), object.clone());
            fresh.objects.insert(name.clone(), object);
        }
        fresh
    }

    /// Specs, labels and annotations of everything.
    pub(crate) fn essence(&self) -> BTreeMap<Name, Value> {
        let essence = |object: &Value| {
            let metadata = &object["metadata"];
            json!({
                "spec": object["spec"],
                "metadata": [metadata["labels"], metadata["annotations"], metadata["ownerReferences"]],
            })
        };
        self.objects.iter().map(|(name, object)| (name.clone(), essence(object))).collect()
    }

    /// The world as a planner sees it.
    pub(crate) fn world(&self) -> World {
        let settings = &self.settings;
        let mut world = World { now: self.now(), config: settings.config(), ..World::default() };
        world.served.gateways = !settings.lacks("Gateway");
        world.served.http_routes = !settings.lacks("HTTPRoute");
        world.served.reference_grants = !settings.lacks("ReferenceGrant");
        world.served.security_policies = !settings.lacks("SecurityPolicy");
        world.served.ingress_routes_tcp = !settings.lacks("IngressRouteTCP");
        world.served.other_tls_routes = settings.other_tls_routes;
        world.served.listener_sets = !settings.lacks("ListenerSet");
        world.served.certificates = !settings.lacks("Certificate");
        world.served.tls_routes = match settings.tls_route_version.as_deref() {
            _ if settings.lacks("TLSRoute") => None,
            Some("v1alpha2") => Some(TlsRouteVersion::V1Alpha2),
            _ => Some(TlsRouteVersion::V1),
        };
        world.failed_dials =
            settings.failed_dials.iter().map(|dial| ((gateway(&dial.gateway), dial.port), dial.why.clone())).collect();
        world.unreadable = settings.unreadable.iter().map(|object| unreadable(object)).collect();
        let has = |kind: &str| settings.with.iter().any(|one| one == kind);
        world.served.dns_endpoints = has("DNSEndpoint");
        world.served.cluster_network_policies = has("ClusterNetworkPolicy");
        world.served.admin_network_policies = has("AdminNetworkPolicy");
        world.dialled = settings.dialled.iter().map(|(host, found)| (host.clone(), dial_result(found))).collect();
        world.rejected_entries = settings.rejected_entries.iter().map(rejected).collect();
        world.dns_endpoints = self.all("DNSEndpoint");
        world.cluster_network_policies = self.all("ClusterNetworkPolicy");
        world.admin_network_policies = self.all("AdminNetworkPolicy");
        world.envoy_gateways = settings.envoy_gateway.as_deref().map(envoy_gateway).into_iter().collect();
        world.failed_releases = settings
            .failed_releases
            .iter()
            .map(|(release, why)| {
                let (namespace, name) = release.split_once('/').expect("a release as namespace/name");
                ((namespace.to_owned(), name.to_owned()), why.clone())
            })
            .collect();
        world.served.helm_releases = !settings.lacks("HelmRelease");
        world.cluster_issuers = self.all("ClusterIssuer");
        world.apps = self.all("NebariApp");
        world.tenants = self.all("Tenant");
        world.namespaces = self.all("Namespace");
        world.services = self.all("Service");
        world.endpoint_slices = self.all("EndpointSlice");
        world.secrets = self.all("Secret");
        world.gateways = self.all("Gateway");
        world.listener_sets = self.all("ListenerSet");
        world.http_routes = self.all("HTTPRoute");
        world.tls_routes = self.all("TLSRoute");
        world.reference_grants = self.all("ReferenceGrant");
        world.certificates = self.all("Certificate");
        world.security_policies = self.all("SecurityPolicy");
        world.network_policies = self.all("NetworkPolicy");
        world.ingress_routes_tcp = self.all("IngressRouteTCP");
        world.stateful_sets = self.all("StatefulSet");
        world.deployments = self.all("Deployment");
        world.resource_quotas = self.all("ResourceQuota");
        world.limit_ranges = self.all("LimitRange");
        world.config_maps = self.all("ConfigMap");
        let is_record = |secret: &Arc<Secret>| secret.type_.as_deref() == Some(releases::RECORD);
        world.helm_releases = self.all("Secret").into_iter().filter(is_record).collect();
        world.helm_releases_flux = self.all("HelmRelease");
        world.oci_repositories = self.all("OCIRepository");
        world.helm_repositories = self.all("HelmRepository");
        world.roles = self.all("Role");
        world.role_bindings = self.all("RoleBinding");
        world.provisions = self.provisions.clone();
        world.removals = self.removals.clone();
        world
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Vec<Arc<T>> {
        let objects = self.objects.iter().filter(|((found, ..), _)| found == kind);
        let parse = |(name, object): (&Name, &Value)| {
            Arc::new(serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{name:?}: {error}")))
        };
        objects.map(parse).collect()
    }

    /// A tenant that moves is moved on by each plan.
    fn has_moving_tenants(&self) -> bool {
        self.objects.iter().filter(|((kind, ..), _)| kind == "Tenant").any(|(_, tenant)| {
            settled::list(&tenant["status"]["conditions"]).iter().any(|condition| condition["type"] == "Moving")
        })
    }

    /// Carries a plan out.
    pub(crate) fn execute(&mut self, plan: &Plan) {
        for owner in &plan.guard {
            self.guard(&key(owner));
        }
        for copy in &plan.copies {
            self.copy(&key(&copy.from), &key(&copy.to));
        }
        for takeover in &plan.takeovers {
            self.take_over(takeover);
        }
        for apply in &plan.apply {
            let name = key(&apply.object);
            let merged = merge::apply(self.authored.get(&name), &apply.body);
            self.put(name, merged, &merge::managed_fields(&apply.body));
        }
        for patch in &plan.patches {
            self.patch(&key(&patch.object), &patch.operations);
        }
        for step in &plan.releases {
            self.step(step);
        }
        for object in plan.delete.iter().chain(&plan.release) {
            self.delete(&key(object));
        }
        self.ask_provider(plan);
        for write in &plan.statuses {
            self.objects.get_mut(&key(&write.object)).expect("what gets a status is there")["status"] =
                write.status.clone();
        }
    }

    /// One with the finalizer of a policy stays until that goes.
    pub(crate) fn delete(&mut self, name: &Name) {
        let now = self.now().to_string();
        let object = self.objects.get_mut(name).expect("what is deleted is there");
        if object["metadata"]["finalizers"] == json!([nebari_app::POLICY_FINALIZER]) {
            object["metadata"]["deletionTimestamp"] = now.into();
            return;
        }
        self.objects.remove(name);
        self.authored.remove(name);
    }

    fn guard(&mut self, name: &Name) {
        let finalizer = if name.0 == "Tenant" { tenant::FINALIZER } else { nebari_app::FINALIZER };
        for stored in [self.authored.get_mut(name), self.objects.get_mut(name)].into_iter().flatten() {
            stored["metadata"]["finalizers"] = json!([finalizer]);
        }
    }

    /// As a shell does it: never over what is there.
    fn copy(&mut self, from: &Name, to: &Name) {
        let mut secret = self.objects[from].clone();
        secret["metadata"] = json!({ "name": to.2, "namespace": to.1, "uid": uid(to) });
        self.author(secret);
    }

    fn take_over(&mut self, takeover: &Takeover) {
        let object = self.objects.get_mut(&key(&takeover.object)).expect("the Gateway is there");
        let live = serde_json::from_value(object.clone()).expect("a Gateway");
        for operation in takeover.operations(&live).into_iter().filter(|operation| operation["op"] == "replace") {
            object["metadata"]["managedFields"] = operation["value"].clone();
        }
    }

    /// All operations or none.
    fn patch(&mut self, name: &Name, operations: &[Value]) {
        for stored in [self.authored.get_mut(name), self.objects.get_mut(name)].into_iter().flatten() {
            let mut patched = stored.clone();
            for operation in operations {
                let path = operation["path"].as_str().expect("a path");
                if operation["op"] == "test" {
                    assert_eq!(patched.pointer(path), Some(&operation["value"]), "{name:?} is not as it was");
                    continue;
                }
                assert_eq!(operation["op"], "remove");
                let (parent, item) = path.rsplit_once('/').expect("an item of something");
                match patched.pointer_mut(parent).expect("what it is an item of") {
                    Value::Array(list) => drop(list.remove(item.parse().expect("a place"))),
                    Value::Object(map) => drop(map.remove(&item.replace("~1", "/")).expect("a field")),
                    other => panic!("{other} has no items"),
                }
            }
            let generation = patched["metadata"]["generation"].as_i64().unwrap_or_default();
            patched["metadata"]["generation"] = (generation + 1).into();
            *stored = patched;
        }
        let is_gone = |object: &Value| {
            let metadata = &object["metadata"];
            !metadata["deletionTimestamp"].is_null() && metadata["finalizers"] == json!([])
        };
        if self.objects.get(name).is_some_and(is_gone) {
            self.delete(name);
        }
    }

    fn put(&mut self, name: Name, mut object: Value, managed_fields: &Value) {
        let before = self.objects.get(&name);
        let generation = match before {
            Some(before) => {
                let changed = before["spec"] != object["spec"];
                before["metadata"]["generation"].as_i64().unwrap_or_default() + i64::from(changed)
            }
            None => 1,
        };
        if let Some(before) = before {
            for field in ["uid", "creationTimestamp"] {
                object["metadata"][field] = before["metadata"][field].clone();
            }
            object["status"] = before["status"].clone();
        } else {
            object["metadata"]["uid"] = uid(&name).into();
            object["metadata"]["creationTimestamp"] = self.now().to_string().into();
        }
        object["metadata"]["generation"] = generation.into();
        object["metadata"]["managedFields"] = json!([managed_fields]);
        self.objects.insert(name, object);
    }
}

impl Settings {
    fn config(&self) -> Config {
        let zone = |zone: &ZoneSetting| Zone {
            names: HostPattern::parse(&zone.names).expect("names of a zone"),
            namespaces: zone.namespaces.clone(),
        };
        Config {
            login: self.login.as_ref().map(login::LoginSetting::login),
            data_plane: DataPlane::default(),
            cluster_issuer: self.cluster_issuer.clone(),
            zones: self.zones.iter().map(zone).collect(),
            tenant_api: self.tenant_api.as_ref().map(|api| TenantApi {
                gateway_namespace: gateway(&api.gateway).namespace.to_string(),
                gateway_name: gateway(&api.gateway).name.to_string(),
                section: api.section.clone(),
                domain: api.domain.clone(),
                external_dns_target: api.external_dns_target.clone(),
            }),
            tenant_apps: self.tenant_apps.as_ref().map(|apps| TenantApps {
                gateway_namespace: gateway(&apps.gateway).namespace.to_string(),
                gateway_name: gateway(&apps.gateway).name.to_string(),
                domain: apps.domain.clone(),
                cluster_issuer: apps.cluster_issuer.clone(),
                more_gateways: apps.more_gateways.clone(),
                gateway_labels: apps.gateway_labels.clone(),
                template: apps.template.clone().map(|spec| GatewayTemplate { spec, ..GatewayTemplate::default() }),
                placement: if apps.listener_sets { Placement::ListenerSet } else { Placement::Gateway },
                dns_ttl: 0,
            }),
            tenant_isolation: self.tenant_isolation.as_ref().map(|isolation| TenantIsolation {
                system_namespaces: isolation.system_namespaces.clone(),
                denied_networks: isolation.denied_networks.clone(),
                extra_egress: isolation.extra_egress.clone(),
                except: isolation.except.clone(),
                ..TenantIsolation::default()
            }),
            provisioner: self.provisioner.as_deref().map(provisioner).unwrap_or_default(),
            protected_namespaces: self.protected_namespaces.clone(),
            allowed_overrides: self.allowed_overrides.clone(),
            guard_deletion: self.guard_deletion,
            legacy_listeners: match self.migrate.as_str() {
                "on" => LegacyListeners::Migrate,
                "force" => LegacyListeners::Force,
                _ => LegacyListeners::Keep,
            },
        }
    }

    fn lacks(&self, kind: &str) -> bool {
        self.without.iter().any(|one| one == kind)
    }
}

fn envoy_gateway(version: &str) -> Arc<Deployment> {
    let labels = json!({ "app.kubernetes.io/version": version });
    Arc::new(
        serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": labels}}))
            .expect("a Deployment"),
    )
}

fn provisioner(text: &str) -> Provisioner {
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    match &words[..] {
        [name] if name == "external" => Provisioner::External,
        [name, chart, version] if name == "helm" => {
            Provisioner::Helm { chart: chart.clone(), version: version.clone() }
        }
        [name, url, version] if name == "flux" => {
            Provisioner::Flux(FluxCharts { url: url.clone(), chart: "vcluster".to_owned(), version: version.clone() })
        }
        _ => panic!("no provisioner: {text}"),
    }
}

fn dial_result((reason, why): &(String, String)) -> DialResult {
    let why = why.clone();
    match reason.as_str() {
        "Proved" => DialResult::Proved,
        "SANMissing" => DialResult::SanMissing(why),
        "Terminated" => DialResult::Terminated(why),
        "NoRoute" => DialResult::NoRoute(why),
        _ => DialResult::ConnectFailed(why),
    }
}

fn rejected((entry, why): (&String, &String)) -> ((GatewayName, String), String) {
    let (name, listener) = entry.split_once(' ').expect("a Gateway and a listener");
    ((gateway(name), listener.to_owned()), why.clone())
}

fn gateway(text: &str) -> GatewayName {
    let (namespace, name) = text.split_once('/').expect("a Gateway as namespace/name");
    GatewayName::new(namespace, name)
}

/// What an API server fills in.
fn admit(name: &Name, object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.entry("uid").or_insert_with(|| uid(name).into());
    metadata.entry("generation").or_insert_with(|| 1.into());
}

fn uid((kind, namespace, name): &Name) -> String {
    format!("uid of {kind} {namespace}/{name}")
}

fn name_of(object: &Value) -> Name {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}

pub(crate) fn key(object: &ObjectRef) -> Name {
    (object.kind.clone(), object.namespace.clone().unwrap_or_default(), object.name.clone())
}

/// The same world in another order.
pub(crate) fn shuffled(mut world: World, by: usize) -> World {
    fn turn<T>(list: &mut [T], by: usize) {
        list.reverse();
        if !list.is_empty() {
            list.rotate_left(by % list.len());
        }
    }
    turn(&mut world.apps, by);
    turn(&mut world.tenants, by);
    turn(&mut world.namespaces, by);
    turn(&mut world.services, by);
    turn(&mut world.endpoint_slices, by);
    turn(&mut world.secrets, by);
    turn(&mut world.gateways, by);
    turn(&mut world.listener_sets, by);
    turn(&mut world.http_routes, by);
    turn(&mut world.tls_routes, by);
    turn(&mut world.reference_grants, by);
    turn(&mut world.certificates, by);
    turn(&mut world.security_policies, by);
    turn(&mut world.cluster_issuers, by);
    turn(&mut world.network_policies, by);
    turn(&mut world.ingress_routes_tcp, by);
    turn(&mut world.stateful_sets, by);
    turn(&mut world.deployments, by);
    turn(&mut world.resource_quotas, by);
    turn(&mut world.limit_ranges, by);
    turn(&mut world.config_maps, by);
    turn(&mut world.helm_releases_flux, by);
    turn(&mut world.oci_repositories, by);
    turn(&mut world.helm_repositories, by);
    turn(&mut world.helm_releases, by);
    turn(&mut world.roles, by);
    turn(&mut world.role_bindings, by);
    turn(&mut world.dns_endpoints, by);
    turn(&mut world.cluster_network_policies, by);
    turn(&mut world.admin_network_policies, by);
    world
}

/// Carries out what is planned. Deletions may let an owner go, and what is copied or taken out of a Gateway may open the
/// way for more, which are plans more; then nothing is due (law 1).
///
/// What others made is as it was (law 8), and the statuses tell the truth (laws 5, 6 and 8).
pub(crate) fn settle(cluster: &mut Cluster) {
    let mut others = cluster.of_others();
    let (mut copied, mut provided) = (Vec::new(), Vec::new());
    let mut next = lawful_plan(&cluster.world());
    for _ in 0..8 {
        copied.extend(next.copies.iter().map(|copy| key(&copy.to)));
        provided.extend(next.provision.iter().map(login::secret_of));
        let asks = !next.provision.is_empty() || !next.deprovision.is_empty();
        let leaves = !next.delete.is_empty() || !next.release.is_empty() || asks;
        let hands_over = next.apply.iter().any(|apply| apply.body["spec"]["suspend"] == true);
        let moves = !next.copies.is_empty() || !next.patches.is_empty() || !next.releases.is_empty() || hands_over;
        cluster.execute(&next);
        next = lawful_plan(&cluster.world());
        if !leaves && !moves && !cluster.has_moving_tenants() {
            break;
        }
    }
    next.releases
        .retain(|step| !cluster.settings.failed_releases.contains_key(&format!("{}/{}", step.namespace, step.name)));
    assert!(next.is_empty(), "law 1: a second plan is not empty: {next:#?}");
    let mut after = cluster.of_others();
    after.retain(|name, _| !copied.contains(name) && !provided.contains(name));
    others.retain(|name, _| !provided.contains(name));
    assert_eq!(after, others, "law 8: what others made is not as it was");
    cluster.assert_owners_know();
    cluster.assert_nobody_is_cut_off();
}

/// The plan of a world, whatever its order (law 2), without a fault (law 3).
pub(crate) fn lawful_plan(world: &World) -> Plan {
    let planned = plan(world);
    for by in 0..3 {
        assert_eq!(plan(&shuffled(world.clone(), by)), planned, "law 2: the order of the input matters");
    }
    assert_eq!(audit(world, &planned), [], "law 3: the plan has faults");
    planned
}

/// An object that is named as `Kind/namespace/name`.
fn unreadable(text: &str) -> Unreadable {
    let mut parts = text.split('/');
    let mut part = || parts.next().expect("Kind/namespace/name");
    let (kind, namespace, name) = (part().to_owned(), part(), part());
    let metadata = json!({"name": name, "namespace": namespace, "uid": "unreadable"});
    Unreadable { kind, metadata: serde_json::from_value(metadata).expect("metadata") }
}
