//! `cargo xtask bench terminate`: TLS that ends at the proxy and HTTP behind it, side by side with what people run today.

mod clients;
mod proxies;

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use portreeve_testkit::tls::Identity;
use serde::Serialize;
use serde_json::json;

use super::passthrough::{Proxy, Running, allow_many_files, microseconds, peers, totals};
use super::{keep, versions};
use crate::load::build_operator;
use crate::{bed, runtime, tools};
use clients::{Clients, Http};
use proxies::{Addresses, NAME};

/// Which proxies; without one in between there is no TLS to compare.
const PROXIES: [Proxy; 4] = [Proxy::Portreeve, Proxy::Haproxy, Proxy::Nginx, Proxy::Envoy];

/// What is measured.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
}

/// What was measured of one proxy; CPU is that of its processes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    proxy: Proxy,
    /// Connections with a full handshake and one request each.
    full_handshakes: Rate,
    /// The same with a handshake that resumes a session.
    resumed_handshakes: Rate,
    http1: Rate,
    http2: Rate,
}

/// How many a second, what each costs, and how long each takes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rate {
    per_second: f64,
    /// Microseconds of CPU for each.
    cpu: f64,
    /// Microseconds.
    p50: f64,
    p99: f64,
}

/// Measures each proxy, prints a table and keeps the results.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    bed::run(&[])?;
    tools::ensure_peers()?;
    let portreeve = build_operator()?;
    allow_many_files()?;
    let identity = Identity::new(&[NAME])?;
    let mut measured = Vec::new();
    for proxy in PROXIES {
        eprintln!("==> {}", proxy.name());
        let folder = std::env::temp_dir().join(format!("portreeve-bench-{}-{}", std::process::id(), measured.len()));
        let during = Duration::from_secs(arguments.seconds);
        let result = runtime()?.block_on(measure(proxy, &portreeve, &folder, &identity, during));
        let _ = std::fs::remove_dir_all(&folder);
        measured.push(result.with_context(|| format!("{} was measured", proxy.name()))?);
    }
    print(&measured);
    let mut versions = versions()?;
    versions["peers"] = peers();
    keep("terminate", &json!({ "versions": versions, "measured": measured }))
}

async fn measure(
    proxy: Proxy,
    portreeve: &Path,
    folder: &Path,
    identity: &Identity,
    during: Duration,
) -> anyhow::Result<Measured> {
    let backend = clients::backend()?;
    let free = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let running = proxies::start(proxy, portreeve, folder, identity, Addresses { proxy: free, backend })?;
    let clients = Clients::new(free, NAME)?;
    clients.wait_until_served().await?;
    Ok(Measured {
        proxy,
        full_handshakes: rate(&running, during, async || clients.handshakes(false, during).await).await?,
        resumed_handshakes: rate(&running, during, async || clients.handshakes(true, during).await).await?,
        http1: rate(&running, during, async || clients.requests(Http::One, during).await).await?,
        http2: rate(&running, during, async || clients.requests(Http::Two, during).await).await?,
    })
}

/// What `work` has come to: how long each took, in any order.
async fn rate(
    running: &Running,
    during: Duration,
    work: impl AsyncFn() -> anyhow::Result<Vec<Duration>>,
) -> anyhow::Result<Rate> {
    let before = totals(running)?.cpu_seconds;
    let mut latencies = work().await?;
    let spent = totals(running)?.cpu_seconds - before;
    latencies.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let count = latencies.len() as f64;
    Ok(Rate {
        per_second: count / during.as_secs_f64(),
        cpu: spent * 1e6 / count,
        p50: microseconds(&latencies, 50),
        p99: microseconds(&latencies, 99),
    })
}

/// What is shown, and of what.
type Column = (&'static str, fn(&Measured) -> &Rate);

/// Values, and the ratios to HAProxy.
fn print(measured: &[Measured]) {
    let haproxy = measured.iter().find(|one| one.proxy == Proxy::Haproxy);
    let columns: [Column; 4] = [
        ("full handshakes", |one| &one.full_handshakes),
        ("resumed handshakes", |one| &one.resumed_handshakes),
        ("HTTP/1.1 requests", |one| &one.http1),
        ("HTTP/2 requests", |one| &one.http2),
    ];
    for (title, of) in columns {
        println!(
            "\n{title:<20} {:>10} {:>9} {:>9} {:>9} {:>10}",
            "per second", "CPU µs", "p50 µs", "p99 µs", "to HAProxy"
        );
        for one in measured {
            let rate = of(one);
            let ratio = haproxy.map_or(f64::NAN, |haproxy| rate.per_second / of(haproxy).per_second);
            println!(
                "{:<20} {:>10.0} {:>9.1} {:>9.0} {:>9.0} {:>10.2}",
                one.proxy.name(),
                rate.per_second,
                rate.cpu,
                rate.p50,
                rate.p99,
                ratio
            );
        }
    }
}
