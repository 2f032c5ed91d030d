//! The operator as its chart installs it.

use std::path::Path;

use anyhow::{Context, ensure};
use portreeve_testkit::Bed;
use serde_json::Value;

use super::Operator;

/// The namespace of the release.
pub(crate) const NAMESPACE: &str = "portreeve-system";

/// The folder of the chart.
pub(crate) fn chart() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/portreeve").display().to_string()
}

/// Runs the real Helm as one who may do everything.
pub(crate) fn helm(bed: &Bed, arguments: &[&str]) -> anyhow::Result<()> {
    let mut helm = bed.node().command(portreeve_programs::find("helm")?);
    helm.arg("--kubeconfig").arg(bed.kubeconfig()).args(["--namespace", NAMESPACE]).args(arguments);
    for (variable, folder) in [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
    {
        helm.env(variable, bed.folder().join("helm").join(folder));
    }
    let output = helm.output().context("failed to start helm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "helm {} failed: {said}", arguments.join(" "));
    Ok(())
}

/// The operator as a kubelet would start it for the Deployment.
pub(crate) async fn start(bed: &Bed, deployment: &Value, name: &str) -> anyhow::Result<Operator> {
    let pod = &deployment["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().context("the pod has an account")?;
    let kubeconfig = bed.kubeconfig_for_token(name, &bed.token(NAMESPACE, account).await?)?;
    let container = &pod["containers"][0];
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone())?;
    let mut environment = Vec::new();
    for variable in container["env"].as_array().context("the container has an environment")? {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("metadata.name") => format!("portreeve-{name}"),
            Some("metadata.namespace") => NAMESPACE.to_owned(),
            _ => variable["value"].as_str().unwrap_or_default().to_owned(),
        };
        environment.push((variable["name"].as_str().unwrap_or_default().to_owned(), value));
    }
    // As in the image, and with a folder of its own for what goes with the pod.
    environment.push(("HELM".to_owned(), portreeve_programs::find("helm")?.display().to_string()));
    environment.push(("TMPDIR".to_owned(), bed.folder().display().to_string()));
    Operator::start_with(bed, name, |command| command.args(arguments).envs(environment).env("KUBECONFIG", kubeconfig))
}
