//! Clusters as dask-gateway makes them, and clients as its client is one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use portreeve_testkit::servers::{Server, tls_echo};
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Host, Running, condition, eventually};
use serde_json::{Value, json};

use super::{GATEWAY_API, NEBARI, Platform, Team, WAY};

/// Of schedulers, and of the Services before them.
const SCHEDULER: u16 = 8786;

/// The label by which a Service selects its scheduler.
pub(crate) const CLUSTER_LABEL: &str = "gateway.dask.org/cluster";

/// The app that has the listener.
const APP: &str = "dask";

/// How soon a name is refused whose route is gone.
const SOON: Duration = Duration::from_secs(10);

/// It connects, starts TLS with the scheduler's server name, shows the cluster's own certificate, trusts only that one, and
/// checks no names. Then it sends and gets back lines, and says so.
const CLIENT: &str = r"
import socket, ssl, sys, time
host, port, name, scheduler, certificate, key, lines = sys.argv[1:]
context = ssl.create_default_context(cafile=scheduler)
context.check_hostname = False
context.verify_mode = ssl.CERT_REQUIRED
if certificate:
    context.load_cert_chain(certificate, key)
with open(scheduler) as file:
    expected = ssl.PEM_cert_to_DER_cert(file.read())
plain = socket.create_connection((host, int(port)), timeout=3)
with context.wrap_socket(plain, server_hostname=name or None) as stream:
    if stream.getpeercert(binary_form=True) != expected:
        sys.exit('another certificate than the scheduler has')
    print('the scheduler', flush=True)
    stream.settimeout(20)
    for number in range(int(lines)):
        line = f'line {number}\n'.encode()
        stream.sendall(line)
        answer = b''
        while len(answer) < len(line):
            part = stream.recv(len(line) - len(answer))
            if not part:
                raise EOFError('EOF: the stream ended')
            answer += part
        if answer != line:
            sys.exit(f'sent {line} and got {answer}')
        print(number, flush=True)
        time.sleep(0.05)
";

/// Who makes the TLSRoutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routes {
    /// The app's own controller.
    OfApp,
    /// The operator, for an entry with a `service`.
    OfOperator,
    /// The operator, from the IngressRouteTCPs that an unmodified dask-gateway makes.
    Imported,
}

/// Two Dask clusters of one app.
pub(crate) struct Dask<'p> {
    pub(crate) team: Team<'p>,
    pub(crate) clusters: [Cluster; 2],
    /// Where notebooks are.
    pub(crate) client: Host,
    port: u16,
    routes: Routes,
}

/// A scheduler with its credentials.
pub(crate) struct Cluster {
    /// The cluster's name, 32 hexadecimal digits.
    pub(crate) name: String,
    /// By which clients ask for it.
    pub(crate) server_name: String,
    pub(crate) host: Host,
    certificate: PathBuf,
    key: PathBuf,
    _server: Server,
}

/// A connection over which lines go back and forth.
pub(crate) struct Stream {
    client: Running,
    log: PathBuf,
}

impl<'p> Dask<'p> {
    /// Starts two schedulers, each behind a headless Service, in a namespace of their own, and no routes yet.
    pub(crate) async fn new(
        platform: &'p Platform,
        namespace: &str,
        port: u16,
        routes: Routes,
    ) -> anyhow::Result<Self> {
        let team = Team::new(platform, namespace).await?;
        let clusters = [Cluster::start(&team, 1).await?, Cluster::start(&team, 2).await?];
        let client = platform.bed.host(&format!("{namespace}-notebook"))?;
        Ok(Self { team, clusters, client, port, routes })
    }

    pub(crate) fn server_name(&self, cluster: &str) -> String {
        format!("daskgateway-{}.{cluster}", self.team.namespace)
    }

    /// Makes routes for exactly these clusters, and waits until the listener is ready.
    pub(crate) async fn publish(&self, clusters: &[&Cluster]) -> anyhow::Result<()> {
        self.apply_app(clusters, &Value::Null).await?;
        self.wait_listener().await?;
        for cluster in &self.clusters {
            let (kind, route) = match self.routes {
                Routes::OfOperator => continue,
                Routes::OfApp => {
                    let hostnames = [cluster.server_name.as_str()];
                    let namespace = &self.team.namespace;
                    ("TLSRoute", self.tls_route(namespace, &cluster.service(), &hostnames, &cluster.service()).await?)
                }
                Routes::Imported => ("IngressRouteTCP", self.ingress_route(cluster)),
            };
            let version = if kind == "TLSRoute" { GATEWAY_API } else { "traefik.io/v1alpha1" };
            if clusters.iter().any(|wanted| wanted.name == cluster.name) {
                self.team.platform.bed.apply(&route).await?;
            } else if self.team.get(version, kind, &cluster.service()).await?.is_some() {
                self.team.delete(version, kind, &cluster.service()).await?;
            }
        }
        Ok(())
    }

