//! A shared Gateway that others write too: tools that deploy in both ways of `kubectl apply`, somebody with a listener by hand, and
//! somebody whose listener makes a tenant's impossible.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use portreeve_testkit::{eventually, fixtures, shown};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::tenants::{APPS_GATEWAY, GATEWAYS, TENANTS, Tenant, add_listener, remove_listener, tenant};
use crate::support::{GATEWAY_API, Platform};

/// How soon entries are back that somebody has wiped.
const SOON: Duration = Duration::from_secs(10);
/// For how long an entry must have served to be put back at once when it is wiped, and a little.
const PEACE: Duration = Duration::from_secs(62);

/// The entry of `shared` is there, and its app served, whatever others write.
pub(crate) async fn others_write_the_gateway(platform: &Platform) -> anyhow::Result<()> {
    let shared = Tenant::new(platform, "shared").await?;
    shared.publish(APPS_GATEWAY).await?;
    server_side(platform, &shared).await.context("server-side apply")?;
    by_hand(platform).await.context("a listener by hand")?;
    impossible(platform).await.context("an impossible listener")?;
    taken_over(platform).await.context("the former operator's listener")?;
    peace(platform).await?;
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
    add_listener(
        platform,
        APPS_GATEWAY,
        json!({"name": "by-hand", "port": 80, "protocol": "HTTP", "hostname": "hand.example.test"}),
    )
    .await?;
    platform.bed.apply(&tenant("late", json!({}))).await?;
    platform.wait_tenant("late", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
    platform.bed.delete(TENANTS, "Tenant", "late").await?;
    platform.bed.wait_gone(TENANTS, "Tenant", "late").await?;
    ensure!(has(&gateway(platform).await?, "by-hand"), "somebody's listener is gone");
    remove_listener(platform, APPS_GATEWAY, "by-hand").await
}

/// A Gateway with two listeners of one port and name is none, so the API server refuses all entries together; the other
/// tenant gets its own all the same.
async fn impossible(platform: &Platform) -> anyhow::Result<()> {
    let certificate = json!({"mode": "Terminate", "certificateRefs": [{"name": "nothing"}]});
    let taken = json!({"name": "taken", "port": 443, "protocol": "HTTPS", "hostname": "*.bad.apps.example.test",
        "tls": certificate});
    add_listener(platform, APPS_GATEWAY, taken).await?;
    for name in ["bad", "good"] {
        platform.bed.apply(&tenant(name, json!({}))).await?;
    }
    platform.wait_tenant("good", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
    ensure!(!has(&gateway(platform).await?, "t-bad"), "the impossible entry is there");
    remove_listener(platform, APPS_GATEWAY, "taken").await?;
    platform.bed.delete(TENANTS, "Tenant", "good").await?;
    platform.bed.delete(TENANTS, "Tenant", "bad").await?;
    platform.bed.wait_gone(TENANTS, "Tenant", "bad").await
}

/// The former operator wrote its entry with an update. It is ours without a break, so that it goes with its tenant.
async fn taken_over(platform: &Platform) -> anyhow::Result<()> {
    let entry = json!({"name": "t-former", "port": 443, "protocol": "HTTPS", "hostname": "*.former.apps.example.test",
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "former-apps-tls"}]},
        "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"kubespaces.io/tenant": "former"}}}}});
    add_listener(platform, APPS_GATEWAY, entry).await?;
    let owners = async || {
        let gateway = gateway(platform).await?;
        let fields = gateway["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let has_it =
            |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:listeners"].get(r#"k:{"name":"t-former"}"#).is_some();
        let owners = fields.iter().filter(has_it).map(|entry| entry["manager"].as_str().unwrap_or_default().to_owned());
        anyhow::Ok(owners.collect::<Vec<_>>())
    };
    ensure!(owners().await? == ["kubectl-patch"], "{:?}", owners().await?);
    platform.bed.apply(&tenant("former", json!({}))).await?;
    platform.wait_tenant("former", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
    eventually("the entry is the operator's alone", SOON, async || {
        ensure!(owners().await? == ["portreeve"], "it is that of {:?}", owners().await?);
        Ok(())
    })
    .await?;
    platform.bed.delete(TENANTS, "Tenant", "former").await?;
    platform.bed.wait_gone(TENANTS, "Tenant", "former").await?;
    ensure!(!has(&gateway(platform).await?, "t-former"), "its listener is left");
    Ok(())
}

/// It knows nothing of others' entries and wipes them.
async fn client_side(platform: &Platform, shared: &Tenant<'_>) -> anyhow::Result<()> {
    let before = gateway(platform).await?["metadata"]["generation"].as_i64().unwrap_or_default();
    let applied = kubectl(platform, &["apply", "--filename"]).await?;
    ensure!(applied.status.success(), "kubectl says {}", String::from_utf8_lossy(&applied.stderr));
    eventually("the entry is back", SOON, async || {
        let gateway = gateway(platform).await?;
        // Wiped, and written again.
        let generation = gateway["metadata"]["generation"].as_i64().unwrap_or_default();
        ensure!(generation >= before + 2 && has(&gateway, "t-shared"), "it is {}", shown(gateway));
        Ok(())
    })
    .await?;
    shared.wait_served(APPS_GATEWAY, &shared.hostname()).await?;
    eventually("an event names who wiped it", SOON, async || {
        let events: Api<Event> = Api::namespaced(platform.bed.client(), "default");
        let told = ListParams::default().fields("involvedObject.name=shared,reason=ListenersOverwritten");
        let told = events.list(&told).await?.items;
        let named =
            |event: &Event| event.message.as_deref().is_some_and(|text| text.contains("kubectl-client-side-apply"));
        ensure!(told.iter().any(named), "the events are {told:?}");
        Ok(())
    })
    .await
}

/// Waits until the entry of `shared` has served for a minute: one that is wiped sooner waits, so that nobody fights over a
/// Gateway.
async fn peace(platform: &Platform) -> anyhow::Result<()> {
    let mut before = None;
    loop {
        let shared = platform.wait_tenant("shared", &[("AppsRoutingReady", "True", "ListenersProgrammed")]).await?;
        let mut conditions = shared["status"]["conditions"].as_array().into_iter().flatten();
        let since = conditions.find(|condition| condition["type"] == "AppsRoutingReady").context("it has one")?;
        let since = Some(since["lastTransitionTime"].clone());
        if since == before {
            return Ok(());
        }
        before = since;
        sleep(PEACE).await;
    }
}

async fn gateway(platform: &Platform) -> anyhow::Result<Value> {
    let found = platform.bed.get(GATEWAY_API, "Gateway", &format!("{GATEWAYS}/{APPS_GATEWAY}")).await?;
    found.context("the Gateway is there")
}

fn has(gateway: &Value, listener: &str) -> bool {
    let listeners = gateway["spec"]["listeners"].as_array();
    listeners.is_some_and(|listeners| listeners.iter().any(|one| one["name"] == listener))
}

/// Applies the platform's own manifest of the Gateway.
async fn kubectl(platform: &Platform, arguments: &[&str]) -> anyhow::Result<Output> {
    let path = platform.bed.folder().join("apps-gateway.json");
    std::fs::write(&path, fixtures::tenant_apps_gateway(APPS_GATEWAY, 1))?;
    let mut command = platform.bed.kubectl()?;
    command.args(arguments).arg(path);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}
