//! Hosts: network namespaces on one bridge.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::{TcpSocket, TcpStream};

use crate::part::Running;
use crate::slot::Slot;

/// Members of every bed's network that are there from the start.
pub(crate) const NODE: u8 = 1;
pub(crate) const GATEWAY: u8 = 2;
const FIRST_HOST: u8 = 10;
const TEST_PROCESS: u8 = 254;

/// The link address of every bed's node. A bridge that is given none takes the lowest of its ports' and changes it when a
/// host comes; whatever is then sent to the old one is lost until the sender asks for it anew, which takes a minute and more.
const NODE_LINK: &str = "02:00:00:00:00:01";

/// A machine, as far as the network is concerned: a namespace with one address and a loopback interface of its own.
///
/// It is removed with its bed, and so is whatever runs in it.
#[derive(Clone, Debug)]
pub struct Host {
    namespace: String,
    address: Ipv4Addr,
}

impl Host {
    /// Its address, which the other hosts, the gateway and the test process itself reach.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The name of its network namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command that runs in this host. It knows nothing of proxies that the test process may be told to use.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg("--").arg(program);
        for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command
    }

    /// Starts a command made by [`Host::command`] that runs until the result is dropped.
    pub fn spawn(&self, command: Command) -> anyhow::Result<Running> {
        Running::start(command)
    }

    /// Does something on a thread that is in this host; sockets that it makes stay in the host.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let path = format!("/run/netns/{}", self.namespace);
        let namespace = std::fs::File::open(&path).with_context(|| format!("failed to open {path}"))?;
        let enter = || {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("failed to enter {path}"))?;
            Ok(work())
        };
        std::thread::scope(|scope| scope.spawn(enter).join())
            .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
    }

    /// A listening socket of this host, on all its addresses, for a server in the test process.
    pub fn listen(&self, port: u16) -> anyhow::Result<TcpListener> {
        self.enter(|| {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
                .with_context(|| format!("port {port} of {}", self.namespace))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })?
    }

    /// A connection from this host.
    pub async fn connect(&self, to: SocketAddr) -> anyhow::Result<TcpStream> {
        let socket = self.enter(TcpSocket::new_v4)??;
        socket.connect(to).await.with_context(|| format!("failed to connect from {} to {to}", self.namespace))
    }
}

/// The bridge, and the hosts at it so far.
#[derive(Debug)]
pub(crate) struct Network {
    slot: Slot,
    hosts: Vec<Host>,
}

impl Network {
    /// Makes the node, which holds the bridge, and joins the test process to it.
    pub(crate) fn new(slot: Slot) -> anyhow::Result<Self> {
        let node = Host { namespace: slot.namespace("node"), address: slot.address(NODE) };
        ip(&["netns", "add", &node.namespace])?;
        let interface = slot.interface();
        ip(&["link", "add", &interface, "type", "veth", "peer", "name", "test", "netns", &node.namespace])?;
        ip(&["address", "add", &format!("{}/24", slot.address(TEST_PROCESS)), "dev", &interface])?;
        ip(&["link", "set", &interface, "up"])?;
        let lines = format!(
            "link set lo up\nlink add bridge address {NODE_LINK} type bridge\nlink set bridge up\naddress add {}/24 dev bridge\n\
             link set test master bridge\nlink set test up\n",
            node.address
        );
        ip_batch(&node.namespace, &lines)?;
        Ok(Self { slot, hosts: vec![node] })
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(crate) fn node(&self) -> &Host {
        &self.hosts[0]
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of that name, made when it is asked for first.
    pub(crate) fn host(&mut self, name: &str) -> anyhow::Result<Host> {
        let namespace = self.slot.namespace(name);
        if let Some(host) = self.hosts.iter().find(|host| host.namespace == namespace) {
            return Ok(host.clone());
        }
        let member = match name {
            "gateway" => GATEWAY,
            _ => u8::try_from(self.hosts.len()).ok().and_then(|count| count.checked_add(FIRST_HOST)).unwrap_or(u8::MAX),
        };
        ensure!(member < TEST_PROCESS, "a bed has room for {} hosts", TEST_PROCESS - FIRST_HOST);
        let host = Host { namespace, address: self.slot.address(member) };
        ip(&["netns", "add", &host.namespace])?;
        let port = format!("host{member}");
        let lines = format!(
            "link add {port} type veth peer name eth0 netns {}\nlink set {port} master bridge\nlink set {port} up\n",
            host.namespace
        );
        ip_batch(&self.node().namespace, &lines)?;
        let lines = format!(
            "link set lo up\naddress add {}/24 dev eth0\nlink set eth0 up\nroute add default via {}\n",
            host.address,
            self.node().address
        );
        ip_batch(&host.namespace, &lines)?;
        self.hosts.push(host.clone());
        Ok(host)
    }
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    ip_lines(arguments).map(drop)
}

/// Runs `ip` and returns the lines that it prints.
pub(crate) fn ip_lines(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .context("failed to run ip: `cargo xtask bed` installs it (Debian package iproute2)")?;
    ensure!(
        output.status.success(),
        "ip {} failed: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Runs lines of `ip` commands inside a namespace.
fn ip_batch(namespace: &str, lines: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(["-netns", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to run ip")?;
    child.stdin.take().context("ip has a standard input")?.write_all(lines.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "ip failed in {namespace}: {}\n{lines}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Origin: requests to API servers that hung for a minute, in a test that makes hosts while it runs.
    #[test]
    fn the_nodes_link_address_stays_when_hosts_come() {
        let mut network = Network::new(Slot::take().unwrap()).unwrap();
        for host in 0..20 {
            network.host(&host.to_string()).unwrap();
            let shown = ip_lines(&["-netns", &network.node().namespace, "link", "show", "bridge"]).unwrap();
            assert!(shown.iter().any(|line| line.contains(NODE_LINK)), "{shown:?}");
        }
    }
}
