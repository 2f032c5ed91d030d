//! `cargo xtask bench operator`: what a cluster's many apps cost.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use kube::Client;
use portreeve_controller::kind::KindName;
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

use super::{keep, tenants, versions};
use crate::load::{
    Apps, Gateway, Owners, Platform, Usage, Writes, build_operator, create_all, delete, limit, usage, writes,
};
use crate::{bed, runtime};

/// Writes of the load itself while it is measured.
const OF_LOAD: &[&str] = &["POST nebariapps", "DELETE services"];

/// How long all apps may take until they are Ready.
const PATIENCE: Duration = Duration::from_mins(10);

/// What is measured.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How many apps, with a stub as gateway
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [500, 2_000, 5_000])]
    apps: Vec<usize>,
    /// How many apps, with the real Envoy Gateway; 0: none
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [500])]
    with_envoy_gateway: Vec<usize>,
    /// How many tenants, over as many Gateways as they need, instead of apps
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "200")]
    tenants: Option<usize>,
    /// How long to watch the settled cluster for writes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    settled: u64,
}

/// What was measured of one cluster.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    apps: usize,
    gateway: Gateway,
    /// The machine's load average over a minute before, for those who read the times.
    load_before: f64,
    /// Seconds from the first app's creation until the last one was created.
    created: f64,
    /// Seconds from the first app's creation until all were Ready.
    ready: f64,
    /// Seconds that the same requests, without the events, take when a client sends them that decides nothing and waits for
    /// nobody: what the API server needs on this machine, whoever asks.
    limit: f64,
    /// Seconds from the deletion of a Service until its app said so.
    service_gone: f64,
    writes_per_app: f64,
    /// The operator's, until the settled time began.
    writes: Writes,
    settled_writes_per_minute: f64,
    settled_writes: Writes,
    empty: Usage,
    settled: Usage,
}

/// Measures each number of apps, prints a table and keeps the results.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(count) = arguments.tenants {
        return tenants::run(count, arguments.settled);
    }
    bed::run(&[])?;
    let operator = build_operator()?;
    let with = |gateway, numbers: &[usize]| {
        numbers.iter().filter(|apps| **apps > 0).map(|apps| (gateway, *apps)).collect::<Vec<_>>()
    };
    let stub = with(Gateway::Stub, &arguments.apps);
    let runs = stub.into_iter().chain(with(Gateway::EnvoyGateway, &arguments.with_envoy_gateway));
    let mut measured = Vec::new();
    for (gateway, apps) in runs {
        eprintln!("==> {apps} apps, {}", name(gateway));
        measured.push(runtime()?.block_on(measure(&operator, gateway, apps, arguments.settled))?);
    }
    print(&measured);
    keep("operator", &json!({ "versions": versions()?, "runs": measured }))
}

async fn measure(operator: &Path, gateway: Gateway, count: usize, settled: u64) -> anyhow::Result<Run> {
    let platform = Platform::start(gateway, operator).await?;
    let (client, process) = (platform.bed.client(), platform.operator.process());
    let apps = Apps::new(0..count)?;
    create_all(&client, apps.namespaces()).await?;
    create_all(&client, apps.surroundings()).await?;
    // The caches of all take in what was made.
    sleep(Duration::from_secs(3)).await;
    let owners = Owners::follow(client.clone(), KindName::NebariApp);
    let (load_before, empty, at_first) = (load(), usage(process)?, writes(&client).await?);

    let start = Instant::now();
    create_all(&client, apps.objects()).await?;
    let created = start.elapsed();
    owners.wait("all apps are Ready", PATIENCE, |standing| standing.ready() == count).await?;
    let ready = start.elapsed();
    eprintln!("    Ready after {:.2} s", ready.as_secs_f64());

    let then = at_rest(&client).await?;
    sleep(Duration::from_secs(settled)).await;
    let settled_writes = (&writes(&client).await? - &then).of_operator(OF_LOAD);
    let used = usage(process)?;
    let service_gone = delete_service(&platform, &owners).await?;
    drop(owners);
    // Its watches stay, and cost the API server what they cost.
    platform.operator.pause()?;
    let limit = limit(&client, count - 1, count).await?;

    let writes = (&then - &at_first).of_operator(OF_LOAD);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let (each, per_minute) =
        (writes.beside_events() as f64 / count as f64, settled_writes.total() as f64 * 60.0 / settled.max(1) as f64);
    Ok(Run {
        apps: count,
        gateway,
        load_before,
        created: created.as_secs_f64(),
        ready: ready.as_secs_f64(),
        limit: limit.as_secs_f64(),
        service_gone: service_gone.as_secs_f64(),
        writes_per_app: each,
        writes,
        settled_writes_per_minute: per_minute,
        settled_writes,
        empty,
        settled: used,
    })
}

/// Waits until what trails behind, as events do, has been written: three seconds without a write. Where that does not come,
/// the writes of the settled time say so.
pub(super) async fn at_rest(client: &Client) -> anyhow::Result<Writes> {
    let mut before = writes(client).await?;
    for _ in 0..20 {
        sleep(Duration::from_secs(3)).await;
        let now = writes(client).await?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(before)
}

/// How long it takes until the app says it.
async fn delete_service(platform: &Platform, owners: &Owners) -> anyhow::Result<Duration> {
    let (namespace, name) = Apps::name(0);
    let start = Instant::now();
    delete(&platform.bed.client(), "v1", "Service", &namespace, &name).await?;
    let says_so = |reason: Option<&str>| reason == Some("ServiceNotFound");
    let what = "the app says that its Service is gone";
    owners.wait(what, PATIENCE, |standing| says_so(standing.refusal(&namespace, &name))).await?;
    Ok(start.elapsed())
}

fn print(runs: &[Run]) {
    println!(
        "{:>6} {:<14} {:>8} {:>8} {:>8} {:>9} {:>11} {:>9} {:>9} {:>8} {:>9}",
        "apps", "gateway", "created", "Ready", "limit", "writes", "settled", "resident", "peak", "CPU", "Service"
    );
    println!(
        "{:>6} {:<14} {:>8} {:>8} {:>8} {:>9} {:>11} {:>9} {:>9} {:>8} {:>9}",
        "", "", "s", "s", "s", "per app", "per minute", "MB", "MB", "s", "gone, s"
    );
    for run in runs {
        println!(
            "{:>6} {:<14} {:>8.2} {:>8.2} {:>8.2} {:>9.2} {:>11.1} {:>9.1} {:>9.1} {:>8.2} {:>9.3}",
            run.apps,
            name(run.gateway),
            run.created,
            run.ready,
            run.limit,
            run.writes_per_app,
            run.settled_writes_per_minute,
            run.settled.resident,
            run.settled.peak,
            run.settled.cpu_seconds - run.empty.cpu_seconds,
            run.service_gone,
        );
    }
}

fn name(gateway: Gateway) -> &'static str {
    match gateway {
        Gateway::Stub => "stub",
        Gateway::EnvoyGateway => "Envoy Gateway",
    }
}

/// How many programs wanted to run over the last minute, without those of the bench itself.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}
