use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use portreeve_plan::{ReleaseAction, ReleaseStep, VALUES_LABEL};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::process;

/// How long a token is good for: longer than a run may take.
const TOKEN_SECONDS: i64 = 900;
/// What the Helm client is told about how long it may wait for hooks.
const HOOKS: &str = "4m";
/// How many revisions are kept of a release, as the contract has it.
const REVISIONS: &str = "5";
/// The chart's name in a Helm repository.
const CHART_OF_REPOSITORY: &str = "vcluster";
/// How much of what the Helm client says is told.
const LONGEST: usize = 600;

/// The Helm client, and as whom it works.
#[derive(Clone, Debug)]
pub struct HelmSettings {
    /// The program.
    pub program: PathBuf,
    /// Namespace and name of the `ServiceAccount` as which it works. It is not the operator's.
    pub account: (String, String),
    /// Where it finds the API server.
    pub api_server: ApiServerAddress,
    /// Where it keeps what it may lose; nobody else uses the folder. Default: one of the system's folder for such.
    pub work: Option<PathBuf>,
}

/// How an API server is reached, without credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiServerAddress {
    /// Its URL.
    pub url: String,
    /// Who has signed its certificate, as PEM; absent: those whom the system trusts.
    pub authority: Option<String>,
    /// The name in its certificate, if that is not the URL's.
    pub tls_server_name: Option<String>,
    /// Whether its certificate is not checked.
    pub insecure: bool,
    /// The proxy before it.
    pub proxy: Option<String>,
}

/// Runs the Helm client.
#[derive(Clone)]
pub(super) struct Helm {
    client: Client,
    settings: Arc<HelmSettings>,
}

/// The files of one run, which go with it. Nobody else may read them.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("the files of a run of Helm are left in {}: {error}", self.0.display());
        }
    }
}

impl Helm {
    pub(super) fn new(client: Client, settings: HelmSettings) -> Self {
        // What a process left that was killed.
        let _ = fs::remove_dir_all(work(&settings).join("runs"));
        Self { client, settings: Arc::new(settings) }
    }

    /// Does one step; `unfinished` are the records of half-done runs, which are given up first.
    ///
    /// # Errors
    ///
    /// With what to tell people: no times, no secrets.
    pub(super) async fn run(
        &self,
        step: &ReleaseStep,
        unfinished: &[String],
        told_to_stop: CancellationToken,
    ) -> Result<(), String> {
        for record in unfinished {
            self.give_up(&step.namespace, record).await?;
        }
        let token = self.token().await?;
        let files = self.prepare(step, &token).map_err(|error| format!("no files for Helm: {error}"))?;
        let command = self.command(step, &files.0);
        let output = files.0.join("output");
        let (namespace, name) = (&step.namespace, &step.name);
        tracing::info!(namespace, name, action = action(step), "Helm runs");
        let ended = process::run(command, output.clone(), told_to_stop).await;
        let said = fs::read_to_string(output).unwrap_or_default();
        match ended {
            Ok(()) => Ok(()),
            Err(process::Failure::Status(_)) if !said.trim().is_empty() => Err(told(&said)),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Helm refuses to touch a release that another run has in its hands; its record is all that says so.
    async fn give_up(&self, namespace: &str, record: &str) -> Result<(), String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match secrets.delete(record, &DeleteParams::default()).await {
            Ok(_) => tracing::warn!(namespace, record, "the record of a run of Helm that did not end is given up"),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let why = crate::text::chain(&error);
                return Err(format!("the record {record} of a run that did not end cannot be deleted: {why}"));
            }
        }
        Ok(())
    }

