//! Laws of conflicts and precedence, on random Gateways, ListenerSets and routes.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the cases use more of it")]
mod support;

use std::collections::BTreeMap;
use std::fmt::Write;

use portreeve_names::{HostPattern, Hostname};
use portreeve_table::{Port, TlsService};
use proptest::prelude::*;
use support::input::Case;
use support::laws;

/// A listener: port, protocol, host name.
type Listener = (u16, &'static str, Option<&'static str>);

/// The day of creation, if known, the namespace, and the listeners.
type Set = (Option<u8>, &'static str, Vec<Listener>);

fn listener() -> impl Strategy<Value = Listener> {
    let host = prop::sample::select(vec![None, Some("*.example.com"), Some("a.example.com"), Some("b.example.com")]);
    (80u16..82, prop::sample::select(vec!["HTTP", "TLS", "TCP"]), host)
        .prop_map(|(port, protocol, host)| (port, protocol, host.filter(|_| protocol != "TCP")))
}

fn listeners() -> impl Strategy<Value = Vec<Listener>> {
    prop::collection::vec(listener(), 1..4)
}

fn sets() -> impl Strategy<Value = Vec<Set>> {
    let created = prop::option::of(1u8..4);
    prop::collection::vec((created, prop::sample::select(vec!["tenant-a", "tenant-b"]), listeners()), 0..4)
}

fn listeners_yaml(listeners: &[Listener]) -> String {
    let mut text = String::new();
    for (place, (port, protocol, host)) in listeners.iter().enumerate() {
        let host = host.map(|host| format!(", hostname: '{host}'")).unwrap_or_default();
        let tls = if *protocol == "TLS" { ", tls: {mode: Passthrough}" } else { "" };
        writeln!(text, "    - {{name: l{place}, port: {port}, protocol: {protocol}{host}{tls}}}").unwrap();
    }
    text
}

fn set_yaml(place: usize, (created, namespace, listeners): &Set) -> String {
    let created = created.map(|day| format!(", creationTimestamp: '2025-01-0{day}T00:00:00Z'")).unwrap_or_default();
    format!(
        "---\nkind: ListenerSet\nmetadata: {{namespace: {namespace}, name: set-{place}{created}}}\nspec:\n  \
         parentRef: {{namespace: infra, name: gw}}\n  listeners:\n{}",
        listeners_yaml(listeners)
    )
}

fn case(gateway: &[Listener], sets: &[Set]) -> Case {
    let mut text = format!(
        "kind: Gateway\nmetadata: {{namespace: infra, name: gw}}\nspec:\n  gatewayClassName: portreeve\n  \
         allowedListeners: {{namespaces: {{from: All}}}}\n  listeners:\n{}",
        listeners_yaml(gateway)
    );
    for (place, set) in sets.iter().enumerate() {
        text += &set_yaml(place, set);
    }
    Case::parse(&text).unwrap()
}

/// Every listener by `owner/name`: the value and reason of each of its conditions but `OverlappingTLSConfig`.
fn verdicts(case: &Case) -> BTreeMap<String, Vec<String>> {
    let attached = case.attach();
    let mut verdicts = BTreeMap::new();
    for status in &attached.gateways {
        for listener in status.status.listeners.iter().flatten() {
            verdicts.insert(format!("gw/{}", listener.name), conditions(&listener.conditions));
        }
    }
    for status in &attached.listener_sets {
        for listener in status.status.listeners.iter().flatten() {
            verdicts.insert(format!("{}/{}", status.name, listener.name), conditions(&listener.conditions));
        }
    }
    verdicts
}

fn conditions(all: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition]) -> Vec<String> {
    let own = all.iter().filter(|condition| condition.type_ != "OverlappingTLSConfig");
    own.map(|condition| format!("{}={}/{}", condition.type_, condition.status, condition.reason)).collect()
}

fn is_accepted(verdict: &[String]) -> bool {
    verdict.contains(&"Accepted=True/Accepted".to_owned())
}

/// The place of each object in order of precedence, and its listeners.
fn by_precedence<'c>(gateway: &'c [Listener], sets: &'c [Set]) -> Vec<(String, &'c [Listener])> {
    let mut order: Vec<_> = sets.iter().enumerate().collect();
    order.sort_by_key(|(place, (created, namespace, _))| {
        (created.is_none(), *created, *namespace, format!("set-{place}"))
    });
    let sets = order.into_iter().map(|(place, (_, _, listeners))| (format!("set-{place}"), listeners.as_slice()));
    std::iter::once(("gw".to_owned(), gateway)).chain(sets).collect()
}

fn clash(left: Listener, right: Listener) -> bool {
    left.0 == right.0 && (left.1 != right.1 || left.2 == right.2)
}

