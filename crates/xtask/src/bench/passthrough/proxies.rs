//! What is compared: each proxy routes two names by the server name of the ClientHello, without opening TLS.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use portreeve_programs as programs;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process_group, setrlimit};
use serde::Serialize;

/// By this name clients ask for the backend that answers with one byte.
pub(super) const ANSWERS: &str = "answers.bench.example.test";
/// By this name clients ask for the backend that sends as long as somebody reads.
pub(super) const STREAMS: &str = "streams.bench.example.test";

const START: Duration = Duration::from_secs(20);

/// A proxy, as somebody runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Proxy {
    /// None: the limit.
    Direct,
    Portreeve,
    Haproxy,
    /// With everything that makes it quicker here.
    HaproxyTuned,
    Nginx,
    Envoy,
}

impl Proxy {
    pub(super) const ALL: [Self; 6] =
        [Self::Direct, Self::Portreeve, Self::Haproxy, Self::HaproxyTuned, Self::Nginx, Self::Envoy];

    pub(in crate::bench) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Portreeve => "Portreeve",
            Self::Haproxy => "HAProxy",
            Self::HaproxyTuned => "HAProxy, tuned",
            Self::Nginx => "nginx",
            Self::Envoy => "Envoy",
        }
    }
}

/// Where the backends listen, and where the proxy shall.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) proxy: SocketAddr,
    pub(super) answers: SocketAddr,
    pub(super) streams: SocketAddr,
}

/// A running proxy with everything that it has started; ended when this is dropped.
pub(in crate::bench) struct Running(Option<Child>);

impl Running {
    /// The processes that do its work; none for [`Proxy::Direct`].
    pub(in crate::bench) fn processes(&self) -> anyhow::Result<Vec<u32>> {
        let Some(child) = &self.0 else { return Ok(Vec::new()) };
        let mut processes = vec![child.id()];
        for entry in fs::read_dir("/proc")? {
            let Some(process) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if parent(process) == Some(child.id()) {
                processes.push(process);
            }
        }
        Ok(processes)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
    }
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Lets this process, and what it starts, have as many open files as it may.
pub(in crate::bench) fn allow_many_files() -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("failed to allow more open files")
}

/// Starts a proxy and waits until it listens. Its configuration and its log are in `folder`.
pub(super) fn start(proxy: Proxy, portreeve: &Path, folder: &Path, at: Addresses) -> anyhow::Result<Running> {
    fs::create_dir_all(folder)?;
    let command = match proxy {
        Proxy::Direct => return Ok(Running(None)),
        Proxy::Portreeve => portreeve_up(portreeve, folder, at)?,
        Proxy::Haproxy => haproxy(folder, at, "", "")?,
        Proxy::HaproxyTuned => {
            haproxy(folder, at, "  tune.pipesize 524288\n", "  option splice-request\n  option splice-response\n")?
        }
        Proxy::Nginx => nginx(folder, at)?,
        Proxy::Envoy => envoy(folder, at)?,
    };
    launch(command, proxy, folder, at.proxy)
}

/// Starts a program that is set up, and waits until it listens.
pub(in crate::bench) fn launch(
    mut command: Command,
    proxy: Proxy,
    folder: &Path,
    listens: SocketAddr,
) -> anyhow::Result<Running> {
    let log = folder.join("log");
    let file = fs::File::create(&log)?;
    command.process_group(0).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let child = command.spawn().with_context(|| format!("failed to start {}", proxy.name()))?;
    let running = Running(Some(child));
    let start = Instant::now();
    while std::net::TcpStream::connect(listens).is_err() {
        if start.elapsed() > START {
            bail!("{} does not listen: {}", proxy.name(), fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(running)
}

pub(in crate::bench) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}

fn portreeve_up(program: &Path, folder: &Path, at: Addresses) -> anyhow::Result<Command> {
    let manifests = write(folder, "bench.yaml", MANIFESTS)?;
    let mut command = Command::new(program);
    command.arg("up").arg(manifests).arg("--state-dir").arg(folder.join("state"));
    command.arg("--listen").arg(format!("bench/gateway:443={}", at.proxy));
    for (name, address) in [("answers", at.answers), ("streams", at.streams)] {
        command.arg("--backend").arg(format!("bench/{name}={address}"));
    }
    Ok(command)
}

const MANIFESTS: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: bench}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gateway, namespace: bench}
spec:
  gatewayClassName: portreeve
  listeners:
    - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}
