//! The rules of NetworkPolicy v1, one by one, and laws on random policies.

use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use proptest::prelude::*;

use super::*;
use crate::Objects;

const CLIENT: &str = "hub/app=jupyterhub,component=notebook";
const GATEWAY: &str = "gateways/owner=main";

/// A NetworkPolicy of the client's namespace for the client's Pods.
fn egress(spec: &str) -> NetworkPolicy {
    policy("hub", &format!("podSelector: {{matchLabels: {{app: jupyterhub}}}}, {spec}"))
}

fn policy(namespace: &str, spec: &str) -> NetworkPolicy {
    named(namespace, "p", spec)
}

fn named(namespace: &str, name: &str, spec: &str) -> NetworkPolicy {
    let text = format!("metadata: {{namespace: {namespace}, name: {name}}}\nspec: {{{spec}}}");
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// `namespace/key=value,!key`; without a slash, what selects no Pods.
fn pods(text: &str, addresses: &[&str]) -> Pods {
    let (namespace, labels) =
        text.split_once('/').map_or((text, None), |(namespace, labels)| (namespace, Some(labels)));
    let label = |text: &str| match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (text.trim_start_matches('!').to_owned(), None),
    };
    let labels = labels.map(|labels| labels.split(',').filter(|text| !text.is_empty()).map(label).collect());
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Pods { namespace: namespace.to_owned(), labels, addresses }
}

fn port(number: u16) -> PodPort {
    PodPort { number: Some(number), name: None, at: None }
}

fn objects() -> Objects {
    let namespace = "metadata: {name: gateways, labels: {team: platform, kubernetes.io/metadata.name: gateways}}";
    Objects { namespaces: vec![Arc::new(serde_saphyr::from_str(namespace).unwrap())], ..Objects::default() }
}

fn judged(policies: &[NetworkPolicy], connection: &Connection<'_>) -> Verdict {
    let objects = objects();
    let index = Index::new(&objects);
    let network: Vec<_> = policies.iter().cloned().map(Arc::new).collect();
    judge(Policies { network: &network, admin: &[] }, &index, connection)
}

/// One letter for the egress of the client to the gateway on TCP 8786: Not isolated, Allowed, Blocked, Unknown.
fn verdict_of(policies: &[NetworkPolicy]) -> char {
    verdict_at(policies, &pods(GATEWAY, &["10.0.0.7"]), port(8786))
}

fn verdict_at(policies: &[NetworkPolicy], peer: &Pods, port: PodPort) -> char {
    let own = pods(CLIENT, &[]);
    letter(&judged(policies, &Connection { direction: Direction::Egress, own: &own, peer, ports: &[port] }))
}

fn letter(verdict: &Verdict) -> char {
    match verdict {
        Verdict::NotIsolated => 'N',
        Verdict::SamePod => 'S',
        Verdict::Allowed { .. } => 'A',
        Verdict::Unknown { .. } => 'U',
        Verdict::Blocked { .. } => 'B',
        Verdict::Accepted { .. } => '+',
        Verdict::Denied { .. } => '-',
    }
}

#[test]
fn only_what_selects_the_pods_in_their_namespace_and_direction_isolates() {
    let cases = [
        ("hub", "podSelector: {}, policyTypes: [Egress]", 'B'),
        ("hub", "policyTypes: [Egress]", 'B'),
        ("other", "podSelector: {}, policyTypes: [Egress]", 'N'),
        ("hub", "podSelector: {matchLabels: {app: other}}, policyTypes: [Egress]", 'N'),
        ("hub", "podSelector: {}, policyTypes: [Ingress], egress: [{}]", 'N'),
        // Without policyTypes: ingress always, egress with rules for it.
        ("hub", "podSelector: {}", 'N'),
        ("hub", "podSelector: {}, egress: []", 'N'),
        ("hub", "podSelector: {}, egress: [{ports: [{port: 1}]}]", 'B'),
        ("hub", "podSelector: {}, egress: [{}]", 'A'),
    ];
    for (namespace, spec, expected) in cases {
        assert_eq!(verdict_of(&[policy(namespace, spec)]), expected, "{namespace}: {spec}");
    }
    let (own, peer, ports) = (pods(GATEWAY, &[]), pods(CLIENT, &[]), [port(1)]);
    let ingress = Connection { direction: Direction::Ingress, own: &own, peer: &peer, ports: &ports };
    for (spec, expected) in [("podSelector: {}", 'B'), ("podSelector: {}, policyTypes: [Egress]", 'N')] {
        assert_eq!(letter(&judged(&[policy("gateways", spec)], &ingress)), expected, "{spec}");
    }
}

