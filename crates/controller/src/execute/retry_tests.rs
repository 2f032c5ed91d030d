use serde_json::json;

use super::*;

fn write(body: u32) -> Write {
    let object = ObjectRef {
        api_version: "gateway.networking.k8s.io/v1".to_owned(),
        kind: "HTTPRoute".to_owned(),
        namespace: Some("a".to_owned()),
        name: "x".to_owned(),
    };
    let (request, events) = (Request::Apply(json!(body)), Vec::new());
    Write { object, verb: Verb::Apply, request, owner: None, seen: 7, events }
}

fn refused() -> Failure {
    Failure::Refused("no".to_owned())
}

fn goes(retries: &mut Retries, write: Write, now: Instant) -> bool {
    !retries.filter(vec![vec![write]], now).is_empty()
}

#[test]
fn a_refused_write_waits_longer_each_time_and_one_that_differs_goes_at_once() {
    let (mut retries, start) = (Retries::default(), Instant::now());
    let exact = |pause| pause;
    assert!(retries.failed(&write(1), refused(), start, exact), "news");
    assert!(!goes(&mut retries, write(1), start + Duration::from_millis(999)));
    assert_eq!((retries.waiting(), retries.next_due()), (1, Some(start + Duration::from_secs(1))));
    assert!(goes(&mut retries, write(1), start + Duration::from_secs(1)));
    assert!(!retries.failed(&write(1), refused(), start, exact), "the same once more is no news");
    assert!(!goes(&mut retries, write(1), start + Duration::from_secs(1)));
    assert!(goes(&mut retries, write(2), start));
    for _ in 0..40 {
        retries.failed(&write(1), refused(), start, exact);
    }
    assert!(goes(&mut retries, write(1), start + Duration::from_mins(1)));
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten() {
    let (mut retries, now) = (Retries::default(), Instant::now());
    retries.failed(&write(1), refused(), now, |pause| pause);
    assert!(retries.filter(Vec::new(), now).is_empty());
    assert_eq!(retries.waiting(), 0);
    assert!(goes(&mut retries, write(1), now));
}

#[test]
fn a_conflict_is_tried_again_soon_and_told_to_nobody() {
    let (mut retries, now) = (Retries::default(), Instant::now());
    assert!(!retries.failed(&write(1), Failure::Conflict, now, |pause| pause));
    assert!(goes(&mut retries, write(1), now + Duration::from_millis(20)));
}

#[test]
fn a_write_without_effect_is_not_sent_again_until_the_object_changes() {
    let (mut retries, now) = (Retries::default(), Instant::now());
    assert!(!retries.succeeded(&write(1), Some(8)), "it had an effect");
    assert!(goes(&mut retries, write(1), now));
    assert!(retries.succeeded(&write(1), Some(7)));
    assert!(!goes(&mut retries, write(1), now));
    assert!(!goes(&mut retries, write(1), now), "nor later");
    assert!(goes(&mut retries, Write { seen: 9, ..write(1) }, now));
}
