//! Many tenants, and one whose users hold a watch open for long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams, WatchEvent};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, ResourceExt};
use portreeve_controller::kind::KindName;
use portreeve_testkit::{Bed, Operator, TenantApiServer, condition, fixtures};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, PEACE, Soak, ensure_peace};
use crate::load::{Owners, TENANTS, TenantPlatform, create_all, delete, shard_names, tenant_name, tenants, tenants_on};

/// How many tenants there are, and Gateways for their apps.
const COUNT: usize = 200;
const SHARDS: usize = 4;

/// The most listeners of a Gateway that takes new tenants.
const MOST: usize = 62;

/// How many of them go and come again.
const PASSING: usize = 20;

/// How soon a watch tells of a change.
const SOON: Duration = Duration::from_secs(10);

/// 200 tenants, of which a tenth goes and comes again: each is on one Gateway, and none of these is overfull.
pub(super) async fn many(soak: Soak) -> anyhow::Result<()> {
    let start = Instant::now();
    let say = |text: &str| eprintln!("    {:5.1} s  {text}", start.elapsed().as_secs_f64());
    let platform = TenantPlatform::start(&soak.operator, SHARDS).await?;
    let client = platform.bed.client();
    let owners = Owners::follow(client.clone(), KindName::Tenant);
    create_all(&client, tenants(0..COUNT)).await?;
    owners.wait("all are Ready", PATIENCE, |standing| standing.ready() == COUNT).await?;
    say(&format!("{COUNT} tenants are Ready"));
    let first = ensure_spread(&client).await?;
    for number in 0..PASSING {
        delete(&client, TENANTS, "Tenant", "", &tenant_name(number)).await?;
    }
    owners.wait("those are gone", PATIENCE, |standing| standing.count() == COUNT - PASSING).await?;
    create_all(&client, tenants(0..PASSING)).await?;
    owners.wait("all are Ready", PATIENCE, |standing| standing.ready() == COUNT).await?;
    say(&format!("{PASSING} tenants have gone and come"));
    let then = ensure_spread(&client).await?;
    for number in PASSING..COUNT {
        let name = tenant_name(number);
        ensure!(first.get(&name) == then.get(&name), "{name} has moved");
    }
    ensure_peace(&client, PEACE).await?;
    say("nothing is written any more");
    Ok(())
}

/// The Gateway of each tenant.
async fn ensure_spread(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let mut on = BTreeMap::new();
    for shard in shard_names(SHARDS) {
        let (names, listeners) = tenants_on(client, &shard).await?;
        ensure!(listeners <= MOST, "{shard} has {listeners} listeners");
        for name in names {
            let other = on.insert(name.clone(), shard.clone());
            ensure!(other.is_none(), "{name} is on {shard} and {other:?}");
        }
    }
    ensure!(on.len() == COUNT, "{} tenants are on Gateways", on.len());
    Ok(on)
}

/// A tenant's user watches through the gateway, on one connection, while other tenants come and go.
pub(super) async fn watch(soak: Soak) -> anyhow::Result<()> {
    let start = Instant::now();
    let (bed, _operator) = served(&soak).await?;
    let server = TenantApiServer::start(&bed, "watched-api", &["watched.api.example.test"]).await?;
    bed.apply(&tenant("watched")).await?;
    bed.wait_for("v1", "Namespace", "kubespaces-tenant-watched", "is there", |_| true).await?;
    let url = "https://watched.api.example.test:443";
    bed.apply(&server.exported("kubespaces-tenant-watched", "watched", url)?).await?;
    wait(&bed, "watched", "APIServerReachable").await?;
    let (inside, outside) = (server.client().await?, through(&bed, &server).await?);
    let request = http::Request::get("/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=7200");
    let events = outside.request_events::<ConfigMap>(request.body(Vec::new())?).await?;
    let mut events = Box::pin(events);
    let (mut round, configs) = (0, Api::<ConfigMap>::namespaced(inside, "default"));
    while start.elapsed() < soak.watch {
        let (other, change) = (format!("passer-by-{round}"), format!("change-{round}"));
        bed.apply(&tenant(&other)).await?;
        wait(&bed, &other, "AppsRoutingReady").await?;
        let object = serde_json::from_value(json!({"metadata": {"name": change}}))?;
        configs.create(&PostParams::default(), &object).await?;
        let told = async {
            while let Some(event) = events.next().await {
                match event.context("the watch has ended")? {
                    WatchEvent::Added(found) if found.name_any() == change => return Ok(()),
                    WatchEvent::Error(error) => bail!("the watch says {error:?}"),
                    _ => {}
                }
            }
            bail!("the watch has ended");
        };
        timeout(SOON, told).await.with_context(|| format!("the watch does not tell of {change}"))??;
        bed.delete(TENANTS, "Tenant", &other).await?;
        bed.wait_gone(TENANTS, "Tenant", &other).await?;
        round += 1;
        sleep(Duration::from_secs(1)).await;
    }
    eprintln!("    {:5.1} s  one watch has told of {round} changes", start.elapsed().as_secs_f64());
    Ok(())
}

/// The real parts, with one Gateway of each kind.
async fn served(soak: &Soak) -> anyhow::Result<(Bed, Operator)> {
    let bed = Bed::builder().with_controller_manager().with_cert_manager().with_envoy_gateway().start().await?;
    bed.define_own().await?;
    bed.apply(ISSUER).await?;
    let namespace = fixtures::TENANT_GATEWAYS;
    bed.apply(&fixtures::namespace(namespace)).await?;
    for (name, gateway) in [
        ("kubespaces-api", fixtures::tenant_api_gateway("kubespaces-api", "Same")),
        ("kubespaces-apps", fixtures::tenant_apps_gateway("kubespaces-apps", 1)),
    ] {
        bed.own_data_plane(namespace, name)?;
        bed.apply(&gateway).await?;
        bed.publish_gateway(namespace, name, &[80, 443]).await?;
    }
    let arguments = [
        "--tenant-api-domain=example.test",
        "--tenant-apps-domain=example.test",
        "--tenant-apps-cluster-issuer=selfsigned-issuer",
        "--tenant-provisioner=external",
    ];
    let mut operator = Operator::start(&bed, "operator", &soak.operator, &bed.kubeconfig(), &arguments)?;
    operator.wait_ready().await?;
    Ok((bed, operator))
}

const ISSUER: &str = "{apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: selfsigned-issuer}, spec: {selfSigned: {}}}";

fn tenant(name: &str) -> String {
    json!({"apiVersion": TENANTS, "kind": "Tenant", "metadata": {"name": name}, "spec": {"owner": "soak@example.test"}})
        .to_string()
}

async fn wait(bed: &Bed, tenant: &str, type_: &str) -> anyhow::Result<()> {
    let holds = |tenant: &Value| condition(tenant, type_) == Some("True");
    bed.wait_for(TENANTS, "Tenant", tenant, &format!("is {type_}"), holds).await.map(drop)
}

/// A client that reaches the API server at the Gateway's address under its public name.
async fn through(bed: &Bed, server: &TenantApiServer) -> anyhow::Result<Client> {
    let gateway = bed.data_plane(fixtures::TENANT_GATEWAYS, "kubespaces-api")?.address();
    let mut kubeconfig = server.kubeconfig(&format!("https://{gateway}:443"))?;
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "watched.api.example.test".into();
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}