#[test]
fn selectors_demand_labels_and_expressions() {
    let cases = [
        ("{key: app, operator: In, values: [x, jupyterhub]}", 'B'),
        ("{key: app, operator: In, values: [x]}", 'N'),
        ("{key: app, operator: NotIn, values: [x]}", 'B'),
        ("{key: app, operator: NotIn, values: [jupyterhub]}", 'N'),
        ("{key: app, operator: Exists}", 'B'),
        ("{key: app, operator: DoesNotExist}", 'N'),
        ("{key: app, operator: Approximately}", 'N'),
    ];
    for (expression, expected) in cases {
        let spec = format!("podSelector: {{matchExpressions: [{expression}]}}, policyTypes: [Egress]");
        assert_eq!(verdict_of(&[policy("hub", &spec)]), expected, "{expression}");
    }
}

#[test]
fn a_label_that_nobody_named_may_be_there() {
    for operator in ["In, values: [x]", "NotIn, values: [x]", "Exists", "DoesNotExist"] {
        let spec = format!(
            "podSelector: {{matchExpressions: [{{key: release, operator: {operator}}}]}}, policyTypes: [Egress]"
        );
        assert_eq!(verdict_of(&[policy("hub", &spec)]), 'U', "{operator}");
    }
    let of_release = policy("hub", "podSelector: {matchLabels: {release: x}}, policyTypes: [Egress]");
    let (own, peer, ports) = (pods("hub/app=jupyterhub,!release", &[]), pods(GATEWAY, &[]), [port(1)]);
    let connection = Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports };
    assert_eq!(judged(&[of_release], &connection), Verdict::NotIsolated);
}

#[test]
fn peers_are_pods_namespaces_both_or_addresses() {
    let own = "podSelector: {matchLabels: {owner: main}}";
    let cases = [
        // Without a namespaceSelector Pods of the policy's own namespace are meant.
        (format!("{{{own}}}"), 'B'),
        ("{namespaceSelector: {}}".to_owned(), 'A'),
        ("{namespaceSelector: {matchLabels: {team: platform}}}".to_owned(), 'A'),
        ("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: gateways}}}".to_owned(), 'A'),
        ("{namespaceSelector: {matchLabels: {team: other}}}".to_owned(), 'B'),
        (format!("{{namespaceSelector: {{matchLabels: {{team: platform}}}}, {own}}}"), 'A'),
        ("{namespaceSelector: {}, podSelector: {matchLabels: {owner: x}}}".to_owned(), 'B'),
        (format!("{{namespaceSelector: {{matchLabels: {{team: other}}}}, {own}}}"), 'B'),
        ("{namespaceSelector: {}, podSelector: {matchLabels: {tier: x}}}".to_owned(), 'U'),
        ("{}".to_owned(), 'B'),
        ("{ipBlock: {cidr: 10.0.0.0/8}}".to_owned(), 'A'),
        ("{ipBlock: {cidr: 10.0.0.7/32}}".to_owned(), 'A'),
        ("{ipBlock: {cidr: 0.0.0.0/0, except: [172.16.0.0/12, 10.0.0.0/8]}}".to_owned(), 'B'),
        ("{ipBlock: {cidr: 0.0.0.0/0, except: [10.1.0.0/16]}}".to_owned(), 'A'),
        ("{ipBlock: {cidr: '::/0'}}".to_owned(), 'B'),
        ("{ipBlock: {cidr: 10.0.0.0/33}}".to_owned(), 'U'),
        ("{ipBlock: {cidr: 11.0.0.0/8, except: [rubbish]}}".to_owned(), 'B'),
    ];
    for (peer, expected) in cases {
        assert_eq!(verdict_of(&[egress(&format!("egress: [{{to: [{peer}]}}]"))]), expected, "{peer}");
    }
    let same_namespace = pods("hub/owner=main", &[]);
    assert_eq!(verdict_at(&[egress(&format!("egress: [{{to: [{{{own}}}]}}]"))], &same_namespace, port(1)), 'A');
}