---
apiVersion: v1
kind: Service
metadata: {name: answers, namespace: bench}
spec: {ports: [{port: 443}]}
---
apiVersion: v1
kind: Service
metadata: {name: streams, namespace: bench}
spec: {ports: [{port: 443}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: answers, namespace: bench}
spec:
  parentRefs: [{name: gateway}]
  hostnames: [answers.bench.example.test]
  rules: [{backendRefs: [{name: answers, port: 443}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: streams, namespace: bench}
spec:
  parentRefs: [{name: gateway}]
  hostnames: [streams.bench.example.test]
  rules: [{backendRefs: [{name: streams, port: 443}]}]
";

fn haproxy(folder: &Path, at: Addresses, global: &str, defaults: &str) -> anyhow::Result<Command> {
    let defer = if defaults.is_empty() { "" } else { " defer-accept" };
    let text = format!(
        "global\n  maxconn 6500\n{global}defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
         {defaults}frontend tls\n  bind {}{defer}\n  tcp-request inspect-delay 5s\n\
         \x20 tcp-request content accept if {{ req.ssl_hello_type 1 }}\n\
         \x20 use_backend answers if {{ req.ssl_sni -i {ANSWERS} }}\n  use_backend streams if {{ req.ssl_sni -i {STREAMS} }}\n\
         backend answers\n  server one {}\nbackend streams\n  server one {}\n",
        at.proxy, at.answers, at.streams
    );
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(write(folder, "haproxy.cfg", &text)?);
    Ok(command)
}

fn nginx(folder: &Path, at: Addresses) -> anyhow::Result<Command> {
    let text = format!(
        "daemon off;\nuser root;\nworker_processes 2;\n\nerror_log stderr warn;\npid {pid};\n\
         load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n\
         events {{ worker_connections 19900; }}\nstream {{\n  map $ssl_preread_server_name $to {{\n    {ANSWERS} {};\n    {STREAMS} {};\n  }}\n\
         \x20 server {{\n    listen {} reuseport;\n    ssl_preread on;\n    proxy_timeout 1h;\n    proxy_pass $to;\n  }}\n}}\n",
        at.answers,
        at.streams,
        at.proxy,
        pid = folder.join("nginx.pid").display(),
    );
    let mut command = Command::new("nginx");
    command.arg("-c").arg(write(folder, "nginx.conf", &text)?);
    Ok(command)
}

fn envoy(folder: &Path, at: Addresses) -> anyhow::Result<Command> {
    let cluster = |name: &str, to: SocketAddr| {
        serde_json::json!({"name": name, "type": "STATIC", "connect_timeout": "5s",
            "circuit_breakers": {"thresholds": [{"max_connections": 30_000, "max_pending_requests": 30_000}]},
            "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(to)}}]}]}})
    };
    let chain = |name: &str, host: &str| {
        serde_json::json!({"filter_chain_match": {"server_names": [host]}, "filters": [{
            "name": "envoy.filters.network.tcp_proxy", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
                "stat_prefix": name, "cluster": name, "idle_timeout": "0s"}}]})
    };
    let configuration = serde_json::json!({"static_resources": {
        "listeners": [{"name": "tls", "address": address(at.proxy),
            "listener_filters": [{"name": "envoy.filters.listener.tls_inspector", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"}}],
            "filter_chains": [chain("answers", ANSWERS), chain("streams", STREAMS)]}],
        "clusters": [cluster("answers", at.answers), cluster("streams", at.streams)],
    }});
    let mut command = Command::new(programs::envoy()?);
    command.arg("-c").arg(write(folder, "envoy.json", &configuration.to_string())?);
    command.args(["--concurrency", "2", "--log-level", "error", "--disable-hot-restart"]);
    Ok(command)
}

pub(in crate::bench) fn address(of: SocketAddr) -> serde_json::Value {
    serde_json::json!({"socket_address": {"address": of.ip().to_string(), "port_value": of.port()}})
}
