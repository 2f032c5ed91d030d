//! A tenant moves to another Gateway while it is asked without a pause, by clients that heed DNS at once and by some that
//! are late.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use futures_util::{FutureExt, TryFutureExt};
use portreeve_testkit::clients::https_get;
use portreeve_testkit::{Channel, eventually, tls};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::tenants::{APPS_GATEWAY, ARGUMENTS, GATEWAYS, TENANTS, Tenant, settings};
use crate::support::{Operator, Platform, WAY, side_by_side};

/// Where it goes.
const TARGET: &str = "kubespaces-apps-b";

/// What the operator is told beside flags: short-lived records, as far as it lets anybody have them.
const SETTINGS: &str = "{apps: {moreGateways: [kubespaces-apps-b], dnsTtl: 1}}";

/// API version of DNSEndpoint.
const DNS: &str = "externaldns.k8s.io/v1alpha1";

/// How much later than others some clients look up a name: within the TTL and the minute that the operator adds.
const LATE: Duration = Duration::from_secs(50);

/// How many look it up every time.
const CLIENTS: usize = 4;

/// How long a client waits between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// How late the virtual cluster follows what it is told.
const LAG: Duration = Duration::from_secs(2);

/// What people find in DNS: every answer, and since when it is given.
#[derive(Clone)]
struct Dns(Arc<Mutex<Vec<(Instant, Ipv4Addr)>>>);

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_moves_and_loses_no_request() {
    let platform = Platform::start(Channel::Standard).await.unwrap();
    platform.add_tenant_gateways(&[APPS_GATEWAY, TARGET]).await.unwrap();
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/definitions");
    platform.bed.define_in(&definitions, |file| file == "external-dns.yaml").await.unwrap();
    let settings = settings(&platform.bed, SETTINGS).unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", &[ARGUMENTS, &[&settings]].concat()).unwrap();
    operator.wait_ready().await.unwrap();
    side_by_side(vec![("a_tenant_moves", moved(&platform).boxed_local())], || operator.log()).await;
    operator.stop().await.unwrap();
}

async fn moved(platform: &Platform) -> anyhow::Result<()> {
    let mover = Tenant::new(platform, "mover").await?;
    mover.publish(APPS_GATEWAY).await?;
    let [from, to] = [APPS_GATEWAY, TARGET].map(|gateway| platform.bed.data_plane(GATEWAYS, gateway));
    let (from, to) = (from?.address(), to?.address());
    let dns = Dns(Arc::new(Mutex::new(vec![(Instant::now(), from)])));
    slow_down(platform)?;
    let prompt = try_join_all((0..CLIENTS).map(|_| ask(&mover, &dns, Duration::ZERO)));
    // Each runs until it fails; the move ends all of them.
    let asked = tokio::select! {
        failed = external_dns(platform, &dns) => failed.context("external-dns"),
        failed = virtual_cluster(&mover) => failed.context("the virtual cluster"),
        failed = prompt => failed.map(drop).context("a client that looks up every time"),
        failed = ask(&mover, &dns, LATE) => failed.context("a client that is late"),
        done = ask_to_move(platform) => done,
    };
    asked?;
    ensure!(dns.answer(Duration::ZERO) == to, "DNS leads to the former Gateway");
    let tenant = platform.bed.get(TENANTS, "Tenant", "mover").await?.context("the Tenant is there")?;
    ensure!(tenant["status"]["appsGateway"]["name"] == TARGET, "{tenant}");
    ensure!(!platform.listeners(APPS_GATEWAY).await?.iter().any(|name| name == "t-mover"), "the former entry is left");
    ensure!(platform.listeners(TARGET).await?.iter().any(|name| name == "t-mover"), "there is no entry");
    eventually("the copies of routes are gone", WAY, async || {
        let mut kubectl = platform.bed.kubectl()?;
        kubectl.args(["get", "httproutes", "--output=name", "--namespace", &mover.namespace()]);
        let routes = String::from_utf8(tokio::task::spawn_blocking(move || kubectl.output()).await??.stdout)?;
        ensure!(routes.lines().count() == 1, "there are {routes}");
        Ok(())
    })
    .await?;
    mover.wait_served(TARGET, &mover.hostname()).await?;
    Ok(())
}

