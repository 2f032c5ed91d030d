//! What a Dask client needs of the listener on 8786: TLS end to end, routed by server name.

use std::process::Command;

use portreeve::demo::{CLUSTERS, Identity};

use crate::support::{Up, run, text};

/// A client as `dask_gateway` is one: it connects, starts TLS with the scheduler's server name, shows the cluster's own
/// certificate, and checks no names. Prints the certificate that it sees and what the scheduler says.
const CLIENT: &str = r"
import hashlib, socket, ssl, sys
host, port, name, certificate, key = sys.argv[1:]
context = ssl.create_default_context(cafile=certificate)
context.check_hostname = False
context.verify_mode = ssl.CERT_REQUIRED
context.load_cert_chain(certificate, key)
plain = socket.create_connection((host, int(port)), timeout=10)
with context.wrap_socket(plain, server_hostname=name or None) as stream:
    print(hashlib.sha256(stream.getpeercert(binary_form=True)).hexdigest())
    print(stream.recv(1000).decode())
";

fn scheduler_name(cluster: &str) -> String {
    format!("daskgateway-dask.{cluster}")
}

/// Runs the client; returns its exit status and what it printed.
fn connect(up: &Up, name: &str, identity: &Identity) -> (bool, String) {
    let socket = up.platform(8786);
    let (certificate, key) = up.write_identity("client", identity);
    let output = run(Command::new("python3")
        .args(["-c", CLIENT, &socket.ip().to_string(), &socket.port().to_string(), name])
        .args([certificate, key]));
    (output.status.success(), text(&output))
}

fn fingerprint(up: &Up, identity: &Identity) -> String {
    let (certificate, _) = up.write_identity("expected", identity);
    let output =
        run(Command::new("openssl").args(["x509", "-noout", "-fingerprint", "-sha256", "-in"]).arg(certificate));
    text(&output).trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase()
}

/// facts/dask-gateway (i), (ii), (iii): the scheduler's own certificate is seen, the client's arrives, and two clusters
/// on one listener are told apart.
#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_on_one_listener_keep_tls_end_to_end() {
    let up = Up::start().await;
    for (cluster, identity) in CLUSTERS.iter().zip(&up.backends.schedulers) {
        let (success, printed) = connect(&up, &scheduler_name(cluster), identity);
        assert!(success, "{printed}\n{}", up.log());
        assert!(printed.contains(&fingerprint(&up, identity)), "another certificate than the scheduler's: {printed}");
        assert!(printed.contains(&format!("dask-{cluster} greets dask-internal")), "{printed}");
    }
}

/// facts/dask-gateway (iv), (v); facts/gateway-api 2.5: closed without a TLS alert.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_name_and_no_name_are_closed_without_an_alert() {
    let up = Up::start().await;
    for server_name in [&["-servername", "daskgateway-dask.unknown"][..], &["-noservername"]] {
        let output = run(Command::new("openssl")
            .args(["s_client", "-connect", &up.platform(8786).to_string()])
            .args(server_name));
        let printed = text(&output);
        assert!(printed.contains("no peer certificate available"), "{printed}");
        assert!(!printed.to_lowercase().contains("alert"), "{printed}");
    }
}

/// facts/dask-gateway (vi): only the app's own namespace may attach routes to its listener.
#[tokio::test(flavor = "multi_thread")]
async fn a_route_from_another_namespace_is_not_attached() {
    let mut up = Up::start().await;
    let theft = r"
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: { name: theft, namespace: lake }
spec:
  parentRefs:
    - { group: gateway.networking.k8s.io, kind: ListenerSet, name: dask-gateway-listeners, namespace: dask, sectionName: tcp-scheduler }
  hostnames: [daskgateway-dask.theft]
  rules: [{ backendRefs: [{ name: lake-query, port: 9440 }] }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: { name: own, namespace: dask }
spec:
  parentRefs:
    - { group: gateway.networking.k8s.io, kind: ListenerSet, name: dask-gateway-listeners, sectionName: tcp-scheduler }
  hostnames: [daskgateway-dask.own]
  rules: [{ backendRefs: [{ name: dask-5f1c0a7be2d94c0b8d3e6a91f0c4b7d2, port: 8786 }] }]
";
    std::fs::write(up.manifest("theft.yaml"), theft).unwrap();
    let identity = up.backends.schedulers[0].clone();
    let mut attached = false;
    while !attached {
        // The own route of the same file is the sign that the file has been read.
        attached = connect(&up, "daskgateway-dask.own", &identity).0;
        assert!(up.is_running(), "{}", up.log());
    }
    let lake = up.backends.query.clone();
    let (success, printed) = connect(&up, "daskgateway-dask.theft", &lake);
    assert!(!success, "{printed}");

    let plan = run(crate::support::portreeve().arg("plan").arg(up.manifest("")).args(["-o", "json"]));
    assert!(text(&plan).contains("NotAllowedByListeners"), "{}", text(&plan));
    up.wait_until("it still runs", || true);
}

/// facts/dask-gateway (vii): a route that goes is a name that is refused within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_route_is_refused() {
    let mut up = Up::start().await;
    let identity = up.backends.schedulers[1].clone();
    let name = scheduler_name(CLUSTERS[1]);
    assert!(connect(&up, &name, &identity).0, "{}", up.log());

    let path = up.manifest("dask.yaml");
    let manifest = std::fs::read_to_string(&path).unwrap();
    let documents: Vec<_> = manifest
        .split("\n---\n")
        .filter(|document| !(document.contains("kind: TLSRoute") && document.contains(CLUSTERS[1])))
        .collect();
    std::fs::write(&path, documents.join("\n---\n")).unwrap();

    let log = up.folder.path().join("log");
    let socket = up.platform(8786);
    up.wait_until("the deleted route is refused", || {
        let output =
            run(Command::new("openssl").args(["s_client", "-connect", &socket.to_string(), "-servername", &name]));
        text(&output).contains("no peer certificate available")
    });
    assert!(log.exists());
    let first = up.backends.schedulers[0].clone();
    assert!(connect(&up, &scheduler_name(CLUSTERS[0]), &first).0, "the other cluster must not notice");
}
