//! `portreeve kubeconfig`: a tenant's kubeconfig, to a file of its own or into one that is there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use http::Uri;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config};
use portreeve_api::{Tenant, names};
use portreeve_controller::dial::trusted_at;
use portreeve_plan::DialResult;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

use crate::cli::{ClusterArgs, KubeconfigArgs};
use crate::cluster::Connection;
use crate::exit::Exit;
use crate::kubeconfig::TenantKubeconfig;
use crate::output::{print, say};
use crate::state::{Secrecy, replace};

/// Runs the command.
pub async fn run(arguments: KubeconfigArgs) -> anyhow::Result<Exit> {
    let Some(text) = fetch(&arguments.tenant, &arguments.cluster).await? else { return Ok(Exit::Refused) };
    let found = TenantKubeconfig::read(&arguments.tenant, &text)
        .with_context(|| format!("the Secret of Tenant {} cannot be used", arguments.tenant))?;
    match (&arguments.merge, &arguments.output) {
        (Some(file), _) => merge(&found, file.clone().map_or_else(default_file, Ok)?, arguments.uses)?,
        (None, Some(file)) => {
            write(file, &found.alone())?;
            say(format_args!("{} has the context {}", file.display(), found.name));
        }
        (None, None) if arguments.check => {}
        (None, None) => print(|out| out.write_all(yaml(&found.alone())?.as_bytes()))?,
    }
    if !arguments.check {
        return Ok(Exit::Good);
    }
    match check(&found, &arguments.cluster).await? {
        Ok(version) => {
            say(format_args!("{} answers: Kubernetes {version}", found.server()));
            Ok(Exit::Good)
        }
        Err(why) => {
            say(format_args!("{} does not answer: {why}", found.server()));
            Ok(Exit::Refused)
        }
    }
}

/// The kubeconfig that the Tenant's status names; none, and a word about it, where there is none yet.
async fn fetch(tenant: &str, cluster: &ClusterArgs) -> anyhow::Result<Option<String>> {
    let connection = Connection::new(cluster).await?;
    let tenants: Api<Tenant> = Api::all(connection.client.clone());
    let found = tenants.get_opt(tenant).await.map_err(|error| connection.failed(error))?;
    let Some(found) = found else { bail!("there is no Tenant {tenant}, or the cluster lacks its CRD") };
    let status = found.status.unwrap_or_default();
    let Some(reference) = status.kubeconfig_secret_ref else {
        let phase = status.phase.map_or_else(|| "no status".to_owned(), |phase| format!("phase {phase:?}"));
        let message = status.message.map(|message| format!(", {message}")).unwrap_or_default();
        say(format_args!("Tenant {tenant} has no kubeconfig yet ({phase}{message})"));
        return Ok(None);
    };
    let namespace = found.spec.target_namespace.unwrap_or_else(|| names::tenant::default_namespace(tenant));
    let name = reference.name.unwrap_or_else(|| names::tenant::kubeconfig_secret(tenant));
    let key = reference.key.unwrap_or_else(|| names::tenant::KUBECONFIG_KEY.to_owned());
    let secrets: Api<Secret> = Api::namespaced(connection.client.clone(), &namespace);
    let secret = secrets.get_opt(&name).await.map_err(|error| connection.failed(error))?;
    let content = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove(&key));
    let Some(ByteString(content)) = content else {
        say(format_args!("Tenant {tenant}: the Secret {namespace}/{name}, which its status names, has no key {key}"));
        return Ok(None);
    };
    let text = String::from_utf8(content);
    text.map(Some).with_context(|| format!("the Secret {namespace}/{name} has no text under {key}"))
}

