//! The kit enforces NetworkPolicies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use portreeve_testkit::servers::echo;
use portreeve_testkit::{Bed, Host, fixtures};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const OPEN: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: notebooks, namespace: hub}
spec:
  podSelector: {matchExpressions: [{key: component, operator: In, values: [notebook]}]}
  policyTypes: [Egress]
  egress:
  - to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: web}}, podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 8000, endPort: 8009}]
";

const BACK: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: web}
spec:
  podSelector: {}
  ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [ADDRESS/32]}}], ports: [{port: 8001}]}]
";

/// Whether a host gets through, to the first byte of an answer.
async fn reaches(from: &Host, to: SocketAddr) -> bool {
    let ask = async {
        let mut connection = from.connect(to).await?;
        answers(&mut connection).await
    };
    tokio::time::timeout(Duration::from_secs(1), ask).await.is_ok_and(|answer| answer.is_ok())
}

async fn answers(connection: &mut TcpStream) -> anyhow::Result<()> {
    connection.write_all(b"GET / HTTP/1.1\r\nhost: web\r\n\r\n").await?;
    connection.read_exact(&mut [0; 1]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn network_policies_decide_who_reaches_whom() {
    let bed = Bed::builder().start().await.unwrap();
    let [notebook, hub, web] = ["notebook", "hub", "web"].map(|name| bed.host(name).unwrap());
    let _servers = [8001, 8002, 8010].map(|port| echo(&web, port, "web").unwrap());
    for namespace in ["hub", "web"] {
        bed.apply(&fixtures::namespace(namespace)).await.unwrap();
    }
    bed.run_as_pod(&notebook, "hub", "notebook", &[("component", "notebook")]).await.unwrap();
    bed.run_as_pod(&hub, "hub", "hub", &[("component", "hub")]).await.unwrap();
    bed.run_as_pod(&web, "web", "web", &[("app", "web")]).await.unwrap();
    let at = |port| SocketAddr::from((web.address(), port));

    bed.enforce_network_policies().await.unwrap();
    assert!(reaches(&notebook, at(8010)).await, "nothing isolates it");
    let mut established = notebook.connect(at(8010)).await.unwrap();

    bed.apply(OPEN).await.unwrap();
    bed.enforce_network_policies().await.unwrap();
    assert!(reaches(&notebook, at(8001)).await, "it is allowed");
    assert!(!reaches(&notebook, at(8010)).await, "that port is not");
    assert!(reaches(&hub, at(8010)).await, "the policy does not select it");
    answers(&mut established).await.unwrap();

    bed.apply(&BACK.replace("ADDRESS", &hub.address().to_string())).await.unwrap();
    bed.enforce_network_policies().await.unwrap();
    assert!(reaches(&notebook, at(8001)).await, "both sides allow it");
    assert!(!reaches(&notebook, at(8002)).await, "the server's side does not");
    assert!(!reaches(&hub, at(8001)).await, "it is excepted");
    assert!(reaches(bed.node(), at(8002)).await, "the node always reaches its Pods");

    for policy in ["hub/notebooks", "web/web"] {
        bed.delete("networking.k8s.io/v1", "NetworkPolicy", policy).await.unwrap();
    }
    bed.enforce_network_policies().await.unwrap();
    assert!(reaches(&notebook, at(8010)).await && reaches(&hub, at(8002)).await, "nothing isolates them any more");
}

/// nebariapp B.2: policies see the ports of the Pods, and Envoy Gateway serves 443 on 10443.
#[tokio::test(flavor = "multi_thread")]
async fn policies_see_the_ports_in_the_pods() {
    let bed = Bed::builder().start().await.unwrap();
    let (notebook, gateway) = (bed.host("notebook").unwrap(), bed.host("gateway").unwrap());
    let _servers = [443, 8786].map(|port| echo(&gateway, port, "gateway").unwrap());
    for namespace in ["hub", "envoy-gateway-system"] {
        bed.apply(&fixtures::namespace(namespace)).await.unwrap();
    }
    bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[443]).await.unwrap();
    bed.run_as_pod(&notebook, "hub", "notebook", &[]).await.unwrap();
    let policy = |port: u16| {
        format!(
            "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: gateway-only, namespace: hub}}
spec:
  podSelector: {{}}
  policyTypes: [Egress]
  egress:
  - to: [{{namespaceSelector: {{}}, podSelector: {{matchLabels: {{gateway.envoyproxy.io/owning-gateway-name: nebari-gateway}}}}}}]
    ports: [{{port: {port}}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: envoy, namespace: envoy-gateway-system}}
spec: {{podSelector: {{}}, ingress: [{{ports: [{{port: {port}}}]}}]}}
"
        )
    };
    let (https, scheduler) = (bed.gateway_address(443).unwrap(), bed.gateway_address(8786).unwrap());
    for (port, expected) in [(443, [false, false]), (10443, [true, false]), (8786, [false, true])] {
        bed.apply(&policy(port)).await.unwrap();
        bed.enforce_network_policies().await.unwrap();
        let reached = [reaches(&notebook, https).await, reaches(&notebook, scheduler).await];
        assert_eq!(reached, expected, "port {port} is allowed");
    }
}
