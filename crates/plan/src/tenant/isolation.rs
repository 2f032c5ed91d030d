//! Closes tenants' namespaces: NetworkPolicies of default deny, and where the cluster serves them, a policy of the
//! administrator's that no NetworkPolicy of the tenant's own can undo.

use std::collections::BTreeSet;

use portreeve_api::names::{labels, tenant as derived};
use serde_json::{Value, json};

use super::Tenant;
use super::shards::Shards;
use crate::claim::GatewayName;
use crate::object::Kind;
use crate::tenancy::TenantIsolation;
use crate::view::View;

/// Networks that tenants do not reach: private, shared (RFC 6598), link-local and so the cloud's metadata, loopback, and
/// that through which a NAT64 reaches IPv4 addresses.
const DENIED_V4: [&str; 8] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",
];
const DENIED_V6: [&str; 4] = ["64:ff9b::/96", "fc00::/7", "fe80::/10", "fec0::/10"];

/// Where an administrator's policies stand among each other: the control plane's before the other, and low enough that
/// the platform's own can come first.
const CONTROL_PLANE_PRIORITY: i32 = 900;
const PRIORITY: i32 = 901;

/// The most peers and networks that one rule of an administrator's policy may have.
const MAX_PEERS: usize = 25;

/// What closes a tenant's namespace.
pub(super) struct Isolation<'i, 'a> {
    pub(super) view: &'i View<'a>,
    pub(super) config: &'i TenantIsolation,
    pub(super) tenant: &'i Tenant<'a>,
    /// The Gateways whose data plane reaches the tenant's pods.
    pub(super) gateways: BTreeSet<GatewayName>,
    pub(super) shards: &'i Shards<'a>,
}

/// The kind in which an administrator's policies are written, if the cluster serves one.
pub(super) fn administrators_kind(view: &View<'_>) -> Option<Kind> {
    let kinds = [Kind::ClusterNetworkPolicy, Kind::AdminNetworkPolicy];
    kinds.into_iter().find(|kind| kind.is_served(&view.world.served))
}

impl Isolation<'_, '_> {
    /// `spec` of the NetworkPolicy of all pods.
    pub(super) fn of_all(&self) -> Value {
        let own = json!({ "podSelector": {} });
        let own = || own.clone();
        let ingress = std::iter::once(own()).chain(self.data_planes(&self.gateways)).chain(self.system_namespaces());
        let ingress =
            rules(&ingress.collect::<Vec<_>>(), "from", self.config.extra_ingress.iter().map(|rule| json!(rule)));
        let dns = json!({
            "to": [self.dns()],
            "ports": [{ "protocol": "UDP", "port": 53 }, { "protocol": "TCP", "port": 53 }],
        });
        let peers = std::iter::once(own()).chain(self.data_planes(&self.every_gateway())).chain(self.internet());
        let extra = self.config.extra_egress.iter().map(|rule| json!(rule));
        let egress = rules(&peers.collect::<Vec<_>>(), "to", std::iter::once(dns).chain(extra));
        json!({
            "podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": ingress, "egress": egress,
        })
    }

    /// `spec` of the NetworkPolicy that lets the control plane reach the host's API server; absent where nobody knows
    /// where that is.
    pub(super) fn of_control_plane(&self) -> Option<Value> {
        let (networks, ports) = self.api_server()?;
        let to: Vec<Value> = networks.iter().map(|network| json!({ "ipBlock": { "cidr": network } })).collect();
        let ports: Vec<Value> = ports.iter().map(|port| json!({ "protocol": "TCP", "port": port })).collect();
        Some(json!({
            "podSelector": self.control_plane(), "policyTypes": ["Egress"], "egress": [{ "to": to, "ports": ports }],
        }))
    }

