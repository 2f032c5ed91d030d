use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use portreeve_attach::{Classes, Settings};
use portreeve_gateway::AccessRecord;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::input::CONTROLLER_NAME;
use crate::report::State;
use crate::sockets::Rules;

/// How long a change may take to be served; far more than it does.
const PATIENCE: Duration = Duration::from_secs(10);

struct Silent;

impl Observer for Silent {
    fn finished(&self, _: &AccessRecord) {}
}

/// A directory of manifests, its state, and a backend that answers `ok`.
struct Bed {
    home: tempfile::TempDir,
    backend: SocketAddr,
}

impl Bed {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("manifests")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
            }
        });
        Self { home, backend }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.home.path().join("manifests").join(name), text).unwrap();
    }

    fn state(&self) -> std::path::PathBuf {
        self.home.path().join("state")
    }

    fn input(&self, listens: &[&str]) -> Input {
        Input {
            manifests: self.home.path().join("manifests"),
            state: self.state(),
            config: portreeve_plan::Config::default(),
            settings: Settings { controller_name: CONTROLLER_NAME.to_owned(), classes: Classes::Every },
            backends: vec![format!("team/hub:80={}", self.backend).parse().unwrap()],
            default_gateways: false,
            rules: Rules {
                pool: "127.0.0.0/24".parse().unwrap(),
                listens: listens.iter().map(|text| text.parse().unwrap()).collect(),
                maps: vec!["80=0".parse().unwrap()],
                may_bind: |_| true,
            },
        }
    }

    async fn start(&self, listens: &[&str]) -> Result<Standalone, StartError> {
        Standalone::start(self.input(listens), portreeve_gateway::Settings::default(), Arc::new(Silent), Vec::new())
            .await
    }
}

fn gateway(name: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: team}}\n\
         spec: {{gatewayClassName: any, listeners: [{{name: http, port: 80, protocol: HTTP}}]}}\n"
    )
}

fn route(hostname: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: hub, namespace: team}}\n\
         spec: {{parentRefs: [{{name: g}}], hostnames: [{hostname}], rules: [{{backendRefs: [{{name: hub, port: 80}}]}}]}}\n"
    )
}

