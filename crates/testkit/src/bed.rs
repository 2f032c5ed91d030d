//! One cluster.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tower::{BoxError, ServiceBuilder};

use crate::network::{Host, Network};
use crate::objects::eventually;
use crate::part::Running;
use crate::pki::Pki;
use crate::slot::Slot;
use crate::{envoy_gateway, fixtures, keycloak};

/// For how long a client keeps a connection that it does not use. An API server closes it after 90 seconds, which must not
/// happen just when it is used again.
const IDLE: Duration = Duration::from_secs(30);

/// The token of the administrator.
const ADMIN: &str = "admin-token";

/// How long a part may take until it answers: a machine that also compiles needs a multiple of the usual seconds.
pub(crate) const START: Duration = Duration::from_mins(2);

/// Which definitions of Gateway API a bed has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The standard channel.
    Standard,
    /// The experimental channel.
    Experimental,
}

impl Channel {
    /// The name of its definitions, as [`Bed::define`] takes it.
    pub fn definitions(self) -> &'static str {
        match self {
            Self::Standard => "gateway-api-standard",
            Self::Experimental => "gateway-api-experimental",
        }
    }
}

/// A program of a bed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The store.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager, with the controllers that need no nodes.
    ControllerManager,
    /// cert-manager, with the self-signed and CA issuers.
    CertManager,
    /// Envoy Gateway, with the Envoy that it starts.
    EnvoyGateway,
    /// Keycloak, with the realm [`crate::keycloak::REALM`].
    Keycloak,
}

/// What a bed consists of; [`Bed::builder`] has etcd and the API server only.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    controller_manager: bool,
    cert_manager: bool,
    envoy_gateway: bool,
    keycloak: bool,
    gateway_api: Option<Channel>,
}

impl Builder {
    /// Adds deletion of namespaces, garbage collection, Pods of Deployments (Pending, since nothing runs them) and slices of
    /// Services that have a selector.
    #[must_use]
    pub fn with_controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// Adds cert-manager, with its definitions.
    #[must_use]
    pub fn with_cert_manager(mut self) -> Self {
        self.cert_manager = true;
        self
    }

    /// Adds Envoy Gateway and Envoy in the host `gateway`, with the GatewayClass `envoy-gateway`, its definitions, and Gateway
    /// API's standard channel unless another one is named.
    #[must_use]
    pub fn with_envoy_gateway(mut self) -> Self {
        self.envoy_gateway = true;
        self
    }

    /// Adds Keycloak in the host `keycloak`, with the realm [`crate::keycloak::REALM`], in which `alice` is a member of `staff`
    /// and `bob` of nothing; their passwords are their names. It takes half a minute of
    /// the processor. Connections outlive a change of the gateway's filters by five seconds only.
    #[must_use]
    pub fn with_keycloak(mut self) -> Self {
        self.keycloak = true;
        self
    }

    /// Adds the definitions of Gateway API.
    #[must_use]
    pub fn gateway_api(mut self, channel: Channel) -> Self {
        self.gateway_api = Some(channel);
        self
    }

    /// Starts the cluster; when this returns, every part answers.
    ///
    /// # Errors
    ///
    /// Without root, when a program is not installed, or when a part does not answer; then with what it printed last.
    pub async fn start(self) -> anyhow::Result<Bed> {
        let bed = Bed::prepare().await?;
        if self.keycloak {
            keycloak::prepare(&bed)?;
            bed.spawn(Part::Keycloak)?;
        }
        bed.spawn(Part::Etcd)?;
        bed.start(Part::ApiServer).await?;
        if self.controller_manager {
            bed.spawn(Part::ControllerManager)?;
        }
        let channel = self.gateway_api.or(self.envoy_gateway.then_some(Channel::Standard));
        let names = channel.map(Channel::definitions).into_iter();
        let names = names.chain(self.cert_manager.then_some("cert-manager"));
        for name in names.chain(self.envoy_gateway.then_some("envoy-gateway")) {
            bed.define(name, |_| true).await?;
        }
        if self.cert_manager {
            bed.apply(&fixtures::namespace("cert-manager")).await?;
            bed.start(Part::CertManager).await?;
        }
        if self.envoy_gateway {
            let drain = if self.keycloak { envoy_gateway::SHORT_DRAIN } else { envoy_gateway::DRAIN };
            envoy_gateway::prepare(&bed, drain).await?;
            bed.start(Part::EnvoyGateway).await?;
            envoy_gateway::accept_class(&bed).await?;
        }
        if self.keycloak {
            bed.wait_answers(Part::Keycloak).await?;
            keycloak::make_realm(&bed).await?;
        }
        Ok(bed)
    }
}

/// A running cluster; dropping it ends every program and removes every trace, also when the test panics.
///
/// The test process, and what it starts, reaches the API server and all hosts at their addresses.
pub struct Bed {
    // Ended before the network that they use: fields are dropped in this order.
    parts: Mutex<BTreeMap<Part, Running>>,
    client: Client,
    pki: Pki,
    network: Mutex<Network>,
    folder: PathBuf,
    node: Host,
}

