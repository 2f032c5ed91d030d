//! `trace --from`: the NetworkPolicies on the way of a client inside the cluster.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{portreeve, quickstart, run, text};

const NOTEBOOK: &str = "jupyterhub/app=jupyterhub,component=singleuser-server";
const SCHEDULER: &str = "daskgateway-dask.5f1c0a7be2d94c0b8d3e6a91f0c4b7d2";

/// A notebook that may reach the gateway's HTTPS port and nothing else (nebariapp B.2), in a cluster where the gateway and
/// Dask are isolated too.
const POLICIES: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: singleuser-gateway-egress, namespace: jupyterhub }
spec:
  podSelector: { matchLabels: { app: jupyterhub, component: singleuser-server } }
  policyTypes: [Egress]
  egress:
    - to:
        - namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: envoy-gateway-system } }
          podSelector: { matchLabels: { gateway.envoyproxy.io/owning-gateway-name: nebari-gateway } }
      ports: [{ port: 10443, protocol: TCP }]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: clients, namespace: envoy-gateway-system }
spec:
  podSelector: { matchLabels: { gateway.envoyproxy.io/owning-gateway-name: nebari-gateway } }
  ingress: [{ from: [{ namespaceSelector: {} }] }]
";

fn manifests() -> TempDir {
    let folder = TempDir::new().unwrap();
    for entry in std::fs::read_dir(quickstart()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    std::fs::write(folder.path().join("policies.yaml"), POLICIES).unwrap();
    folder
}

fn trace(manifests: &Path, arguments: &[&str]) -> Output {
    let backend = "dask/dask-5f1c0a7be2d94c0b8d3e6a91f0c4b7d2=10.42.0.9:8786";
    run(portreeve().arg("trace").arg(manifests).args(["--backend", backend]).args(arguments))
}

fn to_scheduler(manifests: &Path, arguments: &[&str]) -> Output {
    trace(manifests, &[&["--port", "8786", "--sni", SCHEDULER], arguments].concat())
}

/// The hops of NetworkPolicies, each as its verdict.
fn verdicts(output: &Output) -> Vec<String> {
    let trace: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)));
    let hops = trace["hops"].as_array().unwrap().iter().filter(|hop| hop["kind"] == "NetworkPolicy");
    hops.map(|hop| hop["verdict"].as_str().unwrap().to_owned()).collect()
}

/// traps: a listener on 8786 stays out of reach of notebooks whose egress permits 10443 alone.
#[test]
fn what_is_blocked_is_opened_by_the_policy_that_is_printed() {
    let manifests = manifests();
    let from = ["--from", NOTEBOOK];
    let json = ["--from", NOTEBOOK, "-o", "json"];
    assert_eq!(to_scheduler(manifests.path(), &[]).status.code(), Some(0), "it is only the policies that block");
    let blocked = to_scheduler(manifests.path(), &json);
    assert_eq!(blocked.status.code(), Some(1), "{}", text(&blocked));
    assert_eq!(verdicts(&blocked), ["Blocked", "Allowed", "NotIsolated", "NotIsolated"]);

    let printed = to_scheduler(manifests.path(), &from);
    assert_eq!(printed.status.code(), Some(1));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("only enforced where"), "{printed}");
    let (_, policy) = printed.split_once("\n---\n").unwrap_or_else(|| panic!("no manifest:\n{printed}"));
    std::fs::write(manifests.path().join("printed.yaml"), policy).unwrap();

    let opened = to_scheduler(manifests.path(), &json);
    assert_eq!(opened.status.code(), Some(0), "{}", text(&opened));
    assert_eq!(verdicts(&opened), ["Allowed", "Allowed", "NotIsolated", "NotIsolated"]);
}

/// Envoy Gateway serves 443 on 10443, which the notebook may reach; a Pod with other ports may be told.
#[test]
fn the_port_in_the_pods_counts() {
    let manifests = manifests();
    let url = ["https://hub.example.test/", "--from", NOTEBOOK, "-o", "json", "--backend", "hub/hub=10.42.0.8:8000"];
    let mapped = trace(manifests.path(), &url);
    assert_eq!(verdicts(&mapped)[..2], ["Allowed", "Allowed"], "{}", text(&mapped));
    let unmapped = trace(manifests.path(), &[&url[..], &["--low-port-offset", "0"]].concat());
    assert_eq!(verdicts(&unmapped)[..2], ["Blocked", "Allowed"], "{}", text(&unmapped));
    let elsewhere = trace(manifests.path(), &[&url[..], &["--gateway-pods", "{namespace}/app=gateway"]].concat());
    assert_eq!(verdicts(&elsewhere)[..2], ["Unknown", "Allowed"], "{}", text(&elsewhere));
    assert_eq!(elsewhere.status.code(), Some(1));
}

#[test]
fn text_that_names_no_pods_is_refused() {
    let manifests = manifests();
    let output = to_scheduler(manifests.path(), &["--from", "jupyterhub/app"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("KEY=VALUE"), "{}", text(&output));
}
