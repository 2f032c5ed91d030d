//! The kit itself: a whole cluster, and that nothing of it stays.

use std::io;
use std::path::Path;
use std::time::Duration;

use portreeve_testkit::tls::{Identity, handshake};
use portreeve_testkit::{Bed, Channel, Part, condition, eventually, fixtures, servers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_connection_passes_through_envoy_to_the_backend_of_another_namespace() {
    let bed = Bed::builder().with_controller_manager().with_envoy_gateway().start().await.unwrap();
    let web = Identity::new(&["web.example.test"]).unwrap();
    bed.apply(&fixtures::tls_secret("envoy-gateway-system", "nebari-gateway-tls", &web)).await.unwrap();
    bed.apply(&fixtures::shared_gateway(true)).await.unwrap();
    bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[80, 443, 8786]).await.unwrap();
    bed.apply(&fixtures::opted_in_namespace("team")).await.unwrap();
    let backend = bed.host("scheduler").unwrap();
    let scheduler = Identity::new(&["dask.example.test"]).unwrap();
    let _server = servers::tls_echo(&backend, 8786, scheduler.server(true).unwrap()).unwrap();
    bed.apply(&fixtures::service_at("team", "scheduler", 8786, backend.address())).await.unwrap();
    bed.apply(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: dask, namespace: team}
spec:
  parentRef: {name: nebari-gateway, namespace: envoy-gateway-system}
  listeners:
  - name: scheduler
    port: 8786
    protocol: TLS
    tls: {mode: Passthrough}
    allowedRoutes: {namespaces: {from: Same}, kinds: [{kind: TLSRoute}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: dask, namespace: team}
spec:
  parentRefs: [{kind: ListenerSet, group: gateway.networking.k8s.io, name: dask, sectionName: scheduler}]
  hostnames: [dask.example.test]
  rules: [{backendRefs: [{name: scheduler, port: 8786}]}]
",
    )
    .await
    .unwrap();

    let programmed = |object: &serde_json::Value| condition(object, "Programmed") == Some("True");
    bed.wait_for(GATEWAY, "Gateway", "envoy-gateway-system/nebari-gateway", "is programmed", programmed).await.unwrap();
    bed.wait_for(GATEWAY, "ListenerSet", "team/dask", "is programmed", programmed).await.unwrap();
    let client = bed.host("client").unwrap();
    let address = bed.gateway_address(8786).unwrap();
    let mut stream = eventually("the scheduler answers through Envoy", Duration::from_secs(30), async || {
        handshake(scheduler.client()?, "dask.example.test", client.connect(address).await?).await
    })
    .await
    .unwrap();
    assert_eq!(stream.get_ref().1.peer_certificates().unwrap()[0], *scheduler.certificate());
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"hello");

    let other = Identity::new(&["other.example.test"]).unwrap();
    let connection = client.connect(address).await.unwrap();
    let refused = handshake(other.client().unwrap(), "other.example.test", connection).await.unwrap_err();
    // Closed by Envoy, before any certificate was shown.
    let kind = refused.downcast_ref::<io::Error>().unwrap().kind();
    assert!(matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof), "{refused:?}");

    // A client outside the bed's namespaces, on a listener's own port below 1024.
    let connection = tokio::net::TcpStream::connect(bed.gateway_address(443).unwrap()).await.unwrap();
    handshake(web.client().unwrap(), "web.example.test", connection).await.unwrap();
}

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
