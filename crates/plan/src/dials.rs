//! Which ports of Gateways to connect to, and what was found earlier.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gateway_api::listenersets::ListenerSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use portreeve_api::conditions::reasons;
use portreeve_api::names::tenant as derived;

use crate::claim::GatewayName;
use crate::gateway::{SharedGateway, gateways_behind};
use crate::object::Live;
use crate::tenancy::DialResult;
use crate::view::name_of;
use crate::world::World;

/// The condition of a Tenant that tells what came of dialling its API server.
const API_SERVER_REACHABLE: &str = "APIServerReachable";

/// A Gateway whose ports are to be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPorts {
    /// The Gateway.
    pub gateway: GatewayName,
    /// Where its ports may be reached: the Services of its data plane by their cluster IPs, then what its controller says.
    pub addresses: Vec<String>,
    /// The ports: those of Portreeve's listeners that are programmed, and those of the Gateway's own beside them, which
    /// tell whether the Gateway can be reached at all.
    pub ports: BTreeSet<u16>,
}

/// The ports to connect to, as a function of what is served. Gateways without addresses, or without a listener of
/// Portreeve that is programmed, are not among them.
pub fn ports_to_dial(world: &World) -> Vec<GatewayPorts> {
    let mut ours: HashMap<(&str, &str), BTreeSet<u16>> = HashMap::new();
    for set in world.listener_sets.iter().filter(|set| Live::ListenerSet(set).is_made()) {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let parent = &set.spec.parent_ref;
        let gateway = (parent.namespace.as_deref().unwrap_or(namespace), parent.name.as_str());
        ours.entry(gateway).or_default().extend(programmed_ports(set));
    }
    let gateways = world.gateways.iter().filter_map(|object| {
        let (namespace, name) = name_of(&**object);
        let mut ports = ours.remove(&(namespace, name)).filter(|ports| !ports.is_empty())?;
        let own = object.spec.listeners.iter().filter(|listener| listener.protocol != "UDP");
        ports.extend(own.filter_map(|listener| u16::try_from(listener.port).ok()));
        let addresses: Vec<_> =
            cluster_ips(world, (namespace, name)).chain(SharedGateway { object }.addresses()).collect();
        let gateway = GatewayName::new(namespace, name);
        (!addresses.is_empty()).then_some(GatewayPorts { gateway, addresses, ports })
    });
    let mut gateways: Vec<_> = gateways.collect();
    gateways.sort_by(|one, other| one.gateway.cmp(&other.gateway));
    gateways
}

/// Ports that did not answer when they were dialled last, as owners' statuses tell: what a shell starts from that has not
/// dialled yet, so that no condition changes because another replica leads.
pub fn remembered_dials(world: &World) -> BTreeMap<(GatewayName, u16), String> {
    let mut found = BTreeMap::new();
    for app in &world.apps {
        let Some(status) = &app.status else { continue };
        let of_entries = status.tcp.iter().flat_map(|entry| &entry.conditions);
        for condition in status.conditions.iter().chain(of_entries) {
            if let Some((port, why)) = failure(condition) {
                let gateway = GatewayName::of_app(app.spec.gateway);
                found.insert((gateway, port), why.to_owned());
            }
        }
    }
    found
}

/// What came of dialling tenants' API servers last, by host name, as the tenants' statuses tell: see [`remembered_dials`].
pub fn remembered_proofs(world: &World) -> BTreeMap<String, DialResult> {
    let Some(api) = &world.config.tenant_api else { return BTreeMap::new() };
    let proofs = world.tenants.iter().filter_map(|tenant| {
        let conditions = &tenant.status.as_ref()?.conditions;
        let proof = proof(conditions.iter().find(|condition| condition.type_ == API_SERVER_REACHABLE)?)?;
        Some((derived::api_hostname(tenant.metadata.name.as_deref()?, &api.domain), proof))
    });
    proofs.collect()
}

fn proof(condition: &Condition) -> Option<DialResult> {
    let why = condition.message.clone();
    Some(match condition.reason.as_str() {
        _ if condition.status == "True" => DialResult::Proved,
        "SANMissing" => DialResult::SanMissing(why.strip_prefix(NOT_COVERED).map(str::to_owned).unwrap_or(why)),
        "Terminated" => DialResult::Terminated(why),
        "NoRoute" => DialResult::NoRoute(why),
        "ConnectFailed" => DialResult::ConnectFailed(why),
        _ => return None,
    })
}

/// What comes before the names of a certificate that lacks the public one.
const NOT_COVERED: &str =
    "the API server's certificate does not cover its public name: add that to those that it is for, ";

/// What a condition says about an API server's certificate that is for these names only.
pub(crate) fn not_covered(names: &str) -> String {
    format!("{NOT_COVERED}{names}")
}

/// What a condition says about a port that does not answer.
pub(crate) fn describe(port: u16, why: &str) -> String {
    format!("port {port} does not answer: {why}")
}

/// Reads what [`describe`] wrote.
fn failure(condition: &Condition) -> Option<(u16, &str)> {
    let told = condition.message.strip_prefix("port ").filter(|_| condition.reason == reasons::DIAL_FAILED)?;
    let (port, why) = told.split_once(" does not answer: ")?;
    Some((port.parse().ok()?, why))
}