/// So many cases, unless `PROPTEST_CASES` says otherwise.
fn usually(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

proptest! {
    #![proptest_config(usually(300))]

    #[test]
    fn the_laws_hold(gateway in listeners(), sets in sets()) {
        prop_assert_eq!(laws::check(&case(&gateway, &sets)), Ok(()));
    }

    #[test]
    fn accepted_listeners_never_clash(gateway in listeners(), sets in sets()) {
        let verdicts = verdicts(&case(&gateway, &sets));
        let mut accepted: Vec<Listener> = Vec::new();
        for (owner, listeners) in by_precedence(&gateway, &sets) {
            for (place, listener) in listeners.iter().enumerate() {
                if is_accepted(&verdicts[&format!("{owner}/l{place}")]) {
                    prop_assert!(accepted.iter().all(|other| !clash(*other, *listener)));
                    accepted.push(*listener);
                }
            }
        }
    }

    /// Whoever loses has somebody before it, or beside it in the same object, that it clashes with.
    #[test]
    fn nobody_loses_to_a_later_one(gateway in listeners(), sets in sets()) {
        let verdicts = verdicts(&case(&gateway, &sets));
        let mut before: Vec<Listener> = Vec::new();
        for (owner, listeners) in by_precedence(&gateway, &sets) {
            for (place, listener) in listeners.iter().enumerate() {
                let beside = listeners.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, other)| other);
                let rivals = before.iter().chain(beside);
                let clashes = rivals.into_iter().any(|other| clash(*other, *listener));
                let verdict = &verdicts[&format!("{owner}/l{place}")];
                prop_assert!(clashes || listener.1 == "TCP" || is_accepted(verdict), "{owner}/l{place}: {verdict:?}");
            }
            before.extend(listeners);
        }
    }

    /// pains row 3: a ListenerSet that comes later takes nothing from those that are there.
    #[test]
    fn a_later_set_harms_nobody(gateway in listeners(), sets in sets(), late in listeners()) {
        let before = verdicts(&case(&gateway, &sets));
        let mut more = sets.clone();
        more.push((None, "tenant-z", late));
        let after = verdicts(&case(&gateway, &more));
        for (listener, verdict) in before {
            prop_assert_eq!(&after[&listener], &verdict, "{}", listener);
        }
    }

    /// Gateway API, `TLSRoute.hostnames`: the most specific name, then the oldest route, then `namespace/name`.
    #[test]
    fn the_best_route_takes_a_name(
        routes in prop::collection::vec((prop::option::of(1u8..4), prop::sample::subsequence(NAMES.to_vec(), 1..4)), 1..5),
        asked in prop::sample::select(vec!["a.b.com", "b.com", "x.a.b.com", "org"]),
    ) {
        let case = case_with_routes(&routes);
        let asked = Hostname::parse(asked).unwrap();
        let best = routes.iter().enumerate().flat_map(|(place, (created, names))| {
            let hosts = names.iter().map(|name| HostPattern::parse(name).unwrap()).filter(|hosts| hosts.matches(&asked));
            hosts.map(move |hosts| (std::cmp::Reverse(hosts), created.is_none(), *created, place))
        }).min();
        let table = case.attach().table;
        let found = match table.ports.values().next() {
            Some(Port::Tls(listeners)) => match &listeners.find(Some(&asked)).unwrap().service {
                TlsService::Passthrough(routes) => routes.find(Some(&asked)).map(|route| route.id.to_string()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(found, best.map(|(_, _, _, place)| format!("TLSRoute/infra/r{place}")));
    }
}

const NAMES: [&str; 5] = ["*.com", "*.b.com", "a.b.com", "b.com", "*.a.b.com"];

fn case_with_routes(routes: &[(Option<u8>, Vec<&str>)]) -> Case {
    let mut text = "kind: Gateway\nmetadata: {namespace: infra, name: gw}\nspec:\n  gatewayClassName: portreeve\n  \
                    listeners: [{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}]\n"
        .to_owned();
    for (place, (created, names)) in routes.iter().enumerate() {
        let created = created.map(|day| format!(", creationTimestamp: '2025-01-0{day}T00:00:00Z'")).unwrap_or_default();
        let names: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
        write!(
            text,
            "---\nkind: TLSRoute\nmetadata: {{namespace: infra, name: r{place}{created}}}\nspec:\n  \
             parentRefs: [{{name: gw}}]\n  hostnames: [{}]\n  rules: [{{backendRefs: [{{name: b, port: 443}}]}}]\n",
            names.join(", ")
        )
        .unwrap();
    }
    Case::parse(&text).unwrap()
}