    /// `spec`s of the administrator's policies, by name: what they pass, NetworkPolicies decide.
    pub(super) fn of_administrator(&self, kind: Kind) -> Vec<(String, Value)> {
        let namespace = json!({ "matchLabels": { labels::NAMESPACE_NAME: self.tenant.namespace } });
        let name = derived::admin_policy(self.tenant.name);
        let all = self.administrators(kind, &json!({ "namespaces": namespace }), PRIORITY, &[]);
        let control_plane = self.api_server().map(|(networks, _)| {
            let subject = json!({ "pods": { "namespaceSelector": namespace, "podSelector": self.control_plane() } });
            let networks: Vec<String> = networks.into_iter().collect();
            let spec = self.administrators(kind, &subject, CONTROL_PLANE_PRIORITY, &networks);
            (format!("{name}-control-plane"), spec)
        });
        std::iter::once((name.clone(), all)).chain(control_plane).collect()
    }

    fn administrators(&self, kind: Kind, subject: &Value, priority: i32, api_server: &[String]) -> Value {
        let own = json!({ "namespaces": { "matchLabels": { labels::NAMESPACE_NAME: self.tenant.namespace } } });
        let pods = |peer: Value| json!({ "pods": peer });
        let extra_in = self.config.extra_ingress.iter().filter_map(|rule| json!(rule)["from"].as_array().cloned());
        let extra_out = self.config.extra_egress.iter().filter_map(|rule| json!(rule)["to"].as_array().cloned());
        let system = self.system_namespaces().into_iter().map(pods);
        let ingress = std::iter::once(own.clone())
            .chain(self.data_planes(&self.gateways).into_iter().map(pods))
            .chain(system)
            .chain(extra_in.flatten().filter_map(|peer| self.as_administrators(&peer)));
        let egress = [own, pods(self.dns())]
            .into_iter()
            .chain(self.data_planes(&self.every_gateway()).into_iter().map(pods))
            .chain(networks(api_server))
            .chain(extra_out.flatten().filter_map(|peer| self.as_administrators(&peer)));
        let everybody = json!({ "namespaces": {} });
        let denied: Vec<String> = self.denied().into_iter().collect();
        let out: Vec<Value> = std::iter::once(everybody.clone()).chain(networks(&denied)).collect();
        let decided = |field, passed: Vec<Value>, denied: &[Value]| -> Vec<Value> {
            verdicts(field, "Pass", &passed).chain(verdicts(field, "Deny", denied)).collect()
        };
        let mut spec = json!({
            "subject": subject,
            "priority": priority,
            "ingress": decided("from", ingress.collect(), &[everybody]),
            "egress": decided("to", egress.collect(), &out),
        });
        if kind == Kind::ClusterNetworkPolicy {
            spec["tier"] = "Admin".into();
        }
        spec
    }

    /// A peer of a NetworkPolicy as a peer of an administrator's policy; what an `except` takes out of a network is
    /// passed on too, since NetworkPolicies decide.
    fn as_administrators(&self, peer: &Value) -> Option<Value> {
        if let Some(network) = peer["ipBlock"]["cidr"].as_str() {
            return Some(json!({ "networks": [network] }));
        }
        let here = json!({ "matchLabels": { labels::NAMESPACE_NAME: self.tenant.namespace } });
        let all = json!({});
        let field = |name: &str| Some(&peer[name]).filter(|value| !value.is_null());
        let (namespaces, pods) = (field("namespaceSelector"), field("podSelector"));
        (namespaces.is_some() || pods.is_some()).then(|| {
            json!({ "pods": {
                "namespaceSelector": namespaces.unwrap_or(&here), "podSelector": pods.unwrap_or(&all),
            } })
        })
    }

    fn every_gateway(&self) -> BTreeSet<GatewayName> {
        self.gateways.iter().cloned().chain(self.shards.names()).collect()
    }

    fn data_planes(&self, gateways: &BTreeSet<GatewayName>) -> Vec<Value> {
        let plane = &self.view.world.config.data_plane;
        gateways.iter().map(|gateway| plane.pods_of(gateway)).collect()
    }

