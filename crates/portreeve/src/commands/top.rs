//! `portreeve top`: what a running gateway is doing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cli::TopArgs;
use crate::exit::Exit;
use crate::output::print;
use crate::status::{Status, TunnelStatus};
use crate::text::Style;

/// How long a gateway may take to say how it stands.
const PATIENCE: Duration = Duration::from_secs(5);
/// Clears the terminal and starts at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Shows it once, or again and again until the command is ended.
pub async fn run(arguments: TopArgs) -> anyhow::Result<Exit> {
    let style = Style::of_stdout();
    loop {
        let address = arguments.address;
        let asking = timeout(PATIENCE, ask(address)).await.context("no answer came in time").flatten();
        let status = asking.with_context(|| {
            format!("failed to ask {address}: is `portreeve up` running, with this as its --admin-address?")
        })?;
        let text = render(&status, style, arguments.limit);
        if arguments.once {
            print(|out| out.write_all(text.as_bytes()))?;
            return Ok(Exit::Good);
        }
        print(|out| out.write_all(format!("{CLEAR}{text}").as_bytes()))?;
        sleep(Duration::from_secs(arguments.interval.max(1))).await;
    }
}

async fn ask(address: SocketAddr) -> anyhow::Result<Status> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/status").header("host", address.to_string()).body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status() == StatusCode::OK, "the answer was {}", answer.status());
    Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
}

/// Two tables: listeners, and the tunnels that carried the most.
fn render(status: &Status, style: Style, limit: usize) -> String {
    let mut listeners = style.table(&["LISTENER", "ADDRESS", "HOSTS", "MODE", "ROUTES", "TUNNELS"]);
    for one in &status.listeners {
        let address = one.address.map(|address| address.to_string()).or_else(|| one.problem.clone());
        let (routes, tunnels) = (one.routes.len().to_string(), one.tunnels.to_string());
        let address = address.unwrap_or_else(|| "-".to_owned());
        listeners.add_row([&one.listener, &address, &one.hosts, &one.mode, &routes, &tunnels]);
    }
    let mut most: Vec<&TunnelStatus> = status.tunnels.iter().collect();
    most.sort_by_key(|tunnel| std::cmp::Reverse(tunnel.received + tunnel.sent));
    let mut tunnels = style.table(&["PEER", "NAME", "BACKEND", "ENDPOINT", "AGE", "IN", "OUT"]);
    for one in most.iter().take(limit) {
        tunnels.add_row([
            one.peer.to_string(),
            text(one.server_name.as_ref()),
            text(one.backend.as_ref()),
            text(one.endpoint.as_ref()),
            age(one.age_seconds),
            bytes(one.received),
            bytes(one.sent),
        ]);
    }
    let state = if status.is_draining { ", stopping" } else { "" };
    let (open, waiting, count) = (status.connections, status.waiting, status.tunnels.len());
    format!("{open} connections, {waiting} of them waiting, {count} tunnels{state}\n{listeners}\n{tunnels}\n")
}

fn text(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an age is positive, and shown roughly")]
fn age(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600, seconds / 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{}m", minutes % 60),
        (days, hours, _) => format!("{days}d{}h", hours % 24),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown roughly")]
fn bytes(count: u64) -> String {
    let (mut value, mut unit) = (count as f64, "B");
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        assert_eq!([0.0, 61.0, 3700.0, 90_000.0].map(age), ["0s", "1m1s", "1h1m", "1d1h"]);
        assert_eq!([0, 999, 1000, 1_234_567, 5_000_000_000].map(bytes), ["0 B", "999 B", "1.0 kB", "1.2 MB", "5.0 GB"]);
    }
}