fn programmed_ports(set: &ListenerSet) -> impl Iterator<Item = u16> {
    let entries = set.status.as_ref().and_then(|status| status.listeners.as_ref());
    let programmed: BTreeSet<_> = entries
        .into_iter()
        .flatten()
        .filter(|entry| entry.conditions.iter().any(|one| one.type_ == "Programmed" && one.status == "True"))
        .map(|entry| entry.name.as_str())
        .collect();
    let listeners = set.spec.listeners.iter().filter(move |listener| programmed.contains(listener.name.as_str()));
    listeners.filter_map(|listener| u16::try_from(listener.port).ok())
}

fn cluster_ips<'w>(world: &'w World, gateway: (&'w str, &'w str)) -> impl Iterator<Item = String> + 'w {
    let services = world.services.iter().filter(move |service| gateways_behind(service).any(|one| one == gateway));
    services
        .filter_map(|service| service.spec.as_ref()?.cluster_ip.clone())
        .filter(|ip| !matches!(ip.as_str(), "" | "None"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::{Config, TenantApi};

    fn world() -> World {
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "nebari-gateway", "namespace": "envoy-gateway-system"},
            "spec": {"gatewayClassName": "x", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
            "status": {"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}]},
        });
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "envoy", "namespace": "envoy-gateway-system", "labels": {
                "gateway.envoyproxy.io/owning-gateway-namespace": "envoy-gateway-system",
                "gateway.envoyproxy.io/owning-gateway-name": "nebari-gateway",
            }},
            "spec": {"clusterIP": "10.96.0.7"},
        });
        World {
            gateways: vec![Arc::new(serde_json::from_value(gateway).unwrap())],
            services: vec![Arc::new(serde_json::from_value(service).unwrap())],
            ..World::default()
        }
    }

    fn listener_set(labels: &Value, programmed: &str) -> Arc<ListenerSet> {
        let entry = |name: &str, status: &str| {
            json!({"name": name, "attachedRoutes": 0, "supportedKinds": [], "conditions": [{
                "type": "Programmed", "status": status, "reason": "x", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]})
        };
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": {
                "name": "hub-listeners", "namespace": "team", "labels": labels,
                "managedFields": [{"manager": "portreeve", "operation": "Apply", "fieldsV1": {}}],
            },
            "spec": {
                "parentRef": {"name": "nebari-gateway", "namespace": "envoy-gateway-system"},
                "listeners": [
                    {"name": "a", "port": 8786, "protocol": "TLS"}, {"name": "b", "port": 8787, "protocol": "TLS"},
                ],
            },
            "status": {"listeners": [entry("a", programmed), entry("b", "False")]},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn programmed_listeners_of_ours_are_dialled_and_the_gateways_own_beside_them() {
        let ours = json!({"app.kubernetes.io/managed-by": "nebari-operator", "app.kubernetes.io/name": "nebariapp",
            "app.kubernetes.io/instance": "hub"});
        let dialled = |set| {
            let world = World { listener_sets: vec![set], ..world() };
            ports_to_dial(&world).into_iter().map(|one| (one.addresses, Vec::from_iter(one.ports))).collect::<Vec<_>>()
        };
        let addresses = ["10.96.0.7", "192.0.2.1"].map(str::to_owned).to_vec();
        assert_eq!(dialled(listener_set(&ours, "True")), [(addresses, vec![80, 8786])]);
        assert_eq!(dialled(listener_set(&ours, "False")), []);
        assert_eq!(dialled(listener_set(&json!({}), "True")), [], "somebody else's");
    }

    #[test]
    fn what_a_status_tells_of_a_port_is_read_again() {
        let app = json!({
            "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp",
            "metadata": {"name": "hub", "namespace": "team"},
            "spec": {"hostname": "hub.test", "service": {"name": "hub", "port": 80}},
            "status": {"tcp": [{
                "name": "tls", "port": 8786, "mode": "Passthrough", "routeManagement": "App",
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": reasons::DIAL_FAILED,
                    "message": describe(8786, "connection refused"), "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            }]},
        });
        let world = World { apps: vec![Arc::new(serde_json::from_value(app).unwrap())], ..World::default() };
        let gateway = GatewayName::new("envoy-gateway-system", "nebari-gateway");
        assert_eq!(remembered_dials(&world), [((gateway, 8786), "connection refused".to_owned())].into());
    }
    #[test]
    fn what_a_status_tells_of_an_api_server_is_read_again() {
        let tenant = |name: &str, status: &str, reason: &str| {
            let object = json!({
                "apiVersion": "kubespaces.io/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
                "spec": {"owner": "me"},
                "status": {"conditions": [{
                    "type": API_SERVER_REACHABLE, "status": status, "reason": reason, "message": "why",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }]},
            });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let api = TenantApi {
            gateway_namespace: "a".to_owned(),
            gateway_name: "g".to_owned(),
            section: None,
            domain: "test".to_owned(),
            external_dns_target: None,
        };
        let world = World {
            config: Config { tenant_api: Some(api), ..Config::default() },
            tenants: vec![
                tenant("blue", "True", "x"),
                tenant("red", "False", "NoRoute"),
                tenant("new", "Unknown", "Pending"),
            ],
            ..World::default()
        };
        let known = [
            ("blue.api.test".to_owned(), DialResult::Proved),
            ("red.api.test".to_owned(), DialResult::NoRoute("why".to_owned())),
        ];
        assert_eq!(remembered_proofs(&world), known.into());
    }
}
