//! Policies of administrators beside NetworkPolicies.

use std::sync::Arc;

use serde_json::Value;

use super::*;
use crate::Objects;

const KINDS: [&str; 2] = ["ClusterNetworkPolicy", "AdminNetworkPolicy"];

fn of(kind: &str, name: &str, spec: &str) -> AdminPolicy {
    let spec: Value = serde_saphyr::from_str(&format!("{{{spec}}}")).unwrap();
    AdminPolicy::read(kind, name, spec).unwrap_or_else(|| panic!("{name} is none"))
}

fn policy(name: &str, spec: &str) -> AdminPolicy {
    of(KINDS[0], name, spec)
}

/// What becomes of the egress of `acme`'s pods to TCP 443 of a pod at this address.
fn egress(admin: &[AdminPolicy], network: &[&str], address: Option<&str>) -> String {
    let namespace = |name: &str| {
        let text = format!("metadata: {{name: {name}, labels: {{kubernetes.io/metadata.name: {name}}}}}");
        Arc::new(serde_saphyr::from_str(&text).unwrap())
    };
    let objects = Objects { namespaces: ["acme", "beta"].map(namespace).into(), ..Objects::default() };
    let index = Index::new(&objects);
    let read = |spec: &&str| {
        let text = format!("metadata: {{namespace: acme, name: p}}\nspec: {{podSelector: {{}}, {spec}}}");
        Arc::new(serde_saphyr::from_str(&text).unwrap())
    };
    let network: Vec<Arc<NetworkPolicy>> = network.iter().map(read).collect();
    let pods = |namespace: &str, addresses: Vec<IpAddr>| Pods {
        namespace: namespace.to_owned(),
        labels: Some([("app".to_owned(), Some("web".to_owned()))].into()),
        addresses,
    };
    let (own, peer) =
        (pods("acme", Vec::new()), pods("beta", address.iter().map(|one| one.parse().unwrap()).collect()));
    let ports = [PodPort { number: Some(443), name: None, at: None }];
    let connection = Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports };
    match judge(Policies { network: &network, admin }, &index, &connection) {
        Verdict::Accepted { by } => format!("accepted by {by}"),
        Verdict::Denied { by } => format!("denied by {by}"),
        Verdict::Unknown { because, .. } => because.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        other => serde_json::to_value(&other).unwrap()["verdict"].as_str().unwrap().to_owned(),
    }
}

const ALL: &str = "policyTypes: [Egress], egress: [{}]";
const NONE: &str = "policyTypes: [Egress]";
const SUBJECT: &str = "subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: acme}}}";

#[test]
fn a_denial_stands_whatever_network_policies_say_and_what_is_passed_they_decide() {
    for kind in KINDS {
        let deny = |priority: u32| {
            let rule = "egress: [{action: Deny, to: [{namespaces: {}}]}]";
            of(kind, "deny", &format!("tier: Admin, priority: {priority}, {SUBJECT}, {rule}"))
        };
        let pass = |namespace: &str| {
            let selector = format!("{{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}");
            let rule = format!("egress: [{{action: Pass, to: [{{namespaces: {selector}}}]}}]");
            of(kind, "pass", &format!("tier: Admin, priority: 5, {SUBJECT}, {rule}"))
        };
        assert_eq!(egress(&[deny(9)], &[ALL], None), format!("denied by {kind} deny"));
        assert_eq!(egress(&[deny(9), pass("acme")], &[ALL], None), format!("denied by {kind} deny"));
        assert_eq!(egress(&[deny(9), pass("beta")], &[ALL], None), "Allowed");
        assert_eq!(egress(&[deny(9), pass("beta")], &[NONE], None), "Blocked");
        assert_eq!(egress(&[deny(9), pass("beta")], &[], None), "NotIsolated");
        assert_eq!(
            egress(&[deny(1), pass("beta")], &[ALL], None),
            format!("denied by {kind} deny"),
            "lower comes first"
        );
    }
}

#[test]
fn another_subject_is_not_meant_and_pods_ports_and_networks_are_told_apart() {
    let denies = |subject: &str, peer: &str, more: &str| {
        policy("p", &format!("tier: Admin, subject: {subject}, egress: [{{action: Deny, to: [{peer}]{more}}}]"))
    };
    let everybody = "{namespaces: {}}";
    let acme = "{namespaces: {matchLabels: {kubernetes.io/metadata.name: acme}}}";
    let refused = "denied by ClusterNetworkPolicy p";
    let pods = |app: &str| {
        let beta = "{matchLabels: {kubernetes.io/metadata.name: beta}}";
        format!("{{pods: {{namespaceSelector: {beta}, podSelector: {{matchLabels: {{app: {app}}}}}}}}}")
    };
    assert_eq!(egress(&[denies(&pods("web"), everybody, "")], &[], None), "NotIsolated");
    for (peer, more, expected) in [
        (pods("web"), "", refused),
        (pods("db"), "", "NotIsolated"),
        ("{networks: [10.0.0.0/8]}".to_owned(), "", refused),
        ("{networks: [192.168.0.0/16]}".to_owned(), "", "NotIsolated"),
        (everybody.to_owned(), ", protocols: [{tcp: {destinationPort: {number: 443}}}]", refused),
        (everybody.to_owned(), ", protocols: [{tcp: {destinationPort: {range: {start: 1, end: 80}}}}]", "NotIsolated"),
        (everybody.to_owned(), ", protocols: [{udp: {}}]", "NotIsolated"),
        (everybody.to_owned(), ", ports: [{portNumber: {protocol: TCP, port: 443}}]", refused),
        (everybody.to_owned(), ", ports: [{portRange: {start: 400, end: 500}}]", refused),
        (everybody.to_owned(), ", ports: [{portNumber: {protocol: UDP, port: 443}}]", "NotIsolated"),
        (everybody.to_owned(), ", ports: [{namedPort: https}]", "NotIsolated"),
    ] {
        assert_eq!(egress(&[denies(acme, &peer, more)], &[], Some("10.1.2.3")), expected, "{peer}{more}");
    }
}

#[test]
fn what_is_not_known_is_said_only_where_it_matters() {
    let rules = |first: &str, then: &str| {
        let private = format!("{{action: {first}, to: [{{networks: [10.0.0.0/8]}}]}}");
        policy(
            "p",
            &format!("tier: Admin, {SUBJECT}, egress: [{private}, {{action: {then}, to: [{{namespaces: {{}}}}]}}]"),
        )
    };
    assert_eq!(
        egress(&[rules("Accept", "Deny")], &[], None),
        "'ClusterNetworkPolicy p' depends on the IP addresses of the Pods in namespace 'beta'"
    );
    assert_eq!(egress(&[rules("Deny", "Deny")], &[], None), "denied by ClusterNetworkPolicy p");
}

#[test]
fn the_lower_tier_is_heard_where_no_network_policy_isolates() {
    let baseline = |action: &str| {
        policy("b", &format!("tier: Baseline, {SUBJECT}, egress: [{{action: {action}, to: [{{namespaces: {{}}}}]}}]"))
    };
    assert_eq!(egress(&[baseline("Deny")], &[], None), "denied by ClusterNetworkPolicy b");
    assert_eq!(egress(&[baseline("Deny")], &[ALL], None), "Allowed");
    assert_eq!(egress(&[baseline("Accept")], &[NONE], None), "Blocked");
}
