use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::*;
use crate::reflect::kind::{Kind, Typed};
use crate::reflect::{Object, read};

fn entry(uid: &str, revision: u64, spec: &Value) -> (Key, Entry) {
    let object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "a", "name": "x", "uid": uid, "resourceVersion": revision.to_string()}, "spec": spec,
    });
    read(Kind::of(KindName::Service), serde_json::from_value::<DynamicObject>(object).unwrap())
}

fn service(uid: &str, revision: u64) -> (Key, Entry) {
    entry(uid, revision, &json!({"ports": [{"port": revision}]}))
}

fn applied(uid: &str, revision: u64) -> Change {
    let (key, entry) = service(uid, revision);
    Change::Applied(key, entry)
}

fn deleted(uid: &str, revision: u64) -> Change {
    let (key, entry) = service(uid, revision);
    Change::Deleted(key, entry)
}

fn store(changes: Vec<Change>) -> Store {
    let mut store = Store::new("v1");
    for change in changes {
        store.take(change);
    }
    store
}

fn revision(store: &Store) -> Option<u64> {
    store.entries().next().map(|(_, entry)| entry.revision)
}

#[test]
fn a_watch_that_lags_behind_does_not_undo_what_was_written() {
    let mut store = store(vec![applied("1", 5)]);
    let (key, entry) = service("1", 9);
    assert!(store.wrote(key, entry));
    assert!(!store.take(applied("1", 7)), "older than the write");
    assert!(!store.take(applied("1", 9)), "the write itself");
    assert_eq!(revision(&store), Some(9));
    assert!(store.take(applied("1", 12)));
    assert_eq!(revision(&store), Some(12));
}

#[test]
fn an_answer_that_is_overtaken_by_the_watch_is_not_taken() {
    let mut store = store(vec![applied("1", 12)]);
    let (key, entry) = service("1", 9);
    assert!(!store.wrote(key, entry));
    assert_eq!(revision(&store), Some(12));
}

#[test]
fn an_answer_does_not_bring_back_what_the_watch_has_shown_to_go() {
    let mut store = store(vec![applied("1", 5), deleted("1", 9)]);
    let (key, entry) = service("1", 7);
    assert!(!store.wrote(key, entry));
    assert_eq!(revision(&store), None);
    let (key, entry) = service("2", 11);
    assert!(store.wrote(key, entry), "its successor");
    assert_eq!(revision(&store), Some(11));
}

#[test]
fn what_was_deleted_stays_away_until_it_is_made_anew() {
    let mut store = store(vec![applied("1", 5)]);
    let (key, _) = service("1", 5);
    assert!(store.deleted(key, "1"));
    assert!(!store.take(applied("1", 7)), "the watch does not know yet");
    assert_eq!(revision(&store), None);
    assert!(!store.take(deleted("1", 8)));
    assert!(store.take(applied("2", 9)), "another object of the name");
    assert_eq!(revision(&store), Some(9));
}

#[test]
fn the_end_of_an_earlier_object_does_not_take_its_successor_along() {
    let mut store = store(vec![applied("1", 5)]);
    let (key, entry) = service("2", 9);
    store.wrote(key, entry);
    assert!(!store.take(deleted("1", 8)));
    assert_eq!(revision(&store), Some(9));
    assert!(store.take(deleted("2", 10)));
    assert_eq!(revision(&store), None);
}

#[test]
fn a_new_list_drops_what_is_not_in_it_but_not_what_was_written_meanwhile() {
    let mut store = store(vec![Change::ListStart, applied("1", 5), Change::ListEnd]);
    assert!(store.is_synced);
    assert!(!store.take(Change::ListStart));
    assert!(store.take(Change::ListEnd), "it is gone");
    assert_eq!(revision(&store), None);

    store.take(Change::ListStart);
    let (key, entry) = service("2", 9);
    store.wrote(key, entry);
    assert!(!store.take(Change::ListEnd));
    assert_eq!(revision(&store), Some(9));
}

#[test]
fn what_cannot_be_read_is_kept_with_what_it_was_granted() {
    let object = json!({
        "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp",
        "metadata": {"namespace": "a", "name": "x", "uid": "1", "resourceVersion": "3"}, "spec": {"hostname": 7},
        "status": {"claims": [{"name": "x.test", "since": "2026-01-01T00:00:00Z"}, {"since": 1}]},
    });
    let (_, entry) = read(Kind::of(KindName::NebariApp), serde_json::from_value(object).unwrap());
    let Object::Unreadable(unreadable) = &entry.object else { panic!("{entry:?}") };
    assert_eq!(unreadable.grants.len(), 1);
    assert_eq!(entry.uid(), "1");
    assert!(unreadable.fault.contains("string"), "{}", unreadable.fault);
}

#[test]
fn the_apps_of_an_older_version_are_read_as_the_newest() {
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TLSRoute",
        "metadata": {"namespace": "a", "name": "x", "managedFields": []},
        "spec": {"hostnames": ["a.test"], "rules": [{"backendRefs": [{"name": "s", "port": 1}]}]},
    });
    let (_, entry) = read(Kind::of(KindName::TlsRoute), serde_json::from_value(object).unwrap());
    assert!(matches!(entry.object, Object::Readable(Typed::TlsRoute(_))), "{entry:?}");
}

/// Origin: while Services and slices of strangers changed, half of the operator's time went into plans that decided nothing new.
#[test]
fn what_differs_in_nothing_that_is_kept_is_no_change() {
    let slice = |revision: u64, addresses: [&str; 2]| {
        let endpoints = addresses.map(|address| json!({"addresses": [address], "conditions": {"ready": true}}));
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "a", "name": "x-1", "uid": "1", "resourceVersion": revision.to_string(),
                "generation": revision, "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": revision.to_string()}},
            "endpoints": endpoints,
        });
        let (key, entry) = read(Kind::of(KindName::EndpointSlice), serde_json::from_value(object).unwrap());
        Change::Applied(key, entry)
    };
    let mut store = store(vec![slice(5, ["10.0.0.1", "10.0.0.2"])]);
    assert!(!store.take(slice(7, ["10.0.0.3", "10.0.0.1"])));
    assert_eq!(revision(&store), Some(7), "and it is known to be that of the later revision");
    assert!(store.take(slice(9, ["10.0.0.3", "10.0.0.4"])));
}
