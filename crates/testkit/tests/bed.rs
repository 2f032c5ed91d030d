//! The kit itself: a whole cluster, and that nothing of it stays.

use std::path::Path;

use portreeve_testkit::{Bed, Channel, Part, fixtures};

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_comes_back_with_its_data_and_obeys_rbac() {
    let bed = Bed::builder().gateway_api(Channel::Experimental).start().await.unwrap();
    bed.apply(&fixtures::namespace("team")).await.unwrap();
    bed.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: operator, namespace: team}}").await.unwrap();
    let token = bed.token("team", "operator").await.unwrap();
    bed.stop_api_server();
    bed.get("v1", "Namespace", "team").await.unwrap_err();
    bed.start_api_server().await.unwrap();
    assert!(bed.get("v1", "Namespace", "team").await.unwrap().is_some());

    let operator = bed.client_for(&token).await.unwrap();
    let version = operator.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = kube::Api::namespaced(operator, "team");
    let refused = secrets.list(&kube::api::ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot list"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn beds_run_side_by_side_and_leave_nothing_behind() {
    let (one, other) = tokio::join!(Bed::builder().start(), Bed::builder().with_controller_manager().start());
    let (one, other) = (one.unwrap(), other.unwrap());
    one.apply(&fixtures::namespace("only-here")).await.unwrap();
    assert!(other.get("v1", "Namespace", "only-here").await.unwrap().is_none());
    other.apply(&fixtures::namespace("short-lived")).await.unwrap();
    other.delete("v1", "Namespace", "short-lived").await.unwrap();
    other.wait_gone("v1", "Namespace", "short-lived").await.unwrap();
    other.pause(Part::ControllerManager).unwrap();
    other.resume(Part::ControllerManager).unwrap();

    let host = one.host("any").unwrap();
    let sleeping = host.command("sleep").arg("1000").spawn().unwrap();
    let traces = [one.folder().to_owned(), Path::new("/run/netns").join(host.namespace())];
    assert!(traces.iter().all(|trace| trace.exists()));
    let panicked = tokio::spawn(async move {
        let _bed = one;
        panic!("as a failed test does");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    for trace in traces {
        assert!(!trace.exists(), "{} is left", trace.display());
    }
    let status = tokio::task::spawn_blocking(|| { sleeping }.wait()).await.unwrap().unwrap();
    assert!(!status.success());
}
