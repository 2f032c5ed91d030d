//! Policies of administrators, which stand above NetworkPolicies or below them: `ClusterNetworkPolicy` and
//! `AdminNetworkPolicy` (`policy.networking.k8s.io`).
//!
//! Unlike NetworkPolicies they are in order, and the first rule that matches decides.

use std::collections::BTreeSet;

use k8s_openapi::api::networking::v1::IPBlock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, Doubt};
use super::{Connection, Dependence, Direction, PodPort, Pods, Way, ip_block};
use crate::index::Index;

/// One of them, whichever kind it is of.
#[derive(Clone, Debug)]
pub struct AdminPolicy {
    /// `kind name`.
    called: String,
    spec: Spec,
}

/// What the policies of one tier make of a way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing, or they pass it on.
    None,
    Accepted(String),
    Denied(String),
    Unknown(BTreeSet<Dependence>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    tier: Option<String>,
    #[serde(default)]
    priority: i64,
    subject: Peer,
    #[serde(default)]
    ingress: Vec<Rule>,
    #[serde(default)]
    egress: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
struct Rule {
    action: String,
    #[serde(default)]
    from: Vec<Peer>,
    #[serde(default)]
    to: Vec<Peer>,
    /// Of an `AdminNetworkPolicy`.
    #[serde(default)]
    ports: Vec<Value>,
    /// Of a `ClusterNetworkPolicy`.
    #[serde(default)]
    protocols: Vec<Value>,
}

/// One of these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Peer {
    namespaces: Option<LabelSelector>,
    pods: Option<NamespacedPods>,
    networks: Option<Vec<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamespacedPods {
    namespace_selector: LabelSelector,
    pod_selector: LabelSelector,
}

impl AdminPolicy {
    /// Reads the `spec` of an object; absent where it is none.
    pub fn read(kind: &str, name: &str, spec: Value) -> Option<Self> {
        Some(Self { called: format!("{kind} {name}"), spec: serde_json::from_value(spec).ok()? })
    }

    fn is_baseline(&self) -> bool {
        self.spec.tier.as_deref() == Some("Baseline")
    }

    fn rules(&self, direction: Direction) -> &[Rule] {
        match direction {
            Direction::Ingress => &self.spec.ingress,
            Direction::Egress => &self.spec.egress,
        }
    }
}

/// What those above NetworkPolicies, or those below, make of a way.
pub(super) fn decide<'a>(
    policies: impl Iterator<Item = &'a AdminPolicy>,
    baseline: bool,
    index: &Index<'a>,
    connection: &Connection<'a>,
    way: Way<'_>,
) -> Decision {
    let mut tier: Vec<_> = policies.filter(|policy| policy.is_baseline() == baseline).collect();
    tier.sort_by_key(|policy| (policy.spec.priority, policy.called.as_str()));
    let rules =
        tier.into_iter().flat_map(|policy| policy.rules(connection.direction).iter().map(move |rule| (policy, rule)));
    let rules: Vec<_> = rules.collect();
    rules.into_iter().rev().fold(Decision::None, |rest, (policy, rule)| {
        let own = rule.decision(policy);
        match rule.matches(policy, index, connection, way) {
            Answer::Yes => own,
            Answer::No => rest,
            Answer::Unknown(_) if own.is_same(&rest) => rest,
            Answer::Unknown(doubts) => rest.or_depends(policy, doubts),
        }
    })
}

impl Decision {
    fn is_same(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// It depends on these, and on what it depended on before.
    fn or_depends(self, policy: &AdminPolicy, doubts: BTreeSet<Doubt>) -> Self {
        let mut because = if let Self::Unknown(because) = self { because } else { BTreeSet::new() };
        because.extend(doubts.into_iter().map(|doubt| Dependence { policy: policy.called.clone(), doubt }));
        Self::Unknown(because)
    }
}

impl Rule {
    fn decision(&self, policy: &AdminPolicy) -> Decision {
        match self.action.as_str() {
            "Accept" | "Allow" => Decision::Accepted(policy.called.clone()),
            "Deny" => Decision::Denied(policy.called.clone()),
            _ => Decision::None,
        }
    }

    fn matches<'a>(
        &'a self,
        policy: &'a AdminPolicy,
        index: &Index<'a>,
        connection: &Connection<'a>,
        way: Way<'_>,
    ) -> Answer {
        let subject = policy.spec.subject.has(connection.own, index, None);
        let peers = match connection.direction {
            Direction::Ingress => &self.from,
            Direction::Egress => &self.to,
        };
        let is_peer = Answer::any(peers.iter().map(|peer| peer.has(connection.peer, index, Some(way))));
        let ports = self.ports.iter().map(|port| is_port(port, way.port));
        let protocols = self.protocols.iter().map(|protocol| is_protocol(protocol, way.port));
        let any_port = self.ports.is_empty() && self.protocols.is_empty();
        Answer::all([subject, is_peer, Answer::any(ports.chain(protocols).chain([any_port.into()]))])
    }
}

impl Peer {
    fn has<'a>(&'a self, pods: &'a Pods, index: &Index<'a>, way: Option<Way<'_>>) -> Answer {
        if let Some(namespaces) = &self.namespaces {
            return pods.live_in(index, namespaces);
        }
        if let Some(NamespacedPods { namespace_selector, pod_selector }) = &self.pods {
            return Answer::all([pods.live_in(index, namespace_selector), pods.are_selected(Some(pod_selector))]);
        }
        let networks = self.networks.iter().flatten().map(|cidr| {
            let block = IPBlock { cidr: cidr.clone(), except: None };
            match way.and_then(|way| way.peer_address) {
                Some(address) => ip_block::contains(&block, address),
                None => Doubt::Address { namespace: pods.namespace.clone() }.into(),
            }
        });
        // Nodes and names outside the cluster are no Pods.
        Answer::any(networks)
    }
}

/// `portNumber`, `portRange` or `namedPort` of an `AdminNetworkPolicy`.
fn is_port(port: &Value, actual: &PodPort) -> Answer {
    let (number, range) = (&port["portNumber"], &port["portRange"]);
    if let Some(name) = port["namedPort"].as_str() {
        return (actual.name.as_deref() == Some(name)).into();
    }
    let protocol = if range.is_null() { number } else { range }["protocol"].as_str();
    let ends = if range.is_null() { (&number["port"], &number["port"]) } else { (&range["start"], &range["end"]) };
    within(protocol.is_none_or(|protocol| protocol == "TCP"), ends, actual)
}

/// `tcp.destinationPort` of a `ClusterNetworkPolicy`; without it, all ports of the protocol.
fn is_protocol(protocol: &Value, actual: &PodPort) -> Answer {
    if let Some(name) = protocol["destinationNamedPort"].as_str() {
        return (actual.name.as_deref() == Some(name)).into();
    }
    let Some(tcp) = protocol.get("tcp") else { return Answer::No };
    let port = &tcp["destinationPort"];
    if port.is_null() {
        return Answer::Yes;
    }
    let range = &port["range"];
    let ends = if range.is_null() { (&port["number"], &port["number"]) } else { (&range["start"], &range["end"]) };
    within(true, ends, actual)
}

fn within(is_tcp: bool, (first, last): (&Value, &Value), actual: &PodPort) -> Answer {
    match (is_tcp, actual.number) {
        (false, _) => Answer::No,
        (true, None) => Doubt::PortNumber.into(),
        (true, Some(number)) => {
            let number = u64::from(number);
            (first.as_u64().is_some_and(|first| first <= number) && last.as_u64().is_some_and(|last| number <= last))
                .into()
        }
    }
}