#[test]
fn addresses_are_never_guessed() {
    let private = egress("egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]");
    assert_eq!(verdict_at(std::slice::from_ref(&private), &pods(GATEWAY, &[]), port(1)), 'U');
    // Each address must be let through.
    assert_eq!(verdict_at(std::slice::from_ref(&private), &pods(GATEWAY, &["10.0.0.1", "11.0.0.1"]), port(1)), 'B');
    // What is known without the address is told.
    let other = egress("egress: [{ports: [{port: 2}], to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]");
    assert_eq!(verdict_at(&[other], &pods(GATEWAY, &[]), port(1)), 'B');
    let all = egress("egress: [{}]");
    assert_eq!(verdict_at(&[private, all], &pods(GATEWAY, &[]), port(1)), 'A');
}

#[test]
fn ports_are_numbers_ranges_names_or_all() {
    let cases = [
        ("[]", 'A'),
        ("[{port: 8786}]", 'A'),
        ("[{port: 8787}]", 'B'),
        ("[{port: 8787}, {port: 8786}]", 'A'),
        ("[{port: 8000, endPort: 8786}]", 'A'),
        ("[{port: 8000, endPort: 8785}]", 'B'),
        ("[{port: 8786, protocol: TCP}]", 'A'),
        ("[{port: 8786, protocol: UDP}]", 'B'),
        ("[{protocol: TCP}]", 'A'),
        ("[{protocol: SCTP}]", 'B'),
        ("[{port: tls}]", 'U'),
        ("[{port: tls, protocol: UDP}]", 'B'),
    ];
    for (ports, expected) in cases {
        assert_eq!(verdict_of(&[egress(&format!("egress: [{{ports: {ports}}}]"))]), expected, "{ports}");
    }
    let named = PodPort { number: None, name: Some("tls".to_owned()), at: None };
    for (ports, expected) in [("[{port: tls}]", 'A'), ("[{port: other}]", 'U'), ("[{port: 8786}]", 'U')] {
        let rule = egress(&format!("egress: [{{ports: {ports}}}]"));
        assert_eq!(verdict_at(&[rule], &pods(GATEWAY, &[]), named.clone()), expected, "{ports}");
    }
}

#[test]
fn peers_and_ports_of_one_rule_belong_together() {
    let apart = "egress: [{ports: [{port: 8786}], to: [{ipBlock: {cidr: 11.0.0.0/8}}]}, {to: [{namespaceSelector: {}}], \
                 ports: [{port: 1}]}]";
    assert_eq!(verdict_of(&[egress(apart)]), 'B');
}

#[test]
fn policies_add_up() {
    let (open, closed) = (egress("egress: [{}]"), egress("policyTypes: [Egress]"));
    let perhaps = |spec: &str| policy("hub", &format!("podSelector: {{matchLabels: {{release: x}}}}, {spec}"));
    let cases = [
        (vec![], 'N'),
        (vec![open.clone(), closed.clone()], 'A'),
        // Where it isolates it lets through, and where it does not nothing isolates.
        (vec![perhaps("egress: [{}]")], 'A'),
        (vec![perhaps("policyTypes: [Egress]")], 'U'),
        (vec![perhaps("egress: [{}]"), closed.clone()], 'U'),
        (vec![perhaps("policyTypes: [Egress]"), closed.clone()], 'B'),
        (vec![perhaps("policyTypes: [Egress]"), closed, open], 'A'),
    ];
    for (policies, expected) in cases {
        assert_eq!(verdict_of(&policies), expected, "{policies:?}");
    }
}