    /// Applies the app with entries for these clusters; `clients` are those of every entry.
    pub(crate) async fn apply_app(&self, clusters: &[&Cluster], clients: &Value) -> anyhow::Result<()> {
        let listener = json!({"port": self.port});
        let mut entries = match self.routes {
            Routes::OfApp => vec![json!({"name": "scheduler", "listener": listener})],
            Routes::Imported => vec![json!({"name": "scheduler", "listener": listener,
                "sniHostnames": ["daskgateway-*"], "routeImport": "TraefikIngressRouteTCP"})],
            Routes::OfOperator => {
                let entries = clusters.iter().map(|cluster| {
                    json!({"name": format!("c{}", &cluster.name[24..]), "listener": listener,
                        "sniHostnames": [cluster.server_name],
                        "service": {"name": cluster.service(), "port": SCHEDULER}})
                });
                entries.collect()
            }
        };
        if !clients.is_null() {
            for entry in &mut entries {
                entry["clients"] = clients.clone();
            }
        }
        let hostname = format!("{}.example.test", self.team.namespace);
        self.team.apply(APP, &hostname, json!({"tcp": entries})).await
    }

    /// Waits until the app says that its listener is ready, and returns the app.
    pub(crate) async fn wait_listener(&self) -> anyhow::Result<Value> {
        let holds = |app: &Value| {
            let current = app["status"]["observedGeneration"] == app["metadata"]["generation"];
            current && condition(app, "TCPRoutingReady") == Some("True")
        };
        let bed = &self.team.platform.bed;
        bed.wait_for(NEBARI, "NebariApp", &self.team.named(APP), "has TCPRoutingReady", holds).await
    }

    /// A TLSRoute to the first listener that the app's status names.
    pub(crate) async fn tls_route(
        &self,
        namespace: &str,
        name: &str,
        hostnames: &[&str],
        service: &str,
    ) -> anyhow::Result<String> {
        let app = self.team.must_get(NEBARI, "NebariApp", APP).await?;
        let entry = &app["status"]["tcp"][0];
        let (set, section) = (&entry["listenerRef"], &entry["listeners"][0]["name"]);
        ensure!(section.is_string(), "no listener is published in {app}");
        let parent = json!({"group": "gateway.networking.k8s.io", "kind": set["kind"], "name": set["name"],
            "namespace": self.team.namespace, "sectionName": section});
        let route = json!({"apiVersion": GATEWAY_API, "kind": "TLSRoute",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"parentRefs": [parent], "hostnames": hostnames,
                "rules": [{"backendRefs": [{"name": service, "port": SCHEDULER}]}]}});
        Ok(route.to_string())
    }

    fn ingress_route(&self, cluster: &Cluster) -> String {
        let rule = format!("HostSNI(`{}`)", cluster.server_name);
        let route = json!({"apiVersion": "traefik.io/v1alpha1", "kind": "IngressRouteTCP",
            "metadata": {"namespace": self.team.namespace, "name": cluster.service()},
            "spec": {"entryPoints": ["tcp"], "tls": {"passthrough": true},
                "routes": [{"match": rule, "services": [{"name": cluster.service(), "port": SCHEDULER}]}]}});
        route.to_string()
    }

    /// Waits until a cluster's client reaches its scheduler.
    pub(crate) async fn wait_reached(&self, cluster: &Cluster, name: &str) -> anyhow::Result<()> {
        let attempt = async || self.ensure_reached(cluster, name, "it").await;
        eventually(format!("{name} is served"), WAY, attempt).await
    }

    /// Fails unless a cluster's client reaches its scheduler now.
    pub(crate) async fn ensure_reached(&self, cluster: &Cluster, name: &str, what: &str) -> anyhow::Result<()> {
        let output = self.run_client(cluster, name).await?;
        ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Fails unless a client's connection is closed, or not even made, before anybody shows a certificate.
    pub(crate) async fn ensure_closed(&self, cluster: &Cluster, name: &str, what: &str) -> anyhow::Result<()> {
        let output = self.run_client(cluster, name).await?;
        ensure!(!output.status.success(), "{what} '{name}' leads to a scheduler");
        let complaint = last_line(&output);
        let closed = ["eof", "reset", "refused"].iter().any(|word| complaint.contains(word));
        ensure!(closed, "{what} '{name}' is not closed: {complaint}");
        Ok(())
    }

    /// Fails unless a cluster's client gets no connection at all, as where packets are dropped.
    pub(crate) async fn ensure_unreachable(&self, cluster: &Cluster) -> anyhow::Result<()> {
        let output = self.run_client(cluster, &cluster.server_name).await?;
        let complaint = last_line(&output);
        ensure!(!output.status.success() && output.stdout.is_empty(), "the client reaches the scheduler");
        ensure!(complaint.contains("timed out"), "the client is not kept from the gateway, but says: {complaint}");
        Ok(())
    }

    /// Fails unless a cluster's scheduler refuses clients that show another certificate than the cluster's, or none, and so
    /// has seen which one they show.
    pub(crate) async fn ensure_refuses_others(&self, what: &str) -> anyhow::Result<()> {
        let [one, two] = &self.clusters;
        let shown = [Some((two.certificate.as_path(), two.key.as_path())), None];
        for shown in shown {
            let output = run(self.command(one, &one.server_name, shown, 1)?).await?;
            ensure!(output.stdout.starts_with(b"the scheduler"), "{what}: {}", String::from_utf8_lossy(&output.stderr));
            ensure!(!output.status.success(), "{what}: the scheduler talks to a client that shows {shown:?}");
        }
        Ok(())
    }

    /// Opens a stream to a scheduler that lasts.
    pub(crate) async fn stream(&self, cluster: &Cluster) -> anyhow::Result<Stream> {
        let log = self.team.platform.bed.folder().join(format!("{}-stream.log", self.team.namespace));
        let file = std::fs::File::create(&log)?;
        let mut command = self.command(cluster, &cluster.server_name, Some(cluster.credentials()), u32::MAX)?;
        command.stdout(file.try_clone()?).stderr(file);
        let stream = Stream { client: self.client.spawn(command)?, log };
        eventually("the stream starts", WAY, async || stream.lines().context("nothing came back")).await?;
        Ok(stream)
    }

    /// What a cluster's client says, after one line to the scheduler and back.
    async fn run_client(&self, cluster: &Cluster, name: &str) -> anyhow::Result<Output> {
        run(self.command(cluster, name, Some(cluster.credentials()), 1)?).await
    }

    fn command(
        &self,
        cluster: &Cluster,
        name: &str,
        credentials: Option<(&Path, &Path)>,
        lines: u32,
    ) -> anyhow::Result<Command> {
        let gateway = self.team.platform.bed.gateway_address(self.port)?;
        let (certificate, key) = credentials.unwrap_or((Path::new(""), Path::new("")));
        let mut command = self.client.command("python3");
        command.args(["-c", CLIENT, &gateway.ip().to_string(), &gateway.port().to_string(), name]);
        command.arg(&cluster.certificate).arg(certificate).arg(key).arg(lines.to_string());
        Ok(command)
    }
}

