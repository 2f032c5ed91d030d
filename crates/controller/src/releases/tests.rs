use serde_json::json;

use super::*;

fn step(digest: &str) -> ReleaseStep {
    let owner = ObjectRef {
        api_version: "kubespaces.io/v1alpha1".to_owned(),
        kind: "Tenant".to_owned(),
        namespace: None,
        name: "a".to_owned(),
    };
    let (chart, version, digest) = ("chart".to_owned(), "1".to_owned(), digest.to_owned());
    let action = ReleaseAction::Install { chart, version, values: json!({}), digest };
    ReleaseStep { owner, namespace: "n".to_owned(), name: "a".to_owned(), action }
}

fn releases() -> (Releases, mpsc::Receiver<Finished>) {
    let (sender, receiver) = mpsc::channel(8);
    let (running, last) = (BTreeMap::new(), HashMap::new());
    (Releases { helm: None, sender, running, last }, receiver)
}

/// Without a Helm client every run fails.
#[tokio::test]
async fn a_failure_is_told_once_and_tried_again_later_or_at_once_when_the_step_is_another() {
    let (mut releases, mut receiver) = releases();
    let now = Instant::now();
    let key = ("n".to_owned(), "a".to_owned());
    releases.begin(vec![step("1")], |_| Vec::new(), now);
    releases.begin(vec![step("1")], |_| Vec::new(), now);
    assert_eq!(releases.running.len(), 1, "one at a time");
    let told = releases.finished(receiver.recv().await.unwrap(), now, |pause| pause).unwrap();
    assert_eq!(told.failure.as_ref(), releases.failed().get(&key));
    assert!(told.failure.unwrap().contains("Helm client"));

    releases.begin(vec![step("1")], |_| Vec::new(), now);
    assert!(releases.running.is_empty() && receiver.try_recv().is_err(), "it waits");
    let due = releases.next_due(now).unwrap();
    assert_eq!(due, now + PAUSE.0);
    releases.begin(vec![step("1")], |_| Vec::new(), due);
    assert_eq!(releases.finished(receiver.recv().await.unwrap(), due, |pause| pause), None, "nothing new");
    assert_eq!(releases.next_due(due), Some(due + 2 * PAUSE.0));

    releases.begin(vec![step("2")], |_| Vec::new(), due);
    assert_eq!((releases.running.len(), releases.failed().len()), (1, 0), "another step is tried at once");
    releases.begin(Vec::new(), |_| Vec::new(), due);
    assert!(releases.finished(receiver.recv().await.unwrap(), due, |pause| pause).is_some());
}

#[tokio::test]
async fn few_run_at_once() {
    let (mut releases, _receiver) = releases();
    let steps = (0..9).map(|number| ReleaseStep { name: format!("r{number}"), ..step("1") }).collect();
    releases.begin(steps, |_| Vec::new(), Instant::now());
    assert_eq!(releases.running.len(), AT_ONCE);
    releases.ask_to_stop();
    releases.stopped().await;
    assert!(releases.running.is_empty());
}

#[tokio::test]
async fn after_a_success_the_record_has_time_to_come() {
    let (mut releases, mut receiver) = releases();
    let now = Instant::now();
    releases.begin(vec![step("1")], |_| Vec::new(), now);
    let finished = receiver.recv().await.unwrap();
    let told = releases.finished(Finished { result: Ok(()), ..finished }, now, |pause| pause).unwrap();
    assert_eq!(told.failure, None);
    releases.begin(vec![step("1")], |_| Vec::new(), now + NOTICE / 2);
    assert!(releases.running.is_empty() && releases.failed().is_empty());
    releases.begin(vec![step("1")], |_| Vec::new(), now + NOTICE);
    assert_eq!(releases.running.len(), 1);
}
