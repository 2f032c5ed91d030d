//! A shared Gateway that others write too: tools that deploy in both ways of `kubectl apply`, somebody with a listener by hand, and
//! somebody whose listener makes a tenant's impossible.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, ensure};
use portreeve_testkit::eventually;
use serde_json::{Value, json};

use crate::support::tenants::{APPS_GATEWAY, GATEWAYS, TENANTS, Tenant, apps_gateway, tenant};
use crate::support::{GATEWAY_API, Platform, WAY};

/// How soon entries are back that somebody has wiped.
const SOON: Duration = Duration::from_secs(10);

/// The entry of `shared` is there, and its app served, whatever others write.
pub(crate) async fn others_write_the_gateway(platform: &Platform) -> anyhow::Result<()> {
    let shared = Tenant::new(platform, "shared").await?;
    shared.publish(APPS_GATEWAY).await?;
    server_side(platform, &shared).await.context("server-side apply")?;
    by_hand(platform).await.context("a listener by hand")?;
    impossible(platform).await.context("an impossible listener")?;
    client_side(platform, &shared).await.context("client-side apply")
}

/// It owns its own fields, and neither conflicts nor changes anything.
async fn server_side(platform: &Platform, shared: &Tenant<'_>) -> anyhow::Result<()> {
    let apply = ["apply", "--server-side", "--field-manager=argocd", "--filename"];
    for round in 0..3 {
        let other = format!("drifter-{round}");
        platform.bed.apply(&tenant(&other, json!({}))).await?;
        let listener = ("AppsRoutingReady", "True", "ListenersProgrammed");
        platform.wait_tenant(&other, &[listener]).await?;
        let before = gateway(platform).await?;
        let applied = kubectl(platform, &apply).await?;
        ensure!(applied.status.success(), "it conflicts: {}", String::from_utf8_lossy(&applied.stderr));
        let after = gateway(platform).await?;
        ensure!(before["metadata"]["generation"] == after["metadata"]["generation"], "it drifts: {before}\n{after}");
        platform.bed.delete(TENANTS, "Tenant", &other).await?;
        platform.bed.wait_gone(TENANTS, "Tenant", &other).await?;
    }
    ensure!(has(&gateway(platform).await?, "t-shared"));
    shared.wait_served(APPS_GATEWAY, &shared.hostname()).await?;
    Ok(())
}

/// It stays while tenants come and go.
async fn by_hand(platform: &Platform) -> anyhow::Result<()> {
    add_listener(platform, json!({"name": "by-hand", "port": 80, "protocol": "HTTP", "hostname": "hand.example.test"}))
        .await?;
    platform.bed.apply(&tenant("late", json!({}))).await?;
    platform.wait_tenant("late", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
    platform.bed.delete(TENANTS, "Tenant", "late").await?;
    platform.bed.wait_gone(TENANTS, "Tenant", "late").await?;
    ensure!(has(&gateway(platform).await?, "by-hand"), "somebody's listener is gone");
    remove_listener(platform, "by-hand").await
}

/// A Gateway with two listeners of one port and name is none, so the API server refuses all entries together; the other
/// tenant gets its own all the same.
async fn impossible(platform: &Platform) -> anyhow::Result<()> {
    let certificate = json!({"mode": "Terminate", "certificateRefs": [{"name": "nothing"}]});
    let taken = json!({"name": "taken", "port": 443, "protocol": "HTTPS", "hostname": "*.bad.apps.example.test",
        "tls": certificate});
    add_listener(platform, taken).await?;
    for name in ["bad", "good"] {
        platform.bed.apply(&tenant(name, json!({}))).await?;
    }
    platform.wait_tenant("good", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
    ensure!(!has(&gateway(platform).await?, "t-bad"), "the impossible entry is there");
    remove_listener(platform, "taken").await?;
    platform.bed.delete(TENANTS, "Tenant", "good").await?;
    platform.bed.delete(TENANTS, "Tenant", "bad").await?;
    platform.bed.wait_gone(TENANTS, "Tenant", "bad").await
}

/// It knows nothing of others' entries and wipes them.
async fn client_side(platform: &Platform, shared: &Tenant<'_>) -> anyhow::Result<()> {
    for _ in 0..2 {
        let before = gateway(platform).await?["metadata"]["generation"].as_i64().unwrap_or_default();
        let applied = kubectl(platform, &["apply", "--filename"]).await?;
        ensure!(applied.status.success(), "kubectl says {}", String::from_utf8_lossy(&applied.stderr));
        eventually("the entry is back", SOON, async || {
            let gateway = gateway(platform).await?;
            // Wiped, and written again.
            let generation = gateway["metadata"]["generation"].as_i64().unwrap_or_default();
            ensure!(generation >= before + 2 && has(&gateway, "t-shared"), "it is {gateway}");
            Ok(())
        })
        .await?;
        shared.wait_served(APPS_GATEWAY, &shared.hostname()).await?;
    }
    Ok(())
}

async fn gateway(platform: &Platform) -> anyhow::Result<Value> {
    let found = platform.bed.get(GATEWAY_API, "Gateway", &format!("{GATEWAYS}/{APPS_GATEWAY}")).await?;
    found.context("the Gateway is there")
}

fn has(gateway: &Value, listener: &str) -> bool {
    let listeners = gateway["spec"]["listeners"].as_array();
    listeners.is_some_and(|listeners| listeners.iter().any(|one| one["name"] == listener))
}

/// Somebody edits the Gateway.
async fn add_listener(platform: &Platform, listener: Value) -> anyhow::Result<()> {
    patch(platform, &json!([{"op": "add", "path": "/spec/listeners/-", "value": listener}])).await
}

async fn remove_listener(platform: &Platform, name: &str) -> anyhow::Result<()> {
    let gateway = gateway(platform).await?;
    let mut listeners = gateway["spec"]["listeners"].as_array().into_iter().flatten();
    let place = listeners.position(|one| one["name"] == name).context("the listener is there")?;
    let path = format!("/spec/listeners/{place}");
    let test = json!({"op": "test", "path": format!("{path}/name"), "value": name});
    patch(platform, &json!([test, {"op": "remove", "path": path}])).await
}

/// The Gateway may change at the same time.
async fn patch(platform: &Platform, operations: &Value) -> anyhow::Result<()> {
    eventually("the Gateway is edited", WAY, async || {
        let mut command = platform.bed.kubectl()?;
        command.args(["patch", "gateway", APPS_GATEWAY, "--namespace", GATEWAYS, "--type=json", "--patch"]);
        command.arg(operations.to_string());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "kubectl says {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })
    .await
}

/// Applies the platform's own manifest of the Gateway.
async fn kubectl(platform: &Platform, arguments: &[&str]) -> anyhow::Result<Output> {
    let path = platform.bed.folder().join("apps-gateway.json");
    std::fs::write(&path, apps_gateway(APPS_GATEWAY))?;
    let mut command = platform.bed.kubectl()?;
    command.args(arguments).arg(path);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}