impl Cluster {
    async fn start(team: &Team<'_>, number: u128) -> anyhow::Result<Self> {
        let name = format!("{:032x}", 0x5f1c_0a7b_e2d9_4c0b_8d3e_6a91_f0c4_b7d0 + number);
        let identity = Identity::of_dask_cluster(&name)?;
        let bed = &team.platform.bed;
        let host = bed.host(&format!("{}-{number}", team.namespace))?;
        let server = tls_echo(&host, SCHEDULER, identity.server(true)?)?;
        let file = |end: &str| bed.folder().join(format!("{}-{number}.{end}", team.namespace));
        let (certificate, key) = (file("crt"), file("pem"));
        std::fs::write(&certificate, identity.certificate_pem())?;
        std::fs::write(&key, identity.key_pem())?;
        let server_name = format!("daskgateway-{}.{name}", team.namespace);
        let cluster = Self { name, server_name, host, certificate, key, _server: server };
        for object in cluster.headless_service(&team.namespace) {
            bed.apply(&object.to_string()).await?;
        }
        Ok(cluster)
    }

    /// As dask-gateway makes it, with the slice that Kubernetes makes once the Pod is on a node.
    fn headless_service(&self, namespace: &str) -> [Value; 2] {
        let (name, port) = (self.service(), json!({"name": "scheduler", "port": SCHEDULER}));
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": "None", "selector": {CLUSTER_LABEL: self.name}, "ports": [port]}});
        let labels = json!({"kubernetes.io/service-name": name});
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": format!("{name}-1"), "labels": labels}, "ports": [port],
            "endpoints": [{"addresses": [self.host.address()], "conditions": {"ready": true}}]});
        [service, slice]
    }

    fn credentials(&self) -> (&Path, &Path) {
        (&self.certificate, &self.key)
    }

    /// Its Service.
    pub(crate) fn service(&self) -> String {
        format!("dask-{}", self.name)
    }
}

impl Stream {
    /// Fails if the connection has been cut, or nothing goes through it any more.
    pub(crate) async fn ensure_uncut(&mut self, what: &str) -> anyhow::Result<()> {
        let before = self.lines();
        eventually(format!("{what} lines still go through the stream"), SOON, async || {
            if let Some(status) = self.client.ended()? {
                bail!("the client ended with {status}: {}", std::fs::read_to_string(&self.log)?);
            }
            ensure!(self.lines() > before, "nothing new");
            Ok(())
        })
        .await
    }

    /// The number of the last line that came back.
    fn lines(&self) -> Option<u32> {
        std::fs::read_to_string(&self.log).ok()?.lines().rev().find_map(|line| line.parse().ok())
    }
}

async fn run(mut command: Command) -> anyhow::Result<Output> {
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Where Python says what has happened.
fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or_default().to_lowercase()
}

/// Waits until a name is refused whose route has been deleted.
pub(crate) async fn wait_refused(attempt: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    eventually("the name is refused", SOON, attempt).await
}
