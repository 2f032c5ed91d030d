use std::sync::Arc;

use jiff::Timestamp;
use portreeve_names::{HostPattern, Hostname};
use proptest::prelude::*;

use super::*;
use crate::claim::Owner;

const ROOM: usize = 3;

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn gateway() -> GatewayName {
    GatewayName { namespace: "gateways".into(), name: "shared".into() }
}

fn rooms() -> Rooms {
    Rooms::from([(gateway(), ROOM)])
}

/// An app's claim; the shorthand of the table tests.
fn claim(owner: &str, created: i64, hosts: &str, port: u16, usage: Usage) -> Claim {
    let (namespace, name) = owner.split_once('/').unwrap();
    let hosts = if hosts == "*" { HostPattern::Any } else { HostPattern::parse(hosts).unwrap() };
    Claim {
        owner: Arc::new(Owner {
            kind: OwnerKind::NebariApp,
            namespace: namespace.into(),
            name: name.into(),
            created: Some(second(created)),
        }),
        position: 0,
        hosts,
        name_held: Incumbency::None,
        seat: Some(Seat { gateway: gateway(), port, usage, port_held: Incumbency::None }),
    }
}

fn held(mut claim: Claim, since: i64) -> Claim {
    claim.name_held = Incumbency::Since(second(since));
    claim.seat.as_mut().unwrap().port_held = claim.name_held;
    claim
}

fn settle(claims: &[Claim]) -> Vec<Verdict> {
    arbitrate(claims, &rooms())
}

use Usage::{Borrowed, Entry, Exclusive, Shared};
use Verdict::{Duplicate, GatewayFull, Granted, NameTaken, PortTaken};

#[test]
fn the_older_one_gets_the_name_on_whatever_port() {
    let claims = [claim("b/app", 2, "x.test", 443, Shared), claim("a/app", 1, "x.test", 80, Borrowed)];
    assert_eq!(settle(&claims), [NameTaken(1), Granted]);
}

#[test]
fn wildcards_overlap_with_what_they_stand_for_in_both_directions() {
    let wildcard_first = [claim("a/app", 1, "*.x.test", 443, Shared), claim("b/app", 2, "a.b.x.test", 443, Shared)];
    assert_eq!(settle(&wildcard_first), [Granted, NameTaken(0)]);
    let name_first = [claim("a/app", 2, "*.x.test", 443, Shared), claim("b/app", 1, "a.b.x.test", 443, Shared)];
    assert_eq!(settle(&name_first), [NameTaken(1), Granted]);
    let nested = [claim("a/app", 2, "*.x.test", 443, Shared), claim("b/app", 1, "*.b.x.test", 443, Shared)];
    assert_eq!(settle(&nested), [NameTaken(1), Granted]);
    let apart = [claim("a/app", 2, "*.x.test", 443, Shared), claim("b/app", 1, "x.test", 443, Shared)];
    assert_eq!(settle(&apart), [Granted, Granted]);
}

#[test]
fn claims_of_one_namespace_are_one_owner() {
    let claims = [claim("a/one", 1, "*.x.test", 443, Shared), claim("a/two", 2, "a.x.test", 8786, Exclusive)];
    assert_eq!(settle(&claims), [Granted, Granted]);
}

#[test]
fn a_holder_keeps_its_name_from_an_older_owner_that_edits_its_spec() {
    let claims = [held(claim("b/app", 9, "x.test", 443, Shared), 10), claim("a/app", 1, "x.test", 443, Shared)];
    assert_eq!(settle(&claims), [Granted, NameTaken(0)]);
}

#[test]
fn a_legacy_listener_comes_before_age_and_after_a_record() {
    let mut legacy = claim("b/app", 9, "x.test", 443, Shared);
    legacy.name_held = Incumbency::Legacy;
    assert_eq!(settle(&[legacy.clone(), claim("a/app", 1, "x.test", 443, Shared)]), [Granted, NameTaken(0)]);
    assert_eq!(settle(&[legacy, held(claim("a/app", 1, "x.test", 443, Shared), 2)]), [NameTaken(1), Granted]);
}

#[test]
fn no_age_is_the_newest() {
    let mut ageless = claim("a/app", 0, "x.test", 443, Shared);
    Arc::make_mut(&mut ageless.owner).created = None;
    assert_eq!(settle(&[ageless, claim("b/app", 9, "x.test", 443, Shared)]), [NameTaken(1), Granted]);
}

#[test]
fn an_exclusive_listener_has_its_port_alone() {
    let claims = [claim("a/app", 1, "*", 8786, Exclusive), claim("b/app", 2, "b.test", 8786, Shared)];
    assert_eq!(settle(&claims), [Granted, PortTaken(0)]);
    let claims = [claim("a/app", 2, "*", 8786, Exclusive), claim("b/app", 1, "b.test", 8786, Shared)];
    assert_eq!(settle(&claims), [PortTaken(1), Granted]);
}