/// The status of the answer.
async fn get(address: SocketAddr, host: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

async fn until(standalone: &Standalone, what: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let mut snapshots = standalone.snapshots();
    let reached = tokio::time::timeout(PATIENCE, snapshots.wait_for(|snapshot| what(snapshot))).await;
    reached.expect("in time").unwrap().clone()
}

fn has_errors(snapshot: &Snapshot) -> bool {
    snapshot.findings.iter().any(crate::manifest::Finding::is_error)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_served_and_its_changes_are_followed() {
    let bed = Bed::new().await;
    bed.write("g.yaml", &gateway("g"));
    bed.write("r.yaml", &route("a.test"));
    let standalone = bed.start(&[]).await.unwrap();
    let snapshot = standalone.snapshot();
    assert_eq!(snapshot.problems, Vec::<String>::new());
    assert!(snapshot.rows.iter().all(|row| row.state == State::Ready), "{:?}", snapshot.rows);
    let address = snapshot.socket("team/g", 80).unwrap();
    assert_eq!(get(address, "a.test").await, "200");

    // A broken file changes nothing but what is said.
    bed.write("r.yaml", &format!("{}kind: [", route("b.test")));
    until(&standalone, has_errors).await;
    assert_eq!((get(address, "a.test").await, get(address, "b.test").await), ("200".into(), "404".into()));

    bed.write("r.yaml", &route("b.test"));
    until(&standalone, |snapshot| !has_errors(snapshot)).await;
    assert_eq!((get(address, "a.test").await, get(address, "b.test").await), ("404".into(), "200".into()));
    assert_eq!(standalone.shutdown(PATIENCE).await, 0);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_disappears_is_served_on() {
    let bed = Bed::new().await;
    bed.write("g.yaml", &[gateway("g"), route("a.test")].concat());
    let standalone = bed.start(&[]).await.unwrap();
    let address = standalone.snapshot().socket("team/g", 80).unwrap();
    fs::rename(bed.home.path().join("manifests"), bed.home.path().join("elsewhere")).unwrap();
    let snapshot = until(&standalone, |snapshot| !snapshot.problems.is_empty()).await;
    assert!(snapshot.problems[0].contains("what it last gave is served"), "{:?}", snapshot.problems);
    assert_eq!(get(address, "a.test").await, "200");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_outlive_the_process() {
    let bed = Bed::new().await;
    bed.write("z.yaml", &gateway("first"));
    let standalone = bed.start(&[]).await.unwrap();
    assert_eq!(standalone.snapshot().socket("team/first", 80).unwrap().ip().to_string(), "127.0.0.1");
    standalone.shutdown(PATIENCE).await;
    // Before the other in every order but that of appearance.
    bed.write("a.yaml", &gateway("another"));
    let snapshot = bed.start(&[]).await.unwrap().snapshot();
    let ip = |name: &str| snapshot.socket(name, 80).unwrap().ip().to_string();
    assert_eq!((ip("team/first"), ip("team/another")), ("127.0.0.1".into(), "127.0.0.2".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_one_socket_are_named_at_the_start() {
    let bed = Bed::new().await;
    bed.write("g.yaml", &[gateway("g"), gateway("h")].concat());
    let error = bed.start(&["team/g:80=127.0.0.1:18999", "team/h:80=127.0.0.1:18999"]).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:18999") && text.contains("team/g:80") && text.contains("team/h:80"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_in_use_is_said_and_taken_when_it_is_free() {
    let bed = Bed::new().await;
    bed.write("g.yaml", &[gateway("g"), route("a.test")].concat());
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = other.local_addr().unwrap();
    let standalone = bed.start(&[&format!("team/g:80={address}")]).await.unwrap();
    let snapshot = standalone.snapshot();
    let why = snapshot.sockets.values().next().unwrap().clone().unwrap_err();
    assert!(why.contains("is in use"), "{why}");
    assert!(
        snapshot.rows.iter().any(|row| row.kind == "Gateway" && row.state == State::Refused),
        "{:?}",
        snapshot.rows
    );
    drop(other);
    until(&standalone, |snapshot| snapshot.socket("team/g", 80).is_some()).await;
    assert_eq!(get(address, "a.test").await, "200");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_started_says_why() {
    let bed = Bed::new().await;
    let standalone = bed.start(&[]).await.unwrap();
    let error = bed.start(&[]).await.unwrap_err();
    assert!(matches!(&error, StartError::State(StateError::InUse { .. })), "{error}");
    drop(standalone);
    let input = Input { manifests: Path::new("/nonexistent").to_owned(), ..bed.input(&[]) };
    let error = Standalone::start(input, portreeve_gateway::Settings::default(), Arc::new(Silent), Vec::new())
        .await
        .unwrap_err();
    assert!(matches!(&error, StartError::Manifests(_)), "{error}");
}

const APP: &str = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {nebari.dev/managed: 'true'}}\n\
    ---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
    metadata: {name: nebari-gateway, namespace: envoy-gateway-system}\n\
    spec: {gatewayClassName: any, listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]}\n\
    ---\napiVersion: reconcilers.nebari.dev/v1\nkind: NebariApp\nmetadata: {name: hub, namespace: team}\n\
    spec: {hostname: hub.test, service: {name: hub, port: 80}, routing: {tls: {enabled: false}}}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_that_cannot_be_written_is_said_and_served_nevertheless() {
    let bed = Bed::new().await;
    let standalone = bed.start(&[]).await.unwrap();
    // Stands for a full disk: the temporary file cannot be made.
    let obstacle = bed.state().join(".claims.json.new");
    fs::create_dir(&obstacle).unwrap();
    bed.write("app.yaml", APP);
    let snapshot = until(&standalone, |snapshot| !snapshot.problems.is_empty()).await;
    assert!(
        snapshot.problems[0].contains("failed to write") && snapshot.problems[0].contains("claims.json"),
        "{:?}",
        snapshot.problems
    );
    let address = snapshot.socket("envoy-gateway-system/nebari-gateway", 80).unwrap();
    assert_eq!(get(address, "hub.test").await, "200");
    // It is tried again without being asked.
    fs::remove_dir(&obstacle).unwrap();
    until(&standalone, |snapshot| snapshot.problems.is_empty()).await;
    assert!(fs::read_to_string(bed.state().join("claims.json")).unwrap().contains("hub.test"));
}