#[test]
fn a_pod_reaches_itself() {
    let closed = [egress("policyTypes: [Egress]")];
    let (one, two) = (pods("hub/app=jupyterhub", &["10.0.0.1"]), pods("hub/app=jupyterhub", &["10.0.0.1", "10.0.0.2"]));
    let ports = [port(1)];
    let to = |peer| judged(&closed, &Connection { direction: Direction::Egress, own: &one, peer, ports: &ports });
    assert_eq!(letter(&to(&one)), 'S');
    assert_eq!(letter(&to(&two)), 'B');
}

#[test]
fn a_service_without_selector_has_only_addresses() {
    let (own, peer, ports) = (pods("db", &["10.9.0.1"]), pods(GATEWAY, &[]), [port(1)]);
    let ingress = Connection { direction: Direction::Ingress, own: &own, peer: &peer, ports: &ports };
    let closed = policy("db", "podSelector: {}, policyTypes: [Ingress]");
    assert_eq!(letter(&judged(&[], &ingress)), 'N');
    let verdict = judged(&[closed], &ingress);
    let Verdict::Unknown { because, .. } = &verdict else { panic!("{verdict:?}") };
    let because: Vec<_> = because.iter().map(ToString::to_string).collect();
    assert!(because[0].contains("only addresses are known"), "{because:?}");
    assert_eq!(opening([].into_iter(), "x", &ingress), None);

    for (peers, expected) in [
        ("{namespaceSelector: {matchLabels: {team: x}}}", 'U'),
        ("{podSelector: {}}", 'U'),
        ("{ipBlock: {cidr: 10.9.0.0/16}}", 'A'),
        ("{ipBlock: {cidr: 10.8.0.0/16}}", 'B'),
    ] {
        assert_eq!(verdict_at(&[egress(&format!("egress: [{{to: [{peers}]}}]"))], &own, port(1)), expected, "{peers}");
    }
}

#[test]
fn an_opening_names_namespace_and_pods_in_one_peer_and_takes_no_name() {
    let (own, peer, ports) = (pods("hub/app=jupyterhub,!release", &[]), pods(GATEWAY, &[]), [port(10443)]);
    let connection = Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports };
    let taken = [named("hub", "to-gateway", "podSelector: {}"), named("other", "to-gateway-2", "podSelector: {}")];
    let opening = opening(taken.iter(), "to-gateway", &connection).unwrap();
    let expected = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"to-gateway-2","namespace":"hub"},"spec":{"egress":[{"ports":[{"port":10443,"protocol":"TCP"}],"to":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"gateways"}},"podSelector":{"matchLabels":{"owner":"main"}}}]}],"podSelector":{"matchExpressions":[{"key":"release","operator":"DoesNotExist"}],"matchLabels":{"app":"jupyterhub"}},"policyTypes":["Egress"]}}"#;
    assert_eq!(opening.to_string(), expected);
    let long = opening_name(&"x".repeat(300), &connection);
    assert_eq!(long.len(), 253);
}

fn opening_name(name: &str, connection: &Connection<'_>) -> String {
    opening([].into_iter(), name, connection).unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn an_opening_to_addresses_is_to_these_alone() {
    let (own, peer) = (pods(GATEWAY, &[]), pods("db", &["10.9.0.1", "fd00::1"]));
    let ports = [PodPort { number: None, name: Some("db".to_owned()), at: None }];
    let connection = Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports };
    let rule = opening([].into_iter(), "x", &connection).unwrap()["spec"]["egress"][0].to_string();
    let expected = r#"{"ports":[{"port":"db","protocol":"TCP"}],"to":[{"ipBlock":{"cidr":"10.9.0.1/32"}},{"ipBlock":{"cidr":"fd00::1/128"}}]}"#;
    assert_eq!(rule, expected);
    let nowhere = pods("db", &[]);
    // An empty list of peers would be all peers.
    assert_eq!(opening([].into_iter(), "x", &Connection { peer: &nowhere, ..connection }), None);
}