/// design: an old app cannot take what a younger one already serves by editing its spec.
#[test]
fn a_holder_that_wants_its_port_alone_drives_nobody_out() {
    let changed = held(claim("a/app", 1, "a.test", 8786, Exclusive), 10);
    let neighbour = held(claim("b/app", 2, "b.test", 8786, Shared), 20);
    assert_eq!(settle(&[changed.clone(), neighbour]), [PortTaken(1), Granted]);
    assert_eq!(settle(&[changed, claim("b/app", 0, "b.test", 8786, Shared)]), [Granted, PortTaken(0)]);
}

#[test]
fn the_same_port_of_another_gateway_is_free() {
    let mut elsewhere = claim("b/app", 2, "*", 8786, Exclusive);
    elsewhere.seat.as_mut().unwrap().gateway.name = "other".into();
    assert_eq!(settle(&[claim("a/app", 1, "*", 8786, Exclusive), elsewhere]), [Granted, Granted]);
}

#[test]
fn two_listeners_of_one_owner_with_one_name_and_port_are_one_too_many() {
    let claims = [claim("a/one", 1, "x.test", 443, Shared), claim("a/two", 2, "x.test", 443, Shared)];
    assert_eq!(settle(&claims), [Granted, Duplicate(0)]);
    let claims = [claim("a/one", 1, "*", 8786, Exclusive), claim("a/two", 2, "*", 8786, Exclusive)];
    assert_eq!(settle(&claims), [Granted, Duplicate(0)]);
}

#[test]
fn a_section_may_be_borrowed_by_many() {
    let claims = [claim("a/one", 1, "x.test", 443, Borrowed), claim("a/two", 2, "x.test", 443, Borrowed)];
    assert_eq!(settle(&claims), [Granted, Granted]);
    let claims = [claim("a/one", 1, "x.test", 443, Borrowed), claim("a/two", 2, "x.test", 443, Shared)];
    assert_eq!(settle(&claims), [Granted, Duplicate(0)]);
}

#[test]
fn a_name_stays_its_owners_while_the_port_is_taken() {
    let claims = [
        claim("a/app", 1, "*", 8786, Exclusive),
        claim("b/app", 2, "b.test", 8786, Exclusive),
        claim("c/app", 3, "b.test", 443, Shared),
    ];
    assert_eq!(settle(&claims), [Granted, PortTaken(0), NameTaken(1)]);
}

#[test]
fn a_full_gateway_takes_the_oldest() {
    let claims = [("a", 9), ("b", 8), ("c", 7), ("d", 6)]
        .map(|(name, created)| claim(&format!("{name}/x"), created, &format!("{name}.test"), 443, Entry));
    assert_eq!(settle(&claims), [GatewayFull, Granted, Granted, Granted]);
}

// === Laws ===

/// Few names, ports and owners, so that claims often meet.
fn any_claim() -> impl Strategy<Value = Claim> {
    let label = || prop::sample::select(vec!["a", "b", "c"]);
    let name = prop::collection::vec(label(), 1..4)
        .prop_map(|labels| Hostname::parse(&labels.join(".")).expect("labels make a name"));
    let hosts = prop_oneof![
        1 => Just(HostPattern::Any),
        3 => name.clone().prop_map(HostPattern::Wildcard),
        6 => name.prop_map(HostPattern::Exact),
    ];
    let owner = (prop::bool::ANY, label(), label(), prop::option::of(0..4_i64)).prop_map(
        |(is_tenant, namespace, name, created)| Owner {
            kind: if is_tenant { OwnerKind::Tenant } else { OwnerKind::NebariApp },
            namespace: if is_tenant { "" } else { namespace }.into(),
            name: name.into(),
            created: created.map(second),
        },
    );
    let usage = prop::sample::select(vec![Borrowed, Shared, Exclusive, Entry]);
    let seat = (prop::sample::select(vec![443, 8786]), usage).prop_map(|(port, usage)| Seat {
        gateway: gateway(),
        port,
        usage,
        port_held: Incumbency::None,
    });
    (owner, hosts, prop::option::weighted(0.9, seat)).prop_map(|(owner, hosts, seat)| Claim {
        owner: Arc::new(owner),
        position: 0,
        hosts,
        name_held: Incumbency::None,
        seat,
    })
}

/// Every claim gets a place of its own, as those of one owner do.
fn any_claims() -> impl Strategy<Value = Vec<Claim>> {
    prop::collection::vec(any_claim(), 0..14).prop_map(|mut claims| {
        for (position, claim) in claims.iter_mut().enumerate() {
            claim.position = position;
        }
        claims
    })
}

/// What was granted is recorded, as it is in the owners' statuses.
fn record(mut claims: Vec<Claim>, since: i64) -> Vec<Claim> {
    let verdicts = settle(&claims);
    for (claim, verdict) in claims.iter_mut().zip(verdicts) {
        if verdict == Granted {
            claim.name_held = Incumbency::Since(second(since));
            if let Some(seat) = &mut claim.seat {
                seat.port_held = claim.name_held;
            }
        }
    }
    claims
}