/// What Envoy Gateway says comes slowly, as on a busy network: what is wrong between two of its messages to an Envoy stays so
/// for a tenth of a second, and is not missed.
fn slow_down(platform: &Platform) -> anyhow::Result<()> {
    let mut tc = platform.bed.host("gateway")?.command("tc");
    tc.args(["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "128kbit", "burst", "1600", "latency", "10s"]);
    let output = tc.output().context("failed to run tc (Debian package iproute2)")?;
    ensure!(output.status.success(), "tc says {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Runs `portreeve tenant move` to its end.
async fn ask_to_move(platform: &Platform) -> anyhow::Result<()> {
    // All clients have asked.
    sleep(Duration::from_secs(1)).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve"));
    command.args(["tenant", "move", "mover", "--to", TARGET, "--timeout=150", "--kubeconfig"]);
    command.arg(platform.bed.kubeconfig());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it says {said}");
    for word in ["no resolver", "routes to follow", "is served by Gateway kubespaces-apps-b"] {
        ensure!(said.contains(word), "it does not say {word:?}: {said}");
    }
    // What has gone last may be missed only now.
    sleep(Duration::from_secs(2)).await;
    Ok(())
}

/// Publishes the tenant's record as soon as there is one.
async fn external_dns(platform: &Platform, dns: &Dns) -> anyhow::Result<()> {
    loop {
        let name = format!("{GATEWAYS}/mover-apps");
        if let Some(record) = platform.bed.get(DNS, "DNSEndpoint", &name).await? {
            let generation = &record["metadata"]["generation"];
            if record["status"]["observedGeneration"] != *generation {
                let endpoint = &record["spec"]["endpoints"][0];
                ensure!(endpoint["dnsName"] == "*.mover.apps.example.test", "{record}");
                ensure!(endpoint["recordType"] == "A" && endpoint["recordTTL"] == 1, "{record}");
                dns.publish(endpoint["targets"][0].as_str().context("a target")?.parse()?);
                let status = json!({"apiVersion": DNS, "kind": "DNSEndpoint",
                    "metadata": {"namespace": GATEWAYS, "name": "mover-apps"},
                    "status": {"observedGeneration": generation}});
                platform.bed.apply_status(&status.to_string()).await?;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Its routes are on the Gateway that it is shown.
async fn virtual_cluster(mover: &Tenant<'_>) -> anyhow::Result<()> {
    let (bed, mut shown) = (&mover.platform.bed, APPS_GATEWAY.to_owned());
    loop {
        let name = format!("{}/mover-vcluster-values", mover.namespace());
        let map = bed.get("v1", "ConfigMap", &name).await?.context("the values are published")?;
        let values: Value = serde_json::from_str(map["data"]["values.yaml"].as_str().unwrap_or_default())?;
        let mappings = values["sync"]["fromHost"]["gateways"]["mappings"]["byName"].as_object().context("mappings")?;
        let (gateway, as_seen) = mappings.iter().next().context("a mapping")?;
        ensure!(as_seen == "default/kubespaces-apps", "its users see another name: {as_seen}");
        let gateway = gateway.strip_prefix("kubespaces-system/").context("a Gateway of the platform's namespace")?;
        if *gateway != shown {
            sleep(LAG).await;
            bed.apply(&mover.route("web", gateway, &[&mover.hostname()])).await?;
            gateway.clone_into(&mut shown);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Asks again and again, at the address that DNS gave so long ago, until an answer is not the tenant's.
async fn ask(mover: &Tenant<'_>, dns: &Dns, behind: Duration) -> anyhow::Result<()> {
    let hostname = mover.hostname();
    for number in 0_u64.. {
        let address = dns.answer(behind);
        let answer = https_get((address, 443).into(), &hostname, "/", tls::any_certificate()?)
            .map_err(|error| error.context(format!("request {number} at {address}")))
            .boxed()
            .await?;
        ensure!(mover.is_own(&answer), "request {number} at {address} is answered {answer:?}");
        sleep(PAUSE).await;
    }
    Ok(())
}

impl Dns {
    fn publish(&self, address: Ipv4Addr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), address));
    }

    /// What it answered so long ago.
    fn answer(&self, behind: Duration) -> Ipv4Addr {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = answers.iter().rev().find(|(since, _)| since.elapsed() >= behind).or(answers.first());
        known.map_or(Ipv4Addr::UNSPECIFIED, |(_, address)| *address)
    }
}
