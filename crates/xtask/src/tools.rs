//! The programs that tests and checks need beside the Rust toolchain.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;
use portreeve_programs as programs;

use crate::run::{cargo, step};

const CARGO_DENY: &str = "0.20.2";

/// Debian packages of what the end-to-end tests drive: TLS and HTTP clients, and what makes and filters networks; by the
/// program that they bring.
const CLIENTS: &[(&str, &str)] = &[
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("python3", "python3"),
    ("pip3", "python3-pip"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    // A real browser signs in.
    ("chromium", "chromium"),
    // Keycloak is a Java program from Maven Central.
    ("java", "openjdk-17-jre-headless"),
    ("mvn", "maven"),
];

/// Debian packages of the proxies that benches compare with.
const PEERS: &[(&str, &str)] = &[("haproxy", "haproxy"), ("nginx", "nginx-light"), ("nginx", "libnginx-mod-stream")];

/// Installs the clients that are missing, where the system is a Debian and we may.
pub(crate) fn ensure_clients() -> anyhow::Result<()> {
    ensure(CLIENTS, "the end-to-end tests")
}

/// Installs the proxies that are missing, as [`ensure_clients`] does.
pub(crate) fn ensure_peers() -> anyhow::Result<()> {
    ensure(PEERS, "the benches")
}

fn ensure(packages: &[(&str, &str)], who: &str) -> anyhow::Result<()> {
    let missing: Vec<_> =
        packages.iter().filter(|(program, _)| !is_on_path(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    step("update the package lists", Command::new("apt-get").args(["update", "-q"]))?;
    step(
        &format!("install {}", missing.join(", ")),
        Command::new("apt-get").args(["install", "-y", "-q", "--no-install-recommends"]).args(&missing),
    )
    .with_context(|| format!("{who} need {}: install it by hand", missing.join(", ")))
}

/// The path of cargo-deny, built once for each version.
pub(crate) fn cargo_deny() -> anyhow::Result<PathBuf> {
    let root = programs::cache()?.join("tools").join(format!("cargo-deny-{CARGO_DENY}"));
    let program = root.join("bin/cargo-deny");
    if !program.exists() {
        step(
            &format!("build cargo-deny {CARGO_DENY} (once, some minutes)"),
            cargo(&["install", "cargo-deny", "--locked", "--version", CARGO_DENY, "--root"]).arg(&root),
        )?;
    }
    Ok(program)
}

fn is_on_path(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}