fn merge(found: &TenantKubeconfig, file: PathBuf, uses: bool) -> anyhow::Result<()> {
    // The file that a link leads to is replaced, not the link.
    let file = fs::canonicalize(&file).unwrap_or(file);
    let _lock = Lock::take(&file)?;
    let before = match fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("failed to read {}", file.display()))?,
    };
    let merged = found.merged(&before, uses).with_context(|| format!("failed to merge into {}", file.display()))?;
    write(&file, &merged)?;
    if before.lines().any(|line| line.trim_start().starts_with('#')) {
        say(format_args!("note: the comments in {} are gone", file.display()));
    }
    say(format_args!("{} has the context {}", file.display(), found.name));
    Ok(())
}

/// Where kubectl writes.
fn default_file() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let named = named.and_then(|paths| std::env::split_paths(&paths).find(|path| !path.as_os_str().is_empty()));
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    named.or_else(home).context("neither KUBECONFIG nor HOME says where the kubeconfig is: name a file")
}

fn write(file: &Path, content: &Value) -> anyhow::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let name = file.file_name().context("the file has no name")?.to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let written = replace(folder, &temporary, file, Secrecy::Private, yaml(content)?.as_bytes());
    written.with_context(|| format!("failed to write {}", file.display()))
}

fn yaml(content: &Value) -> io::Result<String> {
    serde_saphyr::to_string(content).map_err(io::Error::other)
}

/// The lock that kubectl takes before it changes a kubeconfig; it goes when this is dropped.
struct Lock(PathBuf);

impl Lock {
    fn take(file: &Path) -> anyhow::Result<Self> {
        let path = PathBuf::from(format!("{}.lock", file.display()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        }
        match File::create_new(&path) {
            Ok(_) => Ok(Self(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                bail!("{} is there: another program changes the file, or has left that behind", path.display())
            }
            Err(error) => Err(error).with_context(|| format!("failed to make {}", path.display())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            say(format_args!("warning: {} could not be removed: {error}", self.0.display()));
        }
    }
}

/// Uses the kubeconfig as kubectl would; the API server's version, or why it does not get through, with the reason that
/// `APIServerReachable` would have.
async fn check(found: &TenantKubeconfig, arguments: &ClusterArgs) -> anyhow::Result<Result<String, String>> {
    if let Some(why) = dial(found).await? {
        return Ok(Err(why));
    }
    let kubeconfig: Kubeconfig = serde_json::from_value(found.alone()).context("it is no kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let connection = Connection::with(config, arguments.patience())?;
    Ok(match connection.client.apiserver_version().await {
        Ok(version) => Ok(version.git_version),
        Err(error) => Err(format!("{:#}", connection.failed(error))),
    })
}

/// Connects as a client that trusts the authority of the kubeconfig, if that names one.
async fn dial(found: &TenantKubeconfig) -> anyhow::Result<Option<String>> {
    let url: Uri = found.server().parse().with_context(|| format!("{} is no URL", found.server()))?;
    let host = url.host().with_context(|| format!("{url} names no host"))?;
    let Some(authority) = found.authority() else { return Ok(None) };
    let authority: ByteString = serde_json::from_value(authority.into()).context("its authority is not in base64")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&authority.0) {
        roots.add(certificate.context("its authority is not PEM")?).context("its authority is no certificate")?;
    }
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
    let name = name.with_context(|| format!("{host} is no name that can be asked for"))?;
    let address = format!("{host}:{}", url.port_u16().unwrap_or(443));
    Ok(trusted_at(&address, &name, roots).await.err().map(|result| explain(&result)))
}

fn explain(result: &DialResult) -> String {
    match result {
        DialResult::Proved => "it does".to_owned(),
        DialResult::SanMissing(names) => {
            format!("SANMissing: the certificate of the API server does not cover the name; it is for {names}")
        }
        DialResult::Terminated(why) => format!(
            "Terminated: the certificate that answers is not signed by the kubeconfig's authority ({why}): something on the \
             way ends TLS, or the kubeconfig is of an earlier API server"
        ),
        DialResult::NoRoute(why) => format!("NoRoute: the gateway takes the connection and does not pass it on: {why}"),
        DialResult::ConnectFailed(why) => format!("ConnectFailed: {why}"),
    }
}
