//! A cluster as files.

use std::path::PathBuf;

use anyhow::ensure;
use portreeve_testkit::Bed;

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
