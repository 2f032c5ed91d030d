//! More tenants than one Gateway takes: three apps Gateways, each so full of listeners of the platform's own that it takes seven
//! tenants.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use portreeve_testkit::{Channel, Host, fixtures};
use serde_json::{Value, json};

use crate::support::tenants::{
    APPS_GATEWAY, ARGUMENTS, GATEWAYS, TENANTS, Tenant, add_listener, remove_listener, settings, tenant,
};
use crate::support::{GATEWAY_API, Operator, Platform, has, message, side_by_side};
use crate::tenants_flux::flux;

/// The Gateways.
const SHARDS: [&str; 3] = [APPS_GATEWAY, "kubespaces-apps-b", "kubespaces-apps-c"];

/// The most that the API server takes on one Gateway.
const MOST: usize = 64;

/// Places that are kept free.
const SPARE: usize = 2;

/// Listeners of the platform's own.
const CROWD: usize = MOST - SPARE - ROOM;

/// How many tenants come onto each.
const ROOM: usize = 7;

const SETTINGS: &str = "{apps: {moreGateways: [kubespaces-apps-b, kubespaces-apps-c]}}";

const LISTENER: (&str, &str, &str) = ("AppsRoutingReady", "True", "ListenersProgrammed");

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_spread_over_gateways() {
    let platform = Platform::start(Channel::Standard).await.unwrap();
    platform.add_tenant_gateways(&SHARDS).await.unwrap();
    for shard in SHARDS {
        platform.bed.apply(&fixtures::tenant_apps_gateway(shard, CROWD)).await.unwrap();
    }
    let settings = settings(&platform.bed, SETTINGS).unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", &[ARGUMENTS, &[&settings]].concat()).unwrap();
    operator.wait_ready().await.unwrap();
    let log = || operator.log();
    let all = [
        ("twenty_tenants_over_three_gateways", spread(&platform).boxed_local()),
        ("a_gateway_goes_and_comes_back", away(&platform).boxed_local()),
        ("what_goes_makes_room_and_one_bad_listener_stops_nobody", brim(&platform, &operator).boxed_local()),
    ];
    // Each goes on where the one before has ended.
    for scenario in all {
        side_by_side(vec![scenario], log).await;
    }
    operator.stop().await.unwrap();
    flux(&platform).await.unwrap();
}

/// Every one is on one of them and Ready; the last of all says that there is no place.
async fn spread(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    let stub = bed.host("api-servers")?;
    add_listener(platform, SHARDS[1], by_hand()).await?;
    remove_listener(platform, SHARDS[1], "http-1").await?;
    let names: Vec<String> = (1..=20).map(|number| format!("tenant-{number:02}")).collect();
    try_join_all(names.iter().map(|name| async { bed.apply(&tenant(name, json!({}))).await })).await?;
    try_join_all(names.iter().map(|name| ready(platform, name, &stub))).await?;
    ensure_spread(platform, &names).await?;

    for name in ["fills-up", "too-late"] {
        bed.apply(&tenant(name, json!({}))).await?;
        let last = if name == "fills-up" { LISTENER } else { ("AppsRoutingReady", "False", "TooManyListeners") };
        let told = platform.wait_tenant(name, &[last]).await?;
        ensure!(name == "fills-up" || message(&told, "AppsRoutingReady").contains(SHARDS[2]), "{told}");
    }
    ensure!(counts(platform).await?.values().all(|count| *count == ROOM), "{:?}", counts(platform).await?);
    Ok(())
}

async fn ready(platform: &Platform, name: &str, stub: &Host) -> anyhow::Result<()> {
    let namespace = format!("kubespaces-tenant-{name}");
    let is_there = |found: &Value| found["metadata"]["labels"]["kubespaces.io/tenant"] == name;
    platform.bed.wait_for("v1", "Namespace", &namespace, "is the tenant's", is_there).await?;
    platform.bed.apply(&fixtures::service_at(&namespace, name, 443, stub.address())).await?;
    platform.wait_tenant(name, &[LISTENER]).await?;
    platform.wait_phase(name, "Ready").await?;
    Ok(())
}

async fn ensure_spread(platform: &Platform, names: &[String]) -> anyhow::Result<()> {
    let mut on = BTreeMap::<String, Vec<&str>>::new();
    for shard in SHARDS {
        let listeners = platform.listeners(shard).await?;
        ensure!(listeners.len() <= MOST - SPARE, "{shard} is overfull: {listeners:?}");
        for name in listeners.iter().filter_map(|listener| listener.strip_prefix("t-")) {
            on.entry(name.to_owned()).or_default().push(shard);
        }
    }
    for name in names {
        let found = platform.bed.get(TENANTS, "Tenant", name).await?.context("the Tenant is there")?;
        let said = found["status"]["appsGateway"]["name"].as_str().unwrap_or_default();
        ensure!(on.get(name).is_some_and(|on| *on == [said]), "{name} says {said}, and is on {:?}", on.get(name));
    }
    let counts = counts(platform).await?;
    ensure!(counts.values().all(|count| (6..=ROOM).contains(count)), "the emptiest comes first: {counts:?}");
    Ok(())
}

