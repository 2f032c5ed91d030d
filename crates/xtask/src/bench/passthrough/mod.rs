//! `cargo xtask bench passthrough`: TLS that is routed by name and not opened, side by side with what people run today.

mod proxies;
mod traffic;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::{keep, versions};
use crate::load::{build_operator, usage};
use crate::{bed, runtime, tools};
use proxies::{ANSWERS, Addresses, STREAMS};
pub(super) use proxies::{Proxy, Running, address, allow_many_files, launch, write};
use traffic::{Clients, Moved};

/// Connections a second while latency is measured.
const RATE: u32 = 2_000;
/// How many streams are measured together, after one alone.
const MANY: usize = 100;

/// What is measured.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
    /// How many idle tunnels are held; each takes two open files of the proxy, and two of this process
    #[arg(long, value_name = "N", default_value_t = 6_000)]
    idle: usize,
}

/// What was measured of one proxy; CPU and memory are those of its processes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    proxy: Proxy,
    connections_per_second: f64,
    /// Microseconds of CPU for each of these connections.
    cpu_per_connection: f64,
    /// Microseconds from the first packet to the answer, at 2,000 connections a second.
    latency_p50: f64,
    latency_p99: f64,
    one_stream: Streams,
    many_streams: Streams,
    /// Bytes of resident memory for each idle tunnel.
    idle_tunnel: f64,
}

/// What streams moved.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Streams {
    gigabytes_per_second: f64,
    cpu_seconds_per_gigabyte: f64,
    /// Of the slowest to the fastest.
    fairness: f64,
}

/// Measures each proxy, prints a table and keeps the results.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    bed::run(&[])?;
    tools::ensure_peers()?;
    let portreeve = build_operator()?;
    allow_many_files()?;
    let mut measured = Vec::new();
    for proxy in Proxy::ALL {
        eprintln!("==> {}", proxy.name());
        let folder = std::env::temp_dir().join(format!("portreeve-bench-{}-{}", std::process::id(), measured.len()));
        let result = runtime()?.block_on(measure(proxy, &portreeve, &folder, arguments));
        let _ = std::fs::remove_dir_all(&folder);
        measured.push(result.with_context(|| format!("{} was measured", proxy.name()))?);
    }
    print(&measured);
    let mut versions = versions()?;
    versions["peers"] = peers();
    keep("passthrough", &json!({ "versions": versions, "measured": measured }))
}

