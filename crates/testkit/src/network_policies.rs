//! NetworkPolicies, enforced: nftables rules in the hosts that stand for Pods.
//!
//! This is a network plugin of its own and shares nothing with what Portreeve thinks of NetworkPolicies, so that the one is a
//! test of the other.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::Stdio;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::bed::Bed;
use crate::network::Host;

type Labels = BTreeMap<String, String>;

impl Bed {
    /// Makes a host stand for a Pod that runs: NetworkPolicies see it with these labels, and selectors of Services that are
    /// read by an operator select it. Its namespace has to exist.
    pub async fn run_as_pod(
        &self,
        host: &Host,
        namespace: &str,
        name: &str,
        labels: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let address = host.address();
        let containers = json!([{"name": "main", "image": "none"}]);
        let spec = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}});
        let status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "True"}]}});
        self.apply(&spec.to_string()).await?;
        self.apply_status(&status.to_string()).await
    }

    /// Enforces the NetworkPolicies that there are now, in every host that stands for a Pod; what changes afterwards needs
    /// another call. Packets that are not let through are dropped, connections that were made after the first call live on, and
    /// the node is always let through, all as network plugins do.
    ///
    /// A connection of such a host to an address and port of a Service of type `LoadBalancer`, as [`Bed::publish_gateway`]
    /// makes one, leaves for the Pods' port first, so that policies see that one: 10443 for the gateway's 443.
    ///
    /// Named ports are not known, since hosts have no containers: a policy with one is refused.
    pub async fn enforce_network_policies(&self) -> anyhow::Result<()> {
        let cluster = Cluster::of(self).await?;
        for host in self.hosts() {
            if let Some(pod) = cluster.pods.iter().find(|pod| pod.address == host.address()) {
                load(&host, &cluster.table(pod)?)?;
            }
        }
        Ok(())
    }
}

/// What decides who may reach whom.
struct Cluster {
    node: Ipv4Addr,
    namespaces: BTreeMap<String, Labels>,
    pods: Vec<RunningPod>,
    policies: Vec<NetworkPolicy>,
    mapped: Vec<MappedPort>,
}

/// A Pod with an address.
struct RunningPod {
    namespace: String,
    labels: Labels,
    address: Ipv4Addr,
}

/// A port of a load balancer that is another one in the Pods.
struct MappedPort {
    address: Ipv4Addr,
    port: i32,
    pod_port: i32,
}

/// One rule, whichever way it is for.
struct Rule<'a> {
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ingress,
    Egress,
}

impl Cluster {
    async fn of(bed: &Bed) -> anyhow::Result<Self> {
        let everything = ListParams::default();
        let namespaces = Api::<Namespace>::all(bed.client()).list(&everything).await?;
        let pods = Api::<Pod>::all(bed.client()).list(&everything).await?;
        let services = Api::<Service>::all(bed.client()).list(&everything).await?;
        let policies = Api::<NetworkPolicy>::all(bed.client()).list(&everything).await?;
        Ok(Self {
            node: bed.node().address(),
            namespaces: namespaces.into_iter().map(|one| (one.name_any(), one.labels().clone())).collect(),
            pods: pods.into_iter().filter_map(|pod| RunningPod::of(&pod)).collect(),
            policies: policies.items,
            mapped: services.into_iter().flat_map(|service| mapped_ports(&service)).collect(),
        })
    }

    /// What a Pod's host does with packets, as nftables reads it; it takes the place of what was loaded before.
    fn table(&self, pod: &RunningPod) -> anyhow::Result<String> {
        let mut chains = self.port_chains(pod);
        for way in [Way::Ingress, Way::Egress] {
            chains += &self.isolation(pod, way)?;
        }
        // The chains stay and only their rules are replaced: without them the kernel would forget its connections.
        Ok(format!("table ip policies {{}}\nflush table ip policies\ntable ip policies {{\n{chains}}}\n"))
    }

    /// The part of kube-proxy; the servers in the gateway's host listen on the ports that clients know.
    fn port_chains(&self, pod: &RunningPod) -> String {
        let to_pods = self.mapped.iter().map(|MappedPort { address, port, pod_port }| {
            format!("ip daddr {address} tcp dport {port} dnat to {address}:{pod_port}\n")
        });
        let own = self.mapped.iter().filter(|mapped| mapped.address == pod.address);
        let to_servers = own.map(|mapped| format!("tcp dport {} redirect to :{}\n", mapped.pod_port, mapped.port));
        format!(
            "chain services {{\ntype nat hook output priority -100;\n{}}}\n\
             chain servers {{\ntype nat hook prerouting priority -100;\n{}}}\n",
            to_pods.collect::<String>(),
            to_servers.collect::<String>()
        )
    }

