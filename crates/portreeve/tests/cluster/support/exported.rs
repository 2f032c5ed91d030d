//! A cluster as files, and what `portreeve trace` makes of them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use portreeve_testkit::Bed;
use serde_json::Value;

/// What decides where a connection goes.
const KINDS: &str =
    "gatewayclasses,gateways,listenersets,httproutes,tlsroutes,services,endpointslices,namespaces,networkpolicies";

/// Writes what decides where a connection goes as `kubectl get` prints it, and returns the folder of that name.
pub(crate) async fn exported(bed: &Bed, name: &str) -> anyhow::Result<PathBuf> {
    let folder = bed.folder().join(name);
    std::fs::create_dir_all(&folder)?;
    let mut command = bed.kubectl()?;
    command.args(["get", KINDS, "--all-namespaces", "--output", "yaml"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "kubectl says {}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(folder.join("cluster.yaml"), output.stdout)?;
    Ok(folder)
}

/// What `portreeve trace` says about each NetworkPolicy on the way of a connection `from` Pods, in a folder or a cluster as
/// the question has it; fails unless it ends with failure exactly where one blocks.
pub(crate) async fn policy_verdicts(question: &[impl AsRef<OsStr>], from: &str) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve"));
    command.arg("trace").args(question).args(["--from", from, "-o", "json"]);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let trace: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("trace says {}", String::from_utf8_lossy(&output.stderr)))?;
    let hops = trace["hops"].as_array().context("a trace has hops")?;
    let verdicts = hops.iter().filter(|hop| hop["kind"] == "NetworkPolicy").filter_map(|hop| hop["verdict"].as_str());
    let verdicts: Vec<String> = verdicts.map(str::to_owned).collect();
    let blocked = verdicts.iter().any(|verdict| verdict == "Blocked");
    ensure!(output.status.success() != blocked, "trace ends with {}: {trace:#}", output.status);
    Ok(verdicts)
}