async fn measure(proxy: Proxy, portreeve: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<Measured> {
    let (answers, streams) = traffic::backends()?;
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let running = proxies::start(proxy, portreeve, folder, Addresses { proxy: free, answers, streams })?;
    let through = |backend: SocketAddr| if proxy == Proxy::Direct { backend } else { free };
    let during = Duration::from_secs(arguments.seconds);
    let (clients, readers) = (Clients::new(through(answers), ANSWERS)?, Clients::new(through(streams), STREAMS)?);

    // What is made at the first connections is not measured.
    clients.connections_per_second(Duration::from_secs(1)).await?;
    let before = totals(&running)?;
    let connections_per_second = clients.connections_per_second(during).await?;
    let spent = totals(&running)?.cpu_seconds - before.cpu_seconds;
    let latencies = clients.latencies(RATE, during).await?;
    let one_stream = measure_streams(&running, &readers, 1, during).await?;
    let many_streams = measure_streams(&running, &readers, MANY, during).await?;
    Ok(Measured {
        proxy,
        connections_per_second,
        cpu_per_connection: spent * 1e6 / (connections_per_second * during.as_secs_f64()),
        latency_p50: microseconds(&latencies, 50),
        latency_p99: microseconds(&latencies, 99),
        one_stream,
        many_streams,
        idle_tunnel: measure_idle(&running, &clients, arguments.idle).await?,
    })
}

async fn measure_streams(
    running: &Running,
    clients: &Clients,
    streams: usize,
    during: Duration,
) -> anyhow::Result<Streams> {
    let before = totals(running)?;
    let Moved { bytes, seconds, fairness } = clients.stream(streams, during).await?;
    let spent = totals(running)?.cpu_seconds - before.cpu_seconds;
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let gigabytes = bytes as f64 / 1e9;
    // Of the half second before, too, bytes were moved and CPU was spent.
    let moved = gigabytes * (seconds + 0.5) / seconds;
    Ok(Streams { gigabytes_per_second: gigabytes / seconds, cpu_seconds_per_gigabyte: spent / moved, fairness })
}

async fn measure_idle(running: &Running, clients: &Clients, count: usize) -> anyhow::Result<f64> {
    // Memory that many connections have needed once is there already; what is idle needs it again.
    let before = totals(running)?.resident;
    let open = clients.idle(count).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = totals(running)?.resident;
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    Ok((after - before) * 1e6 / open.len() as f64)
}

/// CPU seconds and megabytes of all its processes.
pub(super) struct Totals {
    pub(super) cpu_seconds: f64,
    resident: f64,
}

pub(super) fn totals(running: &Running) -> anyhow::Result<Totals> {
    let mut totals = Totals { cpu_seconds: 0.0, resident: 0.0 };
    for process in running.processes()? {
        let used = usage(process)?;
        totals.cpu_seconds += used.cpu_seconds;
        totals.resident += used.resident;
    }
    Ok(totals)
}

pub(super) fn microseconds(sorted: &[Duration], percentile: usize) -> f64 {
    let at = (sorted.len() * percentile / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
}

/// What the peers say of themselves.
pub(super) fn peers() -> Value {
    let says = |program: &str, flag: &str| {
        let output = Command::new(program).arg(flag).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).lines().next().map(str::to_owned)
    };
    json!({
        "haproxy": says("haproxy", "-v"), "nginx": says("nginx", "-v"), "envoy": portreeve_programs::ENVOY_VERSION,
    })
}

/// Values, and the ratios to HAProxy as it is without tuning.
fn print(measured: &[Measured]) {
    println!(
        "{:<15} {:>11} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "", "connections", "CPU each", "p50", "p99", "1 stream", "CPU", "100", "CPU", "slowest/", "idle"
    );
    println!(
        "{:<15} {:>11} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "", "per second", "µs", "µs", "µs", "GB/s", "s/GB", "GB/s", "s/GB", "fastest", "bytes"
    );
    for one in measured {
        println!(
            "{:<15} {:>11.0} {:>9.1} {:>9.0} {:>9.0} {:>8.2} {:>8.3} {:>8.2} {:>9.3} {:>9.2} {:>9.0}",
            one.proxy.name(),
            one.connections_per_second,
            one.cpu_per_connection,
            one.latency_p50,
            one.latency_p99,
            one.one_stream.gigabytes_per_second,
            one.one_stream.cpu_seconds_per_gigabyte,
            one.many_streams.gigabytes_per_second,
            one.many_streams.cpu_seconds_per_gigabyte,
            one.many_streams.fairness,
            one.idle_tunnel,
        );
    }
    let find = |proxy| measured.iter().find(|one| one.proxy == proxy);
    let (Some(direct), Some(haproxy)) = (find(Proxy::Direct), find(Proxy::Haproxy)) else { return };
    println!("\nto HAProxy: connections, added latency p50, 100 streams, memory of an idle tunnel");
    for one in measured.iter().filter(|one| one.proxy != Proxy::Direct) {
        let added = |one: &Measured| one.latency_p50 - direct.latency_p50;
        println!(
            "{:<15} {:>11.2} {:>9.2} {:>8.2} {:>8.2}",
            one.proxy.name(),
            one.connections_per_second / haproxy.connections_per_second,
            added(one) / added(haproxy),
            one.many_streams.gigabytes_per_second / haproxy.many_streams.gigabytes_per_second,
            one.idle_tunnel / haproxy.idle_tunnel,
        );
    }
}
