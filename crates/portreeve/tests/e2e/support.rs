//! A running `portreeve up` on addresses of its own, and the sample backends behind it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use portreeve::demo::{Backends, Identity};
use tempfile::TempDir;

/// How long anything may take before a test gives up on it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// The Gateways of the quickstart with the ports that its manifests open, each with the last octet of its address.
const SOCKETS: &[(&str, u16, u8)] = &[
    ("envoy-gateway-system/nebari-gateway", 80, 1),
    ("envoy-gateway-system/nebari-gateway", 443, 1),
    ("envoy-gateway-system/nebari-gateway", 8786, 1),
    ("envoy-gateway-system/nebari-gateway", 9440, 1),
    ("kubespaces-system/kubespaces-api", 443, 2),
    ("kubespaces-system/kubespaces-apps", 80, 3),
    ("kubespaces-system/kubespaces-apps", 443, 3),
];

/// Where unprivileged ports start in these tests.
const PORT_OFFSET: u16 = 20_000;

/// A real `portreeve up` over a copy of the quickstart, with the demo's backends; ends with the test.
pub(crate) struct Up {
    process: Child,
    pub(crate) folder: TempDir,
    network: u8,
    arguments: Vec<String>,
    pub(crate) backends: Backends,
}

impl Up {
    /// Starts on the quickstart and waits until its main sockets take connections.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with further command-line arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        static NETWORK: AtomicU8 = AtomicU8::new(1);
        let network = NETWORK.fetch_add(1, Ordering::Relaxed);
        let folder = TempDir::new().unwrap();
        copy_quickstart(&folder.path().join("manifests"));
        let backends = Backends::start().await.unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = command(folder.path(), network, &backends)
            .args(arguments)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut up = Self { process, folder, network, arguments, backends };
        for (_, port, host) in SOCKETS {
            let socket = up.socket(*host, *port);
            up.wait_until(&format!("{socket} takes connections"), || TcpStream::connect(socket).is_ok());
        }
        up
    }

    /// The platform's Gateway: apps, and Dask on 8786.
    pub(crate) fn platform(&self, port: u16) -> SocketAddr {
        self.socket(1, port)
    }

    /// The Gateway of tenants' API servers.
    pub(crate) fn tenant_api(&self) -> SocketAddr {
        self.socket(2, 443)
    }

    /// The Gateway of tenants' apps.
    pub(crate) fn tenant_apps(&self) -> SocketAddr {
        self.socket(3, 443)
    }

    fn socket(&self, host: u8, port: u16) -> SocketAddr {
        (address(self.network, host), port + PORT_OFFSET).into()
    }

    /// A manifest of the running directory.
    pub(crate) fn manifest(&self, name: &str) -> PathBuf {
        self.folder.path().join("manifests").join(name)
    }

    /// The certificate of the local authority, for `--cacert`.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("state/ca.crt")
    }

    /// What the process has said so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Writes an identity's certificate and key for clients that read files.
    pub(crate) fn write_identity(&self, name: &str, identity: &Identity) -> (PathBuf, PathBuf) {
        let (certificate, key) =
            (self.folder.path().join(format!("{name}.crt")), self.folder.path().join(format!("{name}.key")));
        std::fs::write(&certificate, &identity.certificate_pem).unwrap();
        std::fs::write(&key, &identity.key_pem).unwrap();
        (certificate, key)
    }

    /// Polls until `condition` holds; a test fails with the process's log when it never does.
    pub(crate) fn wait_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("portreeve ended with {status}:\n{}", self.log());
            }
            assert!(start.elapsed() < DEADLINE, "still waiting until {what}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts another process that takes this one's place; returns the old one.
    pub(crate) fn take_over(&mut self) -> Child {
        let log = std::fs::File::options().append(true).open(self.folder.path().join("log")).unwrap();
        let process = command(self.folder.path(), self.network, &self.backends)
            .args(&self.arguments)
            .arg("--take-over")
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        std::mem::replace(&mut self.process, process)
    }

    /// Whether the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended by itself already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(folder: &Path, network: u8, backends: &Backends) -> Command {
    let mut command = portreeve();
    command.arg("up").arg(folder.join("manifests")).arg("--state-dir").arg(folder.join("state"));
    command.args(["--tenant-api-domain", "example.test", "--tenant-apps-domain", "example.test"]);
    for (gateway, port, host) in SOCKETS {
        let socket = SocketAddr::from((address(network, *host), port + PORT_OFFSET));
        command.arg("--listen").arg(format!("{gateway}:{port}={socket}"));
    }
    for backend in &backends.all {
        command.arg("--backend").arg(backend.endpoint().to_string());
    }
    command
}

/// The binary under test.
pub(crate) fn portreeve() -> Command {
    Command::new(env!("CARGO_BIN_EXE_portreeve"))
}

/// The quickstart in the repository.
pub(crate) fn quickstart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/quickstart")
}

fn copy_quickstart(target: &Path) {
    std::fs::create_dir_all(target).unwrap();
    for entry in std::fs::read_dir(quickstart()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
    }
}

fn address(network: u8, host: u8) -> Ipv4Addr {
    // Two runs side by side differ by their process, two tests of one run by `network`.
    let process = u8::try_from(std::process::id() % 200).unwrap() + 20;
    Ipv4Addr::new(127, process, network, host)
}

/// Runs a client to its end, with nothing on standard input.
pub(crate) fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"))
}

/// Standard output and error of a client together, for searching.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
