//! How long planning takes over many apps, and how much memory: `cargo xtask bench plan` runs this and keeps what it
//! prints, one JSON object for each number of apps.

#[path = "../tests/planning/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "it is the kit of the tests, which need more of it"
)]
mod support;

use std::time::{Duration, Instant};

use portreeve_plan::{Plan, World, plan};
use serde_json::json;
use support::Cluster;

/// How many apps a namespace has.
const NEIGHBOURS: usize = 10;

/// Of so many runs the fastest counts: the others were disturbed.
const RUNS: usize = 5;

fn main() {
    for apps in [500, 1_000, 5_000] {
        println!("{}", measure(apps));
    }
}

/// The first plan of all apps, and the one when all are served and nothing is due.
fn measure(apps: usize) -> serde_json::Value {
    let mut cluster = cluster(apps);
    let first = cluster.world();
    settle(&mut cluster);
    let settled = cluster.world();
    assert!(settled.apps.iter().all(|app| is_ready(app)), "an app is not served");
    assert!(plan(&settled).is_empty(), "a settled world has something due");
    json!({ "apps": apps, "first": cost(&first), "settled": cost(&settled) })
}

fn cost(world: &World) -> serde_json::Value {
    let time = (0..RUNS).map(|_| time_of(world)).min().unwrap_or_default();
    let memory = allocation_counter::measure(|| drop(plan(world)));
    json!({
        "milliseconds": (time.as_secs_f64() * 10_000.0).round() / 10.0,
        "allocations": memory.count_total,
        "peakBytes": memory.bytes_max,
    })
}

fn time_of(world: &World) -> Duration {
    let start = Instant::now();
    let plan: Plan = plan(world);
    let time = start.elapsed();
    drop(plan);
    time
}

fn settle(cluster: &mut Cluster) {
    for _ in 0..4 {
        let plan = plan(&cluster.world());
        cluster.execute(&plan);
        cluster.answer();
    }
}

fn is_ready(app: &portreeve_api::NebariApp) -> bool {
    let conditions = app.status.iter().flat_map(|status| &status.conditions);
    conditions.filter(|condition| condition.type_ == "Ready").any(|condition| condition.status == "True")
}

/// Apps with a certificate of their own, behind one Gateway.
fn cluster(apps: usize) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.author(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "nebari-gateway", "namespace": "envoy-gateway-system" },
        "spec": {
            "gatewayClassName": "envoy-gateway",
            "allowedListeners": { "namespaces": {
                "from": "Selector", "selector": { "matchLabels": { "nebari.dev/managed": "true" } },
            } },
            "listeners": [
                { "name": "http", "port": 80, "protocol": "HTTP" },
                { "name": "https", "port": 443, "protocol": "HTTPS",
                  "tls": { "certificateRefs": [{ "name": "nebari-gateway-tls" }] } },
            ],
        },
    }));
    for app in 0..apps {
        author_app(&mut cluster, &format!("app-{app}"), &format!("team-{}", app / NEIGHBOURS));
    }
    cluster
}

fn author_app(cluster: &mut Cluster, name: &str, namespace: &str) {
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace });
    let secret = format!("{name}-tls");
    let mut slice = metadata(&format!("{name}-1"));
    slice["labels"] = json!({ "kubernetes.io/service-name": name });
    let of_namespace = json!({ "name": namespace, "labels": { "nebari.dev/managed": "true" } });
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": of_namespace }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata(name),
            "spec": { "ports": [{ "port": 8000 }] } }),
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice,
            "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }], "ports": [{ "port": 8000 }] }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(&secret), "type": "kubernetes.io/tls",
            "data": { "tls.crt": "eA==", "tls.key": "eA==" } }),
        json!({ "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp", "metadata": metadata(name),
            "spec": {
                "hostname": format!("{name}.example.com"),
                "service": { "name": name, "port": 8000 },
                "routing": { "tls": { "secretName": secret } },
            } }),
    ] {
        cluster.author(object);
    }
}