/// Policies of the client's namespace over few labels, peers and ports, so that they often meet.
fn policies() -> impl Strategy<Value = Vec<NetworkPolicy>> {
    let selector = prop::sample::select(vec![
        "{}",
        "{matchLabels: {app: jupyterhub}}",
        "{matchLabels: {app: x}}",
        "{matchLabels: {release: x}}",
    ]);
    let peer = prop::sample::select(vec![
        "[]",
        "[{podSelector: {}}]",
        "[{namespaceSelector: {matchLabels: {team: platform}}}]",
        "[{namespaceSelector: {}, podSelector: {matchLabels: {tier: x}}}]",
        "[{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/16]}}]",
    ]);
    let ports = prop::sample::select(vec!["[]", "[{port: 8786}]", "[{port: 1}]", "[{port: tls}]", "[{protocol: UDP}]"]);
    let types = prop::sample::select(vec!["[]", "[Egress]", "[Ingress]"]);
    let rules = prop::collection::vec((peer, ports), 0..3);
    let one = ("[a-c]", selector, types, rules).prop_map(|(name, selector, types, rules)| {
        let rules: Vec<_> = rules.iter().map(|(peer, ports)| format!("{{to: {peer}, ports: {ports}}}")).collect();
        let spec = format!("podSelector: {selector}, policyTypes: {types}, egress: [{}]", rules.join(", "));
        named("hub", &name, &spec)
    });
    prop::collection::vec(one, 0..5)
}

fn addresses() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(vec!["10.0.0.7", "10.1.0.7", "11.0.0.7"], 0..3)
}

proptest! {
    #[test]
    fn the_order_of_policies_does_not_matter(
        (ordered, shuffled) in policies().prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        addresses in addresses(),
    ) {
        let (own, peer, ports) = (pods(CLIENT, &[]), pods(GATEWAY, &addresses), [port(8786)]);
        let connection = Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports };
        prop_assert_eq!(judged(&ordered, &connection), judged(&shuffled, &connection));
    }

    /// NetworkPolicies only ever add: what one lets through no other takes away, but it may isolate what none did.
    #[test]
    fn one_more_policy_takes_nothing_from_what_another_allows(
        before in policies(), more in policies(), addresses in addresses(),
    ) {
        let peer = pods(GATEWAY, &addresses);
        let both = [before.clone(), more.clone()].concat();
        let (alone, added, both) =
            (verdict_at(&before, &peer, port(8786)), verdict_at(&more, &peer, port(8786)), verdict_at(&both, &peer, port(8786)));
        let isolates = |policy: &NetworkPolicy| {
            let (own, ports) = (pods(CLIENT, &[]), [port(8786)]);
            rules::isolates(policy, &Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports })
        };
        if alone == 'A' && before.iter().any(|policy| isolates(policy) == Answer::Yes) {
            prop_assert_eq!(both, 'A');
        }
        if matches!(alone, 'A' | 'N') && matches!(added, 'A' | 'N') {
            prop_assert!(matches!(both, 'A' | 'N'), "{} and {} give {}", alone, added, both);
        }
    }

    #[test]
    fn what_is_blocked_is_opened_by_what_we_print(before in policies(), addresses in addresses()) {
        let (own, peer, ports) = (pods(CLIENT, &[]), pods(GATEWAY, &addresses), [port(8786)]);
        let connection = Connection { direction: Direction::Egress, own: &own, peer: &peer, ports: &ports };
        let opening = opening(before.iter(), "a", &connection).unwrap();
        let after = [before.clone(), vec![serde_json::from_value(opening).unwrap()]].concat();
        prop_assert_eq!(letter(&judged(&after, &connection)), 'A');
    }

    /// "Unknown" is said only where knowing could change the answer; here the peer's address.
    #[test]
    fn what_is_certain_without_the_address_stays_so_with_it(before in policies(), addresses in addresses()) {
        let unknown = verdict_at(&before, &pods(GATEWAY, &[]), port(8786));
        if unknown != 'U' {
            prop_assert_eq!(verdict_at(&before, &pods(GATEWAY, &addresses), port(8786)), unknown);
        }
    }
}