    async fn token(&self) -> Result<String, String> {
        let (namespace, name) = &self.settings.account;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| {
            format!("no token of the ServiceAccount {namespace}/{name}: {}", crate::text::chain(&error))
        })?;
        let token = answer.status.and_then(|status| status.token);
        token.ok_or_else(|| format!("the API server gives no token of the ServiceAccount {namespace}/{name}"))
    }

    fn prepare(&self, step: &ReleaseStep, token: &str) -> io::Result<Files> {
        let folder = work(&self.settings).join("runs").join(format!("{}.{}", step.namespace, step.name));
        let mut private = DirBuilder::new();
        private.recursive(true).mode(0o700).create(&folder)?;
        let files = Files(folder);
        let config = kubeconfig(&self.settings.api_server, token);
        write_private(&files.0.join("kubeconfig"), &config)?;
        if let ReleaseAction::Install { values, .. } = &step.action {
            write_private(&files.0.join("values.json"), values)?;
        }
        Ok(files)
    }

    fn command(&self, step: &ReleaseStep, files: &Path) -> Command {
        let mut command = Command::new(&self.settings.program);
        for (variable, _) in std::env::vars_os() {
            let variable = variable.to_string_lossy();
            let names_files = matches!(&*variable, "HELM_REGISTRY_CONFIG" | "HELM_REPOSITORY_CONFIG");
            if variable.starts_with("HELM_") && !names_files || variable == "KUBECONFIG" {
                command.env_remove(&*variable);
            }
        }
        for folder in ["cache", "config", "data"] {
            let variable = format!("HELM_{}_HOME", folder.to_uppercase());
            command.env(variable, work(&self.settings).join(folder));
        }
        command.arg("--kubeconfig").arg(files.join("kubeconfig"));
        command.args(["--namespace", &step.namespace]);
        match &step.action {
            ReleaseAction::Install { chart, version, digest, .. } => {
                command.args(["upgrade", "--install", &step.name]).args(chart_arguments(chart));
                command.args(["--version", version, "--history-max", REVISIONS, "--timeout", HOOKS]);
                command.arg(format!("--labels={VALUES_LABEL}={digest}"));
                command.arg("--values").arg(files.join("values.json"));
            }
            ReleaseAction::Uninstall => {
                command.args(["uninstall", &step.name, "--ignore-not-found", "--timeout", HOOKS]);
            }
        }
        command
    }
}

/// A chart in a Helm repository is told apart from one that has an address of its own.
fn chart_arguments(chart: &str) -> Vec<&str> {
    let is_archive = Path::new(chart).extension().is_some_and(|end| end == "tgz");
    let is_repository = (chart.starts_with("https://") || chart.starts_with("http://")) && !is_archive;
    if is_repository { vec![CHART_OF_REPOSITORY, "--repo", chart] } else { vec![chart] }
}

fn work(settings: &HelmSettings) -> PathBuf {
    settings.work.clone().unwrap_or_else(super::default_work_folder)
}

fn action(step: &ReleaseStep) -> &'static str {
    match step.action {
        ReleaseAction::Install { .. } => "install",
        ReleaseAction::Uninstall => "uninstall",
    }
}

/// Only who runs this may read the file.
fn write_private(path: &Path, content: &Value) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content.to_string().as_bytes())
}

/// JSON is YAML.
fn kubeconfig(api_server: &ApiServerAddress, token: &str) -> Value {
    let ApiServerAddress { url, authority, tls_server_name, insecure, proxy } = api_server;
    let mut cluster = json!({ "server": url });
    if let Some(authority) = authority {
        cluster["certificate-authority-data"] = json!(ByteString(authority.clone().into_bytes()));
    }
    if let Some(name) = tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    if let Some(proxy) = proxy {
        cluster["proxy-url"] = json!(proxy);
    }
    if *insecure {
        cluster["insecure-skip-tls-verify"] = json!(true);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "host",
        "contexts": [{ "name": "host", "context": { "cluster": "host", "user": "helm" } }],
        "clusters": [{ "name": "host", "cluster": cluster }],
        "users": [{ "name": "helm", "user": { "token": token } }],
    })
}

/// What the Helm client says was wrong, in one line.
fn told(output: &str) -> String {
    let start = output.rfind("Error: ").map_or(0, |at| at + "Error: ".len());
    let text = output[start..].split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_an_address_or_is_in_a_repository() {
        assert_eq!(chart_arguments("oci://ghcr.io/charts/vcluster"), ["oci://ghcr.io/charts/vcluster"]);
        assert_eq!(chart_arguments("https://charts.test/a.tgz"), ["https://charts.test/a.tgz"]);
        assert_eq!(chart_arguments("/charts/own"), ["/charts/own"]);
        assert_eq!(chart_arguments("https://charts.test"), ["vcluster", "--repo", "https://charts.test"]);
    }

    #[test]
    fn of_what_helm_says_only_the_error_is_told() {
        let output = "WARNING: something\nError: UPGRADE FAILED: values don't meet\n- at '/x': got string\n";
        assert_eq!(told(output), "UPGRADE FAILED: values don't meet - at '/x': got string");
        assert_eq!(told(&format!("Error: {}", "é".repeat(LONGEST + 1))).chars().count(), LONGEST + 1);
    }

    #[test]
    fn a_token_is_only_in_a_file_that_nobody_else_reads() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        write_private(&path, &kubeconfig(&ApiServerAddress::default(), "secret")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(path).unwrap().contains("secret"));
    }
}
