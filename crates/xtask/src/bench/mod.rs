//! `cargo xtask bench`: what is measured, kept under `bench/results` with the versions that it was measured of.

mod operator;
mod passthrough;
mod plan;
mod tenants;
mod terminate;

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::run::root;

/// Where the results are, below the workspace's root.
const FOLDER: &str = "bench/results";

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Planning over 500, 1,000 and 5,000 apps: when all are new, and when all are served and nothing is due
    Plan,
    /// The operator on a real API server, with apps or tenants that are created at once
    ///
    /// For each number of apps a cluster of its own: etcd, the API server, and a stub that acknowledges listeners and routes
    /// at once. Namespaces, Services, endpoints and Secrets are there and the operator is ready before the apps are
    /// created on many connections. Times count from the first app's creation, so they hold the creation too. With
    /// `--tenants` that is done with tenants, whose virtual clusters are a Service with an endpoint.
    Operator(operator::Arguments),
    /// The embedded gateway with TLS that it passes on, side by side with HAProxy, nginx and Envoy
    ///
    /// All route two names by the ClientHello to the same backends, with the same clients, one after the other, on loopback.
    /// A direct connection is the limit. HAProxy and nginx come from Debian's packages.
    Passthrough(passthrough::Arguments),
    /// The embedded gateway with TLS that it ends, and HTTP, side by side with HAProxy, nginx and Envoy
    ///
    /// TLS handshakes, full and resumed, with one request each, and requests over HTTP/1.1 and HTTP/2 on open connections. All offer
    /// the same key exchange and certificate, and keep connections to the same backend.
    Terminate(terminate::Arguments),
}

/// Measures, prints a table and writes the results.
pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Plan => plan::run(),
        Bench::Operator(arguments) => operator::run(arguments),
        Bench::Passthrough(arguments) => passthrough::run(arguments),
        Bench::Terminate(arguments) => terminate::run(arguments),
    }
}

fn keep(name: &str, results: &Value) -> anyhow::Result<()> {
    let name = format!("{FOLDER}/{name}.json");
    fs::create_dir_all(root().join(FOLDER)).with_context(|| format!("failed to make {FOLDER}"))?;
    let text = serde_json::to_string_pretty(results)? + "\n";
    fs::write(root().join(&name), text).with_context(|| format!("failed to write {name}"))?;
    eprintln!("==> wrote {name}");
    Ok(())
}

/// What was measured, and on what.
fn versions() -> anyhow::Result<Value> {
    let commit = output(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(root()))?;
    let rustc = output(Command::new("rustc").arg("--version"))?;
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    Ok(json!({ "commit": commit.trim(), "rustc": rustc.trim(), "cpu": cpu, "cores": cores }))
}

/// What a program prints on standard output.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("failed to start {program}"))?;
    if !output.status.success() {
        bail!("{program} ended with {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}
