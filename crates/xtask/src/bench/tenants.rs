//! `cargo xtask bench operator --tenants`: what a cluster's many tenants cost.

use std::path::Path;
use std::time::{Duration, Instant};

use portreeve_controller::kind::KindName;
use serde::Serialize;
use serde_json::json;
use tokio::time::sleep;

use super::operator::{at_rest, load};
use super::{keep, versions};
use crate::load::{
    Owners, TenantPlatform, Usage, Writes, build_operator, create_all, shard_names, tenants, usage, writes,
};
use crate::{bed, runtime};

/// Writes of the load itself, and of the cluster's own controllers for each namespace.
const OF_OTHERS: &[&str] = &[
    "POST tenants",
    "POST services",
    "POST endpointslices",
    "POST configmaps",
    "POST serviceaccounts",
    "PATCH certificates/status",
];

/// How long all tenants may take until they are Ready.
const PATIENCE: Duration = Duration::from_mins(10);

/// How many tenants a Gateway takes: 64 listeners without the platform's own one and two that are kept free.
const ROOM: usize = 61;

/// What was measured.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tenants: usize,
    /// Gateways for their apps.
    gateways: usize,
    /// The machine's load average over a minute before, for those who read the times.
    load_before: f64,
    /// Seconds from the first tenant's creation until the last one was created.
    created: f64,
    /// Seconds from the first tenant's creation until all were Ready.
    ready: f64,
    /// Without events.
    writes_per_tenant: f64,
    /// To each of the Gateways, until all was settled.
    writes_per_gateway: f64,
    /// The operator's, until the settled time began.
    writes: Writes,
    settled_writes_per_minute: f64,
    settled_writes: Writes,
    empty: Usage,
    settled: Usage,
}

/// Measures so many tenants that are created at once, prints what was found and keeps it.
pub(super) fn run(count: usize, settled: u64) -> anyhow::Result<()> {
    bed::run(&[])?;
    let operator = build_operator()?;
    eprintln!("==> {count} tenants");
    let run = runtime()?.block_on(measure(&operator, count, settled))?;
    print(&run);
    keep("operator-tenants", &json!({ "versions": versions()?, "runs": [run] }))
}

async fn measure(operator: &Path, count: usize, settled: u64) -> anyhow::Result<Run> {
    let gateways = count.div_ceil(ROOM).max(1);
    let platform = TenantPlatform::start(operator, gateways).await?;
    let (client, process) = (platform.bed.client(), platform.operator.process());
    let owners = Owners::follow(client.clone(), KindName::Tenant);
    let at_first = at_rest(&client).await?;
    let (load_before, empty) = (load(), usage(process)?);

    let start = Instant::now();
    create_all(&client, tenants(0..count)).await?;
    let created = start.elapsed();
    owners.wait("all tenants are Ready", PATIENCE, |standing| standing.ready() == count).await?;
    let ready = start.elapsed();
    eprintln!("    Ready after {:.2} s", ready.as_secs_f64());

    let then = at_rest(&client).await?;
    sleep(Duration::from_secs(settled)).await;
    let settled_writes = (&writes(&client).await? - &then).of_operator(OF_OTHERS);
    let writes = (&then - &at_first).of_operator(OF_OTHERS);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let (each, per_gateway, per_minute) = (
        writes.beside_events() as f64 / count.max(1) as f64,
        writes.of("gateways") as f64 / shard_names(gateways).count() as f64,
        settled_writes.total() as f64 * 60.0 / settled.max(1) as f64,
    );
    Ok(Run {
        tenants: count,
        gateways,
        load_before,
        created: created.as_secs_f64(),
        ready: ready.as_secs_f64(),
        writes_per_tenant: each,
        writes_per_gateway: per_gateway,
        writes,
        settled_writes_per_minute: per_minute,
        settled_writes,
        empty,
        settled: usage(process)?,
    })
}

fn print(run: &Run) {
    println!(
        "{:>7} {:>8} {:>8} {:>8} {:>10} {:>11} {:>10} {:>8} {:>8}",
        "tenants", "gateways", "created", "Ready", "writes", "writes", "settled", "peak", "CPU"
    );
    println!(
        "{:>7} {:>8} {:>8} {:>8} {:>10} {:>11} {:>10} {:>8} {:>8}",
        "", "", "s", "s", "per tenant", "per Gateway", "per minute", "MB", "s"
    );
    println!(
        "{:>7} {:>8} {:>8.2} {:>8.2} {:>10.2} {:>11.1} {:>10.1} {:>8.1} {:>8.2}",
        run.tenants,
        run.gateways,
        run.created,
        run.ready,
        run.writes_per_tenant,
        run.writes_per_gateway,
        run.settled_writes_per_minute,
        run.settled.peak,
        run.settled.cpu_seconds - run.empty.cpu_seconds,
    );
}