/// How many entries of tenants each has.
async fn counts(platform: &Platform) -> anyhow::Result<BTreeMap<&'static str, usize>> {
    let mut counts = BTreeMap::new();
    for shard in SHARDS {
        let listeners = platform.listeners(shard).await?;
        counts.insert(shard, listeners.iter().filter(|name| name.starts_with("t-")).count());
    }
    Ok(counts)
}

/// Tenants of the one that goes say so, keep it, and are served again; the others see nothing of it.
async fn away(platform: &Platform) -> anyhow::Result<()> {
    let bed = &platform.bed;
    let shard = SHARDS[2];
    let on = |listeners: Vec<String>| {
        let tenants = listeners.into_iter().filter_map(|listener| Some(listener.strip_prefix("t-")?.to_owned()));
        tenants.collect::<Vec<_>>()
    };
    let (here, elsewhere) = (on(platform.listeners(shard).await?), on(platform.listeners(SHARDS[0]).await?));
    let one = Tenant::new(platform, &here[0]).await?;
    one.publish(shard).await?;
    let before = platform.bed.get(TENANTS, "Tenant", &elsewhere[0]).await?;
    bed.delete(GATEWAY_API, "Gateway", &format!("{GATEWAYS}/{shard}")).await?;
    let gone = [("AppsRoutingReady", "False", "GatewayNotFound")];
    for told in try_join_all(here.iter().map(|name| platform.wait_tenant(name, &gone))).await? {
        ensure!(message(&told, "AppsRoutingReady").contains(shard), "{told}");
    }
    bed.apply(&fixtures::tenant_apps_gateway(shard, CROWD)).await?;
    for back in try_join_all(here.iter().map(|name| platform.wait_tenant(name, &[LISTENER]))).await? {
        ensure!(back["status"]["appsGateway"]["name"] == shard, "it has not kept its Gateway: {back}");
    }
    one.wait_served(shard, &one.hostname()).await?;
    ensure!(
        platform.bed.get(TENANTS, "Tenant", &elsewhere[0]).await? == before,
        "a tenant of another Gateway has changed"
    );
    Ok(())
}

/// The first Gateway is full to the brim, then some of its tenants go while others come, of which one's listener cannot be.
async fn brim(platform: &Platform, operator: &Operator) -> anyhow::Result<()> {
    let (bed, shard) = (&platform.bed, SHARDS[0]);
    let tenants = platform.listeners(shard).await?;
    let leaving = tenants.iter().filter_map(|listener| listener.strip_prefix("t-")).take(5).collect::<Vec<_>>();
    // So that all is new to the operator at once.
    operator.pause()?;
    let changed = async {
        add_listener(platform, shard, by_hand()).await?;
        let taken = json!({"name": "taken", "port": 443, "protocol": "HTTPS", "hostname": "*.bad.apps.example.test",
            "tls": {"mode": "Terminate", "certificateRefs": [{"name": "nothing"}]}});
        add_listener(platform, shard, taken).await?;
        ensure!(platform.listeners(shard).await?.len() == MOST, "the Gateway is full");
        for name in &leaving {
            bed.delete(TENANTS, "Tenant", name).await?;
        }
        for name in ["bad", "good"] {
            bed.apply(&tenant(name, json!({}))).await?;
        }
        Ok(())
    };
    let changed = changed.await;
    operator.resume()?;
    changed?;
    for name in ["too-late", "good"] {
        let placed = platform.wait_tenant(name, &[LISTENER]).await?;
        ensure!(placed["status"]["appsGateway"]["name"] == shard, "{placed}");
    }
    platform.wait_tenant("bad", &[("AppsRoutingReady", "False", "ListenerRejected")]).await?;
    try_join_all(leaving.iter().map(|name| bed.wait_gone(TENANTS, "Tenant", name))).await?;
    let listeners = platform.listeners(shard).await?;
    ensure!(leaving.iter().all(|name| !listeners.contains(&format!("t-{name}"))), "{listeners:?}");
    for shard in &SHARDS[..2] {
        let gateway = bed.get(GATEWAY_API, "Gateway", &format!("{GATEWAYS}/{shard}")).await?.context("a Gateway")?;
        let entries = gateway["status"]["listeners"].as_array().into_iter().flatten();
        let served = entries.filter(|entry| has(entry, ("Programmed", "True", "Programmed")));
        ensure!(served.clone().any(|entry| entry["name"] == "by-hand"), "somebody's listener is gone: {gateway}");
    }
    remove_listener(platform, shard, "taken").await?;
    platform.wait_tenant("bad", &[LISTENER]).await?;
    Ok(())
}

fn by_hand() -> Value {
    json!({"name": "by-hand", "port": 80, "protocol": "HTTP", "hostname": "hand.example.test"})
}
