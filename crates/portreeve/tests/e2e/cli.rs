//! The commands, their exit codes and what they say.

use std::net::TcpListener;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::{portreeve, quickstart, run, text};

/// The exit codes that `portreeve --help` documents.
const OK: Option<i32> = Some(0);
const NOT_READY: Option<i32> = Some(1);
const BAD_INPUT: Option<i32> = Some(2);

fn on_quickstart(command: &str, arguments: &[&str]) -> Output {
    let domains = ["--tenant-api-domain", "example.test", "--tenant-apps-domain", "example.test"];
    run(portreeve().arg(command).arg(quickstart()).args(domains).args(arguments))
}

#[test]
fn the_demo_does_the_main_job() {
    let output = run(portreeve().args(["demo", "--once"]));
    assert_eq!(output.status.code(), OK, "{}", text(&output));
    for proof in ["byte-identical", "PortConflict", "HostnameConflict", "NoMatchingListenerHostname", "404"] {
        assert!(text(&output).contains(proof), "{proof} is not shown:\n{}", text(&output));
    }
}

#[test]
fn plan_prints_objects_and_statuses() {
    let output = on_quickstart("plan", &["-o", "json"]);
    assert_eq!(output.status.code(), NOT_READY, "two claims of the quickstart are refused: {}", text(&output));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let printed = plan.to_string();
    for expected in
        ["dask-gateway-listeners", "tcp-scheduler", "tenant-api-blue", "t-blue", "PortConflict", "HostnameConflict"]
    {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    for format in ["yaml", "table"] {
        let output = on_quickstart("plan", &["-o", format]);
        assert!(text(&output).contains("dask-gateway-listeners"), "{format}: {}", text(&output));
    }
}

/// As `kubectl diff`: 0 without a difference, 1 with one.
#[test]
fn plan_diff_prints_what_a_directory_would_get() {
    let output = on_quickstart("plan", &["--diff"]);
    assert_eq!(output.status.code(), NOT_READY, "{}", text(&output));
    for line in
        ["# create ListenerSet/dask/dask-gateway-listeners", "--- /dev/null", "# change the status of NebariApp/"]
    {
        assert!(text(&output).contains(line), "{line} is not in\n{}", text(&output));
    }
    let folder = TempDir::new().unwrap();
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: web }\nspec: { ports: [{ port: 80 }] }\n";
    std::fs::write(folder.path().join("service.yaml"), service).unwrap();
    let same = run(portreeve().arg("plan").arg(folder.path()).arg("--diff"));
    assert_eq!((same.status.code(), same.stdout.is_empty()), (OK, true), "{}", text(&same));
}

#[test]
fn trace_follows_a_name_to_its_endpoint() {
    let name = "daskgateway-dask.5f1c0a7be2d94c0b8d3e6a91f0c4b7d2";
    let backend = "dask/dask-5f1c0a7be2d94c0b8d3e6a91f0c4b7d2=127.0.0.1:9999";
    let output = on_quickstart("trace", &["--port", "8786", "--sni", name, "--backend", backend]);
    assert_eq!(output.status.code(), OK, "{}", text(&output));
    assert!(text(&output).contains("127.0.0.1:9999"), "{}", text(&output));
}

