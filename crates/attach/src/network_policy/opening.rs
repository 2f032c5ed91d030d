use std::collections::BTreeSet;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Map, Value, json};

use super::{Connection, Direction, PodLabels, PodPort, Pods};
use crate::index::{NAMESPACE_NAME_LABEL, name_of};

/// The most characters in the name of an object.
const MAX_NAME: usize = 253;

/// The narrowest NetworkPolicy that lets a hop through, under a name that is free; absent where an end cannot be named.
///
/// It isolates nothing new as long as the connection's own end is isolated in this direction already.
pub(crate) fn opening<'a>(
    policies: impl Iterator<Item = &'a NetworkPolicy>,
    name: &str,
    connection: &Connection<'_>,
) -> Option<Value> {
    let own = connection.own;
    let selector = selector(own.labels.as_ref()?);
    let in_namespace =
        policies.map(|policy| name_of(&policy.metadata)).filter(|(namespace, _)| *namespace == own.namespace);
    let name = free_name(name, &in_namespace.map(|(_, name)| name).collect());
    let (rules, peers) = match connection.direction {
        Direction::Ingress => ("ingress", "from"),
        Direction::Egress => ("egress", "to"),
    };
    let named_peers = Some(peer(connection)).filter(|peers| !peers.is_empty())?;
    let mut rule = Map::from_iter([(peers.to_owned(), named_peers.into())]);
    let ports = ports(connection.ports);
    if !ports.is_empty() {
        rule.insert("ports".to_owned(), ports.into());
    }
    Some(json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": own.namespace},
        "spec": {"podSelector": selector, "policyTypes": [connection.direction.as_str()], rules: [rule]},
    }))
}

/// Namespace and Pods in one peer: apart they would mean all Pods of the one, and such Pods in the policy's namespace.
fn peer(connection: &Connection<'_>) -> Vec<Value> {
    let Pods { namespace, labels, addresses } = connection.peer;
    let Some(labels) = labels else {
        let width = |address: &std::net::IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let blocks = addresses.iter().map(|address| format!("{address}/{}", width(address)));
        return blocks.map(|cidr| json!({"ipBlock": {"cidr": cidr}})).collect();
    };
    vec![json!({
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME_LABEL: namespace}},
        "podSelector": selector(labels),
    })]
}

fn selector(labels: &PodLabels) -> Value {
    let mut selector = Map::new();
    let present: Map<_, _> =
        labels.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?.into()))).collect();
    let absent: Vec<_> = labels
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(key, _)| json!({"key": key, "operator": "DoesNotExist"}))
        .collect();
    if !present.is_empty() {
        selector.insert("matchLabels".to_owned(), present.into());
    }
    if !absent.is_empty() {
        selector.insert("matchExpressions".to_owned(), absent.into());
    }
    selector.into()
}

/// A port is named only where its number is not known; one of which neither is known leaves all ports open.
fn ports(ports: &[PodPort]) -> Vec<Value> {
    let distinct: BTreeSet<_> = ports.iter().map(|port| (port.number, &port.name)).collect();
    let values = distinct.into_iter().map(|(number, name)| match (number, name) {
        (Some(number), _) => Some(json!(number)),
        (None, name) => name.as_ref().map(|name| json!(name)),
    });
    let values: Option<Vec<_>> = values.collect();
    let mut values: Vec<_> = values.unwrap_or_default();
    values.dedup();
    values.into_iter().map(|port| json!({"protocol": "TCP", "port": port})).collect()
}

/// The name, or with a number if a policy has it: one that is there opens something else.
fn free_name(name: &str, taken: &BTreeSet<&str>) -> String {
    let mut candidate = fitting(name, "");
    let mut number = 2;
    while taken.contains(candidate.as_str()) {
        candidate = fitting(name, &format!("-{number}"));
        number += 1;
    }
    candidate
}

fn fitting(name: &str, suffix: &str) -> String {
    let name: String = name.chars().take(MAX_NAME - suffix.len()).collect();
    name.trim_end_matches(['-', '.']).to_owned() + suffix
}
