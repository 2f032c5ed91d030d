//! What closes a tenant's namespace, on a network that enforces NetworkPolicies.

use std::time::Duration;

use anyhow::{Context, ensure};
use portreeve_testkit::clients::https_get_over;
use portreeve_testkit::{Host, tls};

use crate::support::tenants::{APPS_GATEWAY, Tenant};
use crate::support::{PORT, Platform};

/// How long a connection that must not be made is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// A pod of `walled` reaches its neighbours and public names, and nothing of `beyond`, nor the other way round.
pub(crate) async fn isolated(platform: &Platform) -> anyhow::Result<()> {
    let (walled, beyond) = (Tenant::new(platform, "walled").await?, Tenant::new(platform, "beyond").await?);
    walled.publish(APPS_GATEWAY).await?;
    beyond.publish(APPS_GATEWAY).await?;
    platform.wait_tenant("walled", &[("NetworkIsolated", "True", "Isolated")]).await?;
    platform.wait_tenant("beyond", &[("NetworkIsolated", "True", "Isolated")]).await?;
    let bed = &platform.bed;
    let (pod, stranger) = (bed.host("walled-pod")?, bed.host("stranger")?);
    bed.run_as_pod(&stranger, "default", "stranger", &[("app", "stranger")]).await?;
    bed.run_as_pod(&pod, &walled.namespace(), "pod", &[("app", "pod")]).await?;
    for tenant in [&walled, &beyond] {
        bed.run_as_pod(&tenant.host, &tenant.namespace(), "web", &[("app", "web")]).await?;
        // Nothing is refused yet, so what is refused later is so by the policies.
        reach(&stranger, &tenant.host).await.context("before policies are enforced")?;
    }
    bed.enforce_network_policies().await?;

    reach(&pod, &walled.host).await.context("a neighbour")?;
    for tenant in [&walled, &beyond] {
        let answer = ask(platform, &pod, &tenant.hostname()).await.context("the gateway's data plane")?;
        ensure!(tenant.is_own(&answer), "{} answers {answer:?}", tenant.hostname());
    }
    for (from, to) in [(&pod, &beyond.host), (&beyond.host, &pod), (&stranger, &walled.host), (&pod, &stranger)] {
        ensure_silent(from, to).await?;
    }
    Ok(())
}

async fn reach(from: &Host, to: &Host) -> anyhow::Result<()> {
    let connected = tokio::time::timeout(SILENCE * 3, from.connect((to.address(), PORT).into())).await;
    connected.context("no connection in 3 s")?.map(drop)
}

/// Nobody listens at some of these ports: a refusal would say so, and policies say nothing.
async fn ensure_silent(from: &Host, to: &Host) -> anyhow::Result<()> {
    let connected = tokio::time::timeout(SILENCE, from.connect((to.address(), PORT).into())).await;
    ensure!(connected.is_err(), "{} reaches {}", from.namespace(), to.namespace());
    Ok(())
}

async fn ask(platform: &Platform, from: &Host, hostname: &str) -> anyhow::Result<portreeve_testkit::clients::Answer> {
    let connected = tokio::time::timeout(SILENCE * 3, from.connect(platform.tenant_gateway(APPS_GATEWAY)?)).await;
    let connection = connected.context("no connection in 3 s")??;
    https_get_over(connection, hostname, hostname, "/", tls::any_certificate()?).await
}