    /// What a Pod may receive or send: everything, unless something isolates it.
    fn isolation(&self, pod: &RunningPod, way: Way) -> anyhow::Result<String> {
        // What arrives is judged before its port is changed, what is sent afterwards: by the Pod's port both times.
        let (chain, hook, address, interface) = match way {
            Way::Ingress => ("ingress", "prerouting priority -150", "saddr", "iifname"),
            Way::Egress => ("egress", "output priority 0", "daddr", "oifname"),
        };
        let isolating = self.policies.iter().filter(|policy| way.isolates(policy, pod)).collect::<Vec<_>>();
        let policy = if isolating.is_empty() { "accept" } else { "drop" };
        let mut lines = format!(
            "chain {chain} {{\ntype filter hook {hook}; policy {policy};\nct state established,related accept\n\
             {interface} \"lo\" accept\nip {address} {} accept\n",
            self.node
        );
        for policy in isolating {
            for rule in way.rules(policy) {
                let ports = ports(rule.ports).with_context(|| format!("NetworkPolicy {}", policy.name_any()))?;
                for peer in self.peers(rule.peers, &policy.namespace().unwrap_or_default(), address) {
                    lines.extend(ports.iter().map(|port| format!("{peer} {port} accept\n")));
                }
            }
        }
        Ok(lines + "}\n")
    }

    /// Matches on the other end, each enough. `home` is the policy's namespace.
    fn peers(&self, peers: &[NetworkPolicyPeer], home: &str, address: &str) -> Vec<String> {
        if peers.is_empty() {
            return vec![String::new()];
        }
        let one = |peer: &NetworkPolicyPeer| {
            if let Some(block) = &peer.ip_block {
                // The bed's network is one of IPv4.
                if block.cidr.contains(':') {
                    return Vec::new();
                }
                let except = block.except.iter().flatten().map(|cidr| format!(" ip {address} != {cidr}"));
                return vec![format!("ip {address} {}{}", block.cidr, except.collect::<String>())];
            }
            let selected = self.pods.iter().filter(|pod| self.is_selected(pod, peer, home));
            selected.map(|pod| format!("ip {address} {}", pod.address)).collect()
        };
        peers.iter().flat_map(one).collect()
    }

    fn is_selected(&self, pod: &RunningPod, peer: &NetworkPolicyPeer, home: &str) -> bool {
        let in_namespace = match &peer.namespace_selector {
            Some(selector) => self.namespaces.get(&pod.namespace).is_some_and(|labels| selects(selector, labels)),
            None => pod.namespace == home,
        };
        in_namespace && peer.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pod.labels))
    }
}

impl RunningPod {
    fn of(pod: &Pod) -> Option<Self> {
        let address = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
        Some(Self { namespace: pod.namespace()?, labels: pod.labels().clone(), address })
    }
}

impl Way {
    fn isolates(self, policy: &NetworkPolicy, pod: &RunningPod) -> bool {
        let Some(spec) = &policy.spec else { return false };
        let is_of_type = match (spec.policy_types.as_deref().unwrap_or_default(), self) {
            ([], Self::Ingress) => true,
            ([], Self::Egress) => spec.egress.is_some(),
            (types, Self::Ingress) => types.iter().any(|one| one == "Ingress"),
            (types, Self::Egress) => types.iter().any(|one| one == "Egress"),
        };
        let selector = spec.pod_selector.clone().unwrap_or_default();
        is_of_type && policy.namespace().as_deref() == Some(&pod.namespace) && selects(&selector, &pod.labels)
    }

    fn rules(self, policy: &NetworkPolicy) -> Vec<Rule<'_>> {
        let Some(spec) = &policy.spec else { return Vec::new() };
        match self {
            Self::Ingress => {
                let rules = spec.ingress.iter().flatten();
                rules.map(|rule| Rule { peers: all(rule.from.as_ref()), ports: all(rule.ports.as_ref()) }).collect()
            }
            Self::Egress => {
                let rules = spec.egress.iter().flatten();
                rules.map(|rule| Rule { peers: all(rule.to.as_ref()), ports: all(rule.ports.as_ref()) }).collect()
            }
        }
    }
}

fn all<T>(list: Option<&Vec<T>>) -> &[T] {
    list.map(Vec::as_slice).unwrap_or_default()
}

/// Matches on the port that is connected to, each enough.
fn ports(ports: &[NetworkPolicyPort]) -> anyhow::Result<Vec<String>> {
    if ports.is_empty() {
        return Ok(vec![String::new()]);
    }
    let one = |port: &NetworkPolicyPort| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
        Ok(match (&port.port, port.end_port) {
            (None, _) => format!("meta l4proto {protocol}"),
            (Some(IntOrString::Int(first)), None) => format!("{protocol} dport {first}"),
            (Some(IntOrString::Int(first)), Some(last)) => format!("{protocol} dport {first}-{last}"),
            (Some(IntOrString::String(name)), _) => anyhow::bail!("the kit does not know which port is called {name}"),
        })
    };
    ports.iter().map(one).collect()
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let listed = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    listed
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = labels.get(&expression.key);
            let is_listed = value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
            match expression.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

fn mapped_ports(service: &Service) -> Vec<MappedPort> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()?.first());
    let Some(address) = ingress.and_then(|ingress| ingress.ip.as_ref()?.parse().ok()) else { return Vec::new() };
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mapped = ports.filter_map(|port| match port.target_port {
        Some(IntOrString::Int(pod_port)) if pod_port != port.port => {
            Some(MappedPort { address, port: port.port, pod_port })
        }
        _ => None,
    });
    mapped.collect()
}

fn load(host: &Host, table: &str) -> anyhow::Result<()> {
    let mut command = host.command("nft");
    let child = command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.context("failed to run nft: `cargo xtask bed` installs it (Debian package nftables)")?;
    child.stdin.take().context("nft has a standard input")?.write_all(table.as_bytes())?;
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nft failed in {}: {complaint}\n{table}", host.namespace());
    Ok(())
}