impl Bed {
    /// A cluster of etcd and the API server, to be added to.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Everything but the programs.
    async fn prepare() -> anyhow::Result<Self> {
        let network = Network::new(Slot::take()?)?;
        let node = network.node().clone();
        let folder = network.slot().folder();
        let addresses = [node.address(), Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 96, 0, 1)];
        let pki = Pki::create(&folder.join("pki"), &["localhost", "kubernetes.default.svc"], &addresses)?;
        std::fs::write(folder.join("hosts"), "127.0.0.1 localhost\n")?;
        std::fs::write(folder.join("tokens.csv"), format!("{ADMIN},admin,1,\"system:masters\"\n"))?;
        let kubeconfig = kubeconfig(&node, &pki, ADMIN);
        std::fs::write(folder.join("admin.kubeconfig"), kubeconfig.to_string())?;
        let parts = Mutex::default();
        Ok(Self { parts, client: client(kubeconfig).await?, pki, network: Mutex::new(network), folder, node })
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The real kubectl, as one who may do everything.
    pub fn kubectl(&self) -> anyhow::Result<Command> {
        let mut command = self.node.command(portreeve_programs::find("kubectl")?);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        Ok(command)
    }

    /// The path of a kubeconfig that may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// A client that may do what the bearer of `token` may.
    pub async fn client_for(&self, token: &str) -> anyhow::Result<Client> {
        client(kubeconfig(&self.node, &self.pki, token)).await
    }