#[test]
fn trace_names_the_hop_that_fails_and_what_to_change() {
    let output = on_quickstart("trace", &["--port", "8786", "--sni", "daskgateway-dask.unknown", "-o", "json"]);
    assert_eq!(output.status.code(), NOT_READY, "{}", text(&output));
    let trace: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let last = trace["hops"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((last["ok"].as_bool(), last["kind"].as_str()), (Some(false), Some("Route")), "{last}");
    assert!(last["fix"].is_string(), "{last}");
}

#[test]
fn trace_of_a_url_needs_endpoints_too() {
    let output = on_quickstart("trace", &["https://hub.example.test/", "-o", "json"]);
    assert_eq!(output.status.code(), NOT_READY, "{}", text(&output));
    let trace: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let last = trace["hops"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["kind"].as_str(), Some("Endpoints"), "{last}");
}

/// "Bad input gets a clear error": a broken file, an unknown field, an object twice.
#[test]
fn faults_in_manifests_name_file_line_and_field() {
    let folder = TempDir::new().unwrap();
    let app = "apiVersion: reconcilers.nebari.dev/v1\nkind: NebariApp\nmetadata: { name: web, namespace: web }\nspec:\n  \
               hostname: Web.Example.test\n  servise: { name: web }\n  service: { name: web, port: 80 }\n";
    std::fs::write(folder.path().join("app.yaml"), app).unwrap();
    std::fs::write(folder.path().join("broken.yaml"), "apiVersion: v1\nkind: [\n").unwrap();
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: { name: web, namespace: web }\nspec: { ports: [{ port: 80 }] }\n";
    std::fs::write(folder.path().join("one.yaml"), service).unwrap();
    std::fs::write(folder.path().join("two.yaml"), service).unwrap();

    let output = run(portreeve().arg("plan").arg(folder.path()));
    let printed = text(&output);
    assert_eq!(output.status.code(), BAD_INPUT, "{printed}");
    assert!(printed.contains("app.yaml:5") && printed.contains("spec.hostname"), "{printed}");
    assert!(printed.contains("app.yaml:6") && printed.contains("servise") && printed.contains("service"), "{printed}");
    assert!(printed.contains("broken.yaml:"), "{printed}");
    assert!(printed.contains("one.yaml:1") && printed.contains("two.yaml:1"), "{printed}");
}

#[test]
fn two_gateways_on_one_socket_are_a_start_up_error() {
    let state = TempDir::new().unwrap();
    let output = run(portreeve().arg("up").arg(quickstart()).arg("--state-dir").arg(state.path()).args([
        "--listen",
        "envoy-gateway-system/nebari-gateway:443=127.0.0.1:23443",
        "--listen",
        "kubespaces-system/kubespaces-api:443=127.0.0.1:23443",
    ]));
    let printed = text(&output);
    assert_eq!(output.status.code(), BAD_INPUT, "{printed}");
    assert!(printed.contains("nebari-gateway") && printed.contains("kubespaces-api"), "{printed}");
}

/// A port in use takes out its own listeners only, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_takes_out_only_its_own_listeners() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = taken.local_addr().unwrap();
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_portreeve"));
    command.arg("up").arg(quickstart()).arg("--state-dir").arg(folder.path()).args([
        "--listen".to_owned(),
        format!("envoy-gateway-system/nebari-gateway:8786={socket}"),
        "--listen".to_owned(),
        "envoy-gateway-system/nebari-gateway:443=127.0.7.1:24443".to_owned(),
        "--address-pool".to_owned(),
        "127.0.7.0/24".to_owned(),
    ]);
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let mut process = command.stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap();
    let start = std::time::Instant::now();
    let mut served = false;
    let mut said = false;
    while !(served && said) && start.elapsed() < crate::support::DEADLINE {
        served = std::net::TcpStream::connect("127.0.7.1:24443").is_ok();
        said = std::fs::read_to_string(folder.path().join("log")).unwrap().contains(&socket.to_string());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(served && said, "served {served}, said {said}:\n{log}");
}

/// Origin: `plan … | head` ended with exit code 3 and a complaint about a broken pipe.
#[test]
fn a_reader_that_has_had_enough_is_no_fault() {
    for arguments in [&["plan", "-o", "json"][..], &["trace", "https://hub.example.test/"], &["demo", "--once"]] {
        let mut command = portreeve();
        command.arg(arguments[0]);
        if arguments[0] != "demo" {
            command.arg(quickstart());
        }
        let output = run(command.args(&arguments[1..]).stdout(deaf()));
        assert!(matches!(output.status.code(), OK | NOT_READY), "{arguments:?}: {}", text(&output));
        assert!(!text(&output).contains("roken pipe"), "{arguments:?}: {}", text(&output));
    }
}

/// Origin: `up … 2>&1 | grep -m1 Ready` ended the gateway with a panic at its next change.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_has_to_read_what_a_gateway_says() {
    let (folder, socket) = (TempDir::new().unwrap(), "127.0.7.2:24080");
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: { name: g, namespace: team }\n\
                   spec: { gatewayClassName: any, listeners: [{ name: http, port: 80, protocol: HTTP }] }\n";
    let state = folder.path().join("state");
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let mut command = portreeve();
    command.arg("up").arg(&manifests).arg("--state-dir").arg(state).args(["--listen", &format!("team/g:80={socket}")]);
    let mut process = command.env("RUST_LOG", "debug").stdout(deaf()).stderr(deaf()).spawn().unwrap();
    std::fs::write(manifests.join("g.yaml"), gateway).unwrap();
    let start = std::time::Instant::now();
    while std::net::TcpStream::connect(socket).is_err() {
        assert_eq!(process.try_wait().unwrap(), None, "it ended");
        assert!(start.elapsed() < crate::support::DEADLINE);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    std::fs::write(manifests.join("broken.yaml"), "a: [").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(process.try_wait().unwrap(), None, "it ended");
    process.kill().unwrap();
    process.wait().unwrap();
}

/// The end of a pipe that nobody reads.
fn deaf() -> std::io::PipeWriter {
    std::io::pipe().unwrap().1
}

/// Origin: SIGTERM, as `docker stop` sends it, left the folder of the demo behind.
#[test]
fn a_demo_that_is_stopped_leaves_nothing_behind() {
    let home = TempDir::new().unwrap();
    let log = home.path().join("log");
    let temporary = home.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let output = std::fs::File::create(&log).unwrap();
    let mut process = portreeve().arg("demo").env("TMPDIR", &temporary).stdout(output).spawn().unwrap();
    let start = std::time::Instant::now();
    // Where the demo's own ports are taken it ends by itself, and has to be as tidy.
    while process.try_wait().unwrap().is_none() && !std::fs::read_to_string(&log).unwrap().contains("until Ctrl-C") {
        assert!(start.elapsed() < crate::support::DEADLINE);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    run(Command::new("kill").arg(process.id().to_string()));
    process.wait().unwrap();
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
}