/// What each owner is told, by what the claims are and not by where they stand in the list. Whose name or port it is
/// stays untold between owners, so it is left out.
fn told(claims: &[Claim], verdicts: &[Verdict]) -> Vec<(usize, String)> {
    let mut all: Vec<_> = claims
        .iter()
        .zip(verdicts)
        .map(|(claim, verdict)| {
            let text = match *verdict {
                NameTaken(_) => "name taken".to_owned(),
                PortTaken(_) => "port taken".to_owned(),
                Duplicate(twin) => format!("duplicate of {}", claims[twin].position),
                other => format!("{other:?}"),
            };
            (claim.position, text)
        })
        .collect();
    all.sort();
    all
}

proptest! {
    #[test]
    fn order_does_not_matter(
        (claims, shuffled) in any_claims().prop_flat_map(|claims| (Just(claims.clone()), Just(claims).prop_shuffle()))
    ) {
        prop_assert_eq!(told(&claims, &settle(&claims)), told(&shuffled, &settle(&shuffled)));
    }

    #[test]
    fn a_name_has_one_owner_and_an_exclusive_port_too(claims in any_claims()) {
        let verdicts = settle(&claims);
        for (one, other) in pairs(claims.len()) {
            let (left, right) = (&claims[one], &claims[other]);
            if left.same_group(right) {
                continue;
            }
            let named = left.hosts != HostPattern::Any && right.hosts != HostPattern::Any;
            if verdicts[one].holds_name() && verdicts[other].holds_name() && named {
                prop_assert!(!left.hosts.overlaps(&right.hosts), "{left:?} and {right:?}");
            }
            if verdicts[one] == Granted && verdicts[other] == Granted
                && let (Some(a), Some(b)) = (&left.seat, &right.seat)
                && (&a.gateway, a.port) == (&b.gateway, b.port)
            {
                prop_assert!(a.usage != Exclusive && b.usage != Exclusive, "{left:?} and {right:?}");
            }
        }
    }

    #[test]
    fn every_refusal_names_who_is_in_the_way(claims in any_claims()) {
        let verdicts = settle(&claims);
        for (claim, verdict) in verdicts.iter().enumerate() {
            match *verdict {
                NameTaken(holder) => {
                    prop_assert!(verdicts[holder].holds_name());
                    prop_assert!(!claims[holder].same_group(&claims[claim]));
                    prop_assert!(claims[holder].hosts.overlaps(&claims[claim].hosts));
                }
                PortTaken(holder) => prop_assert!(!claims[holder].same_group(&claims[claim])),
                Duplicate(holder) => prop_assert_eq!(&claims[holder].hosts, &claims[claim].hosts),
                Granted | GatewayFull => {}
            }
        }
    }

    #[test]
    fn incumbents_keep_what_they_have(before in any_claims(), newcomers in any_claims()) {
        let recorded = record(before, 1);
        let holders = settle(&recorded);
        let mut all = recorded.clone();
        all.extend(newcomers.into_iter().map(|mut claim| { claim.position += recorded.len(); claim }));
        let after = settle(&all);
        for (claim, verdict) in holders.iter().enumerate().filter(|(_, verdict)| **verdict == Granted) {
            prop_assert_eq!(after[claim], *verdict, "{:?}", &recorded[claim]);
        }
    }

    #[test]
    fn a_younger_claim_evicts_nobody(claims in any_claims(), mut newest in any_claim()) {
        let before = settle(&claims);
        newest.position = claims.len();
        *Arc::make_mut(&mut newest.owner) =
            Owner { kind: OwnerKind::Tenant, namespace: "".into(), name: "zzz".into(), created: None };
        let mut all = claims.clone();
        all.push(newest);
        let granted = |verdicts: &[Verdict]| verdicts.iter().map(|verdict| *verdict == Granted).collect::<Vec<_>>();
        prop_assert_eq!(&granted(&settle(&all))[..claims.len()], &granted(&before)[..]);
    }

    #[test]
    fn what_was_granted_stays_granted(claims in any_claims()) {
        let recorded = record(claims.clone(), 1);
        prop_assert_eq!(told(&claims, &settle(&claims)), told(&recorded, &settle(&recorded)));
    }
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |one| (one + 1..count).map(move |other| (one, other)))
}

#[test]
fn thousands_of_owners_are_settled_in_one_go() {
    let claims: Vec<_> = (0..20_000)
        .map(|n| {
            let mut claim = claim(&format!("n{n}/app"), 1, &format!("app-{n}.example.test"), 443, Shared);
            claim.position = n;
            claim
        })
        .collect();
    assert!(settle(&claims).iter().all(|verdict| *verdict == Granted));
}