    /// The path of a kubeconfig that may do what the bearer of `token` may; `name` becomes a part of its name.
    pub fn kubeconfig_for_token(&self, name: &str, token: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig(&self.node, &self.pki, token).to_string())?;
        Ok(path)
    }

    /// A token of a service account that exists, good for an hour.
    pub async fn token(&self, namespace: &str, service_account: &str) -> anyhow::Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(service_account, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("no token for {namespace}/{service_account}"))?;
        answer.status.and_then(|status| status.token).context("a TokenRequest is answered with a token")
    }

    /// The folder for the bed's files, removed with it; each part's output is in `<part>.log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The host of that name, made when it is asked for first.
    pub fn host(&self, name: &str) -> anyhow::Result<Host> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner).host(name)
    }

    /// The hosts that there are so far.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner).hosts().to_vec()
    }

    /// The host in which etcd, the API server and the controllers run.
    pub fn node(&self) -> &Host {
        &self.node
    }

    /// Where Envoy serves a listener's port for clients in any host.
    pub fn gateway_address(&self, port: u16) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::from((self.host("gateway")?.address(), port)))
    }

    /// Makes a host of its own for the Envoy of one Gateway, so that Gateways may share ports. To be called before the Gateway
    /// is there; [`Bed::publish_gateway`] then puts its address there.
    pub fn own_data_plane(&self, namespace: &str, name: &str) -> anyhow::Result<Host> {
        let host = self.host(name)?;
        std::fs::create_dir_all(self.data_planes())?;
        std::fs::write(self.data_planes().join(format!("{namespace}.{name}")), host.namespace())?;
        Ok(host)
    }

    /// The host in which a Gateway's Envoy runs.
    pub fn data_plane(&self, namespace: &str, name: &str) -> anyhow::Result<Host> {
        let is_own = self.data_planes().join(format!("{namespace}.{name}")).exists();
        self.host(if is_own { name } else { "gateway" })
    }

    /// The folder with a file for each Gateway whose Envoy has a host of its own: the name of its network namespace.
    pub(crate) fn data_planes(&self) -> PathBuf {
        self.folder.join("data-planes")
    }

    /// Starts a part, again on the data that it left, and waits until it answers.
    pub async fn start(&self, part: Part) -> anyhow::Result<()> {
        self.spawn(part)?;
        self.wait_answers(part).await
    }

    async fn wait_answers(&self, part: Part) -> anyhow::Result<()> {
        let answers = eventually(format!("{part:?} answers"), START, async || self.ask(part).await).await;
        answers.map_err(|error| {
            let log = std::fs::read_to_string(self.log_path(part)).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(15).collect();
            let lines = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
            error.context(format!("{part:?} printed last:\n{lines}"))
        })
    }

    /// Ends a part at once, as a crash does.
    pub fn kill(&self, part: Part) {
        self.parts().remove(&part);
    }

    /// Stops a part from running without closing its connections, as if its machine hung.
    pub fn pause(&self, part: Part) -> anyhow::Result<()> {
        self.parts().get(&part).with_context(|| format!("{part:?} does not run"))?.pause()
    }

    /// Lets a paused part run again.
    pub fn resume(&self, part: Part) -> anyhow::Result<()> {
        self.parts().get(&part).with_context(|| format!("{part:?} does not run"))?.resume()
    }

    /// Ends the API server as a crash does.
    pub fn stop_api_server(&self) {
        self.kill(Part::ApiServer);
    }

    /// Starts the API server again and waits until it answers.
    pub async fn start_api_server(&self) -> anyhow::Result<()> {
        self.start(Part::ApiServer).await
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<Part, Running>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_path(&self, part: Part) -> PathBuf {
        self.folder.join(format!("{part:?}.log"))
    }

    fn spawn(&self, part: Part) -> anyhow::Result<()> {
        let log = self.log_path(part);
        if log.exists() {
            std::fs::rename(&log, log.with_extension("previous.log"))?;
        }
        let running = Running::start_logged(self.command(part)?, &log)?;
        self.parts().insert(part, running);
        Ok(())
    }

    /// Fails until the part answers.
    async fn ask(&self, part: Part) -> anyhow::Result<()> {
        if let Some(running) = self.parts().get_mut(&part)
            && let Some(status) = running.ended()?
        {
            anyhow::bail!("{part:?} ended with {status}");
        }
        match part {
            Part::ApiServer => {
                let request = hyper::Request::get("/readyz").body(Vec::new())?;
                self.client.request_text(request).await?;
            }
            Part::CertManager => {
                let log = std::fs::read_to_string(self.log_path(part))?;
                anyhow::ensure!(log.contains("controllers started"), "it has not said yet that it started");
            }
            Part::EnvoyGateway => drop(self.node.connect(envoy_gateway::xds_address(self)?).await?),
            Part::ControllerManager => drop(self.node.connect(local(10257)).await?),
            Part::Etcd => drop(self.node.connect(local(2379)).await?),
            Part::Keycloak => keycloak::ask(self).await?,
        }
        Ok(())
    }

    fn command(&self, part: Part) -> anyhow::Result<Command> {
        match part {
            Part::Etcd => self.etcd(),
            Part::ApiServer => self.api_server(),
            Part::ControllerManager => self.controller_manager(),
            Part::CertManager => {
                let mut command = self.node.command(portreeve_programs::find("cert-manager")?);
                command.env("KUBECONFIG", self.kubeconfig());
                Ok(command)
            }
            Part::EnvoyGateway => envoy_gateway::command(self),
            Part::Keycloak => keycloak::command(self),
        }
    }

    fn etcd(&self) -> anyhow::Result<Command> {
        etcd(&self.node, &self.folder.join("etcd"))
    }

    fn api_server(&self) -> anyhow::Result<Command> {
        let mut command = self.node.command(portreeve_programs::find("kube-apiserver")?);
        command.args([
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=6443",
            "--bind-address=0.0.0.0",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            // There are no kubelets that would need what it adds to Pods.
            "--disable-admission-plugins=ServiceAccount",
            // Together the seats of priority and fairness: tests measure the operator, not the queue.
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        ]);
        command.arg(format!("--advertise-address={}", self.node.address()));
        for (flag, file) in [
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("service-account-key-file", "service-account.pub"),
            ("service-account-signing-key-file", "service-account.key"),
        ] {
            command.arg(format!("--{flag}={}", self.pki.path(file).display()));
        }
        command.arg(format!("--token-auth-file={}", self.folder.join("tokens.csv").display()));
        command.arg(format!("--cert-dir={}", self.folder.join("api-server").display()));
        Ok(command)
    }

    fn controller_manager(&self) -> anyhow::Result<Command> {
        let controllers = [
            "deployment-controller",
            "replicaset-controller",
            "statefulset-controller",
            "endpointslice-controller",
            "serviceaccount-controller",
            "namespace-controller",
            "garbage-collector-controller",
            "root-ca-certificate-publisher-controller",
        ];
        let mut command = self.node.command(portreeve_programs::find("kube-controller-manager")?);
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            command.arg(format!("--{flag}={}", self.kubeconfig().display()));
        }
        command.arg(format!("--controllers={}", controllers.join(",")));
        command.arg(format!("--root-ca-file={}", self.pki.path("ca.crt").display()));
        let key = self.pki.path("service-account.key");
        command.arg(format!("--service-account-private-key-file={}", key.display()));
        command.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=10257"]);
        Ok(command)
    }
}

/// A store that listens in a host on loopback only.
pub(crate) fn etcd(host: &Host, data: &Path) -> anyhow::Result<Command> {
    let mut command = host.command(portreeve_programs::find("etcd")?);
    command.arg("--data-dir").arg(data).args([
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=4294967296",
    ]);
    Ok(command)
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A kubeconfig, as JSON, which is YAML.
fn kubeconfig(node: &Host, pki: &Pki, token: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bed",
        "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "user"}}],
        "clusters": [{"name": "bed", "cluster": {
            "server": format!("https://{}:6443", node.address()),
            "certificate-authority": pki.path("ca.crt"),
        }}],
        "users": [{"name": "user", "user": {"token": token}}],
    })
}

pub(crate) async fn client(kubeconfig: serde_json::Value) -> anyhow::Result<Client> {
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // A proxy that the test process may be told to use does not know the bed's network.
    config.proxy_url = None;
    let connections = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(config.rustls_https_connector()?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace))
}
