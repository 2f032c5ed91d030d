use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::answer::{Answer, Doubt};
use super::{Connection, Direction, PodPort, Way, ip_block};
use crate::index::{Index, name_of};

/// One rule, whichever way it is for. No peers are all peers, no ports are all ports.
struct Rule<'a> {
    peers: &'a [NetworkPolicyPeer],
    ports: &'a [NetworkPolicyPort],
}

/// Whether a NetworkPolicy isolates the connection's own end in its direction.
pub(super) fn isolates(policy: &NetworkPolicy, connection: &Connection<'_>) -> Answer {
    let Some(spec) = &policy.spec else { return Answer::No };
    if name_of(&policy.metadata).0 != connection.own.namespace || !concerns(spec, connection.direction) {
        return Answer::No;
    }
    connection.own.are_selected(spec.pod_selector.as_ref())
}

/// Whether a rule of a NetworkPolicy lets the connection through.
pub(super) fn allows<'a>(
    policy: &'a NetworkPolicy,
    index: &Index<'a>,
    connection: &Connection<'a>,
    way: Way<'_>,
) -> Answer {
    let home = name_of(&policy.metadata).0;
    Answer::any(rules(policy, connection.direction).into_iter().map(|rule| {
        let peers = rule.peers.iter().map(|peer| is_peer(peer, home, index, connection, way));
        let ports = rule.ports.iter().map(|port| is_port(port, way.port, connection));
        let (any_peer, any_port) = (rule.peers.is_empty().into(), rule.ports.is_empty().into());
        Answer::all([Answer::any(peers.chain([any_peer])), Answer::any(ports.chain([any_port]))])
    }))
}

/// Without `policyTypes` it is about ingress, and about egress if it has rules for that.
fn concerns(spec: &NetworkPolicySpec, direction: Direction) -> bool {
    let types = spec.policy_types.as_deref().unwrap_or_default();
    if !types.is_empty() {
        return types.iter().any(|name| name == direction.as_str());
    }
    match direction {
        Direction::Ingress => true,
        Direction::Egress => spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}

fn rules(policy: &NetworkPolicy, direction: Direction) -> Vec<Rule<'_>> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    match direction {
        Direction::Ingress => {
            let rules = spec.ingress.iter().flatten();
            rules.map(|rule| Rule { peers: some(rule.from.as_ref()), ports: some(rule.ports.as_ref()) }).collect()
        }
        Direction::Egress => {
            let rules = spec.egress.iter().flatten();
            rules.map(|rule| Rule { peers: some(rule.to.as_ref()), ports: some(rule.ports.as_ref()) }).collect()
        }
    }
}

fn some<T>(list: Option<&Vec<T>>) -> &[T] {
    list.map_or(&[], Vec::as_slice)
}

/// `home` is the namespace of the NetworkPolicy.
fn is_peer<'a>(
    peer: &'a NetworkPolicyPeer,
    home: &str,
    index: &Index<'a>,
    connection: &Connection<'a>,
    way: Way<'_>,
) -> Answer {
    let pods = connection.peer;
    if let Some(block) = &peer.ip_block {
        let unknown = || Doubt::Address { namespace: pods.namespace.clone() }.into();
        return way.peer_address.map_or_else(unknown, |address| ip_block::contains(block, address));
    }
    let namespace = match &peer.namespace_selector {
        Some(selector) => pods.live_in(index, selector),
        // A peer that names nothing is refused by API servers.
        None if peer.pod_selector.is_none() => Answer::No,
        // Of what selects no Pods it is not known where it lives; `are_selected` says so.
        None => (pods.labels.is_none() || pods.namespace == home).into(),
    };
    Answer::all([namespace, pods.are_selected(peer.pod_selector.as_ref())])
}

fn is_port(port: &NetworkPolicyPort, actual: &PodPort, connection: &Connection<'_>) -> Answer {
    if port.protocol.as_deref().unwrap_or("TCP") != "TCP" {
        return Answer::No;
    }
    match &port.port {
        None => Answer::Yes,
        Some(IntOrString::String(name)) if actual.name.as_ref() == Some(name) => Answer::Yes,
        Some(IntOrString::String(name)) => {
            Doubt::PortName { name: name.clone(), namespace: connection.destination().namespace.clone() }.into()
        }
        Some(IntOrString::Int(first)) => match actual.number {
            Some(number) => (*first..=port.end_port.unwrap_or(*first)).contains(&number.into()).into(),
            None => Doubt::PortNumber.into(),
        },
    }
}

impl Direction {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        }
    }
}