    /// Namespace and pods in one peer: some network plugins ignore a peer that names a namespace only.
    fn system_namespaces(&self) -> Vec<Value> {
        let namespaces: BTreeSet<&String> = self.config.system_namespaces.iter().collect();
        let peer = |namespace: &String| {
            json!({
                "namespaceSelector": { "matchLabels": { labels::NAMESPACE_NAME: namespace } }, "podSelector": {},
            })
        };
        namespaces.into_iter().map(peer).collect()
    }

    fn dns(&self) -> Value {
        let (namespace, pods) = match &self.config.dns {
            Some(servers) => (servers.namespace.as_str(), json!(servers.labels)),
            None => ("kube-system", json!({ "k8s-app": "kube-dns" })),
        };
        json!({
            "namespaceSelector": { "matchLabels": { labels::NAMESPACE_NAME: namespace } },
            "podSelector": { "matchLabels": pods },
        })
    }

    fn internet(&self) -> Vec<Value> {
        let (v6, v4): (Vec<String>, Vec<String>) = self.denied().into_iter().partition(|network| network.contains(':'));
        vec![
            json!({ "ipBlock": { "cidr": "0.0.0.0/0", "except": v4 } }),
            json!({ "ipBlock": { "cidr": "::/0", "except": v6 } }),
        ]
    }

    fn denied(&self) -> BTreeSet<String> {
        let fixed = DENIED_V4.into_iter().chain(DENIED_V6).map(str::to_owned);
        fixed.chain(self.config.denied_networks.iter().cloned()).collect()
    }

    /// The pods of the virtual cluster's control plane. A tenant's own pods may bear the same labels, but what is synced
    /// bears vCluster's mark too.
    fn control_plane(&self) -> Value {
        json!({
            "matchLabels": { "app": "vcluster", "release": self.tenant.name },
            "matchExpressions": [{ "key": labels::SYNCED_BY, "operator": "DoesNotExist" }],
        })
    }

    /// Addresses and ports of the host's API server: the Service's and, after translation, those of its endpoints.
    fn api_server(&self) -> Option<(BTreeSet<String>, BTreeSet<i32>)> {
        let spec = self.view.service("default", "kubernetes")?.spec.as_ref()?;
        let of_slices = self.view.world.endpoint_slices.iter().filter(|slice| {
            let labels = slice.metadata.labels.as_ref();
            slice.metadata.namespace.as_deref() == Some("default")
                && labels
                    .and_then(|labels| labels.get("kubernetes.io/service-name"))
                    .is_some_and(|of| of == "kubernetes")
        });
        let mut addresses: BTreeSet<String> = spec.cluster_ip.iter().map(|address| host_network(address)).collect();
        let mut ports: BTreeSet<i32> = spec.ports.iter().flatten().map(|port| port.port).collect();
        for slice in of_slices {
            let endpoints = slice.endpoints.iter().flatten();
            addresses.extend(endpoints.flat_map(|endpoint| &endpoint.addresses).map(|address| host_network(address)));
            ports.extend(slice.ports.iter().flatten().filter_map(|port| port.port));
        }
        Some((addresses, ports)).filter(|(addresses, ports)| !addresses.is_empty() && !ports.is_empty())
    }
}

fn host_network(address: &str) -> String {
    format!("{address}/{}", if address.contains(':') { 128 } else { 32 })
}

/// The first rule with these peers, then the others.
fn rules(peers: &[Value], field: &str, others: impl Iterator<Item = Value>) -> Vec<Value> {
    std::iter::once(json!({ field: peers })).chain(others).collect()
}

fn networks(all: &[String]) -> Vec<Value> {
    all.chunks(MAX_PEERS).map(|networks| json!({ "networks": networks })).collect()
}

fn verdicts(field: &'static str, action: &'static str, peers: &[Value]) -> impl Iterator<Item = Value> + use<> {
    let chunks: Vec<Vec<Value>> = peers.chunks(MAX_PEERS).map(<[Value]>::to_vec).collect();
    chunks.into_iter().map(move |peers| json!({ "action": action, field: peers }))
}
