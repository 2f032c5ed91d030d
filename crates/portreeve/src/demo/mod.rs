//! `portreeve demo`: the quickstart, served and asked for real.

mod any_certificate;
mod backends;
mod client;
mod identity;
mod journal;
mod report;
mod scenario;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use portreeve_attach::{Classes, Settings};
use portreeve_plan::{Config, TenantApi, TenantApps};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

pub use self::backends::{Backend, Backends, CLUSTERS};
pub use self::identity::Identity;
use self::journal::Journal;
use self::report::{Line, Refusal};
use self::scenario::{PLATFORM, Step, TENANT_API, TENANT_APPS};
use crate::exit::Exit;
use crate::input::{CONTROLLER_NAME, Input};
use crate::open_files::allow_connections;
use crate::output::print;
use crate::sockets::{PortMap, Rules};
use crate::standalone::{Snapshot, Standalone};
use crate::text::Style;

/// The manifests of `examples/quickstart`, so that the binary needs no clone.
const MANIFESTS: [(&str, &str); 6] = [
    ("gateways.yaml", include_str!("../../../../examples/quickstart/gateways.yaml")),
    ("hub.yaml", include_str!("../../../../examples/quickstart/hub.yaml")),
    ("dask.yaml", include_str!("../../../../examples/quickstart/dask.yaml")),
    ("lake.yaml", include_str!("../../../../examples/quickstart/lake.yaml")),
    ("latecomer.yaml", include_str!("../../../../examples/quickstart/latecomer.yaml")),
    ("tenants.yaml", include_str!("../../../../examples/quickstart/tenants.yaml")),
];
const DOMAIN: &str = "example.test";
const TENANT_NAMESPACE: &str = "kubespaces-system";
/// The ports of the quickstart, and where the demo serves them to be tried by hand.
const PORTS: [(u16, u16); 4] = [(80, 8080), (443, 8443), (8786, 8786), (9440, 9440)];
/// The first Gateway is at 127.0.0.1, the next ones follow.
const POOL: &str = "127.0.0.0/24";
/// How long open connections may take to end once the demo is stopped.
const DRAIN: Duration = Duration::from_secs(2);
/// More than anybody tries by hand.
const DEMO_CONNECTIONS: usize = 10_000;

/// Serves the quickstart on loopback, asks it everything, prints what came of it, and stays up unless `once`.
///
/// With `once` every port is a free one, so that the demo never meets another server.
pub async fn run(once: bool) -> anyhow::Result<Exit> {
    let folder = TempDir::with_prefix("portreeve-demo-").context("failed to make a folder for the demo")?;
    let manifests = folder.path().join("manifests");
    write_manifests(&manifests)?;
    let place = manifests.display();
    print(|out| writeln!(out, "Starting sample backends and the gateway; the manifests are in {place}"))?;
    let backends = Backends::start().await?;
    let journal = Arc::new(Journal::default());
    let settings = portreeve_gateway::Settings::with_connections(allow_connections().min(DEMO_CONNECTIONS));
    let standalone =
        Standalone::start(input(folder.path(), &backends, once)?, settings, journal.clone(), Vec::new()).await?;
    let snapshot = standalone.snapshot();

    let lines = ask_all(&scenario::steps(&backends), &snapshot, &journal).await?;
    let style = Style::of_stdout();
    let refusals = report::refusals(&snapshot);
    let right = lines.iter().all(|line| line.right) && refusals.iter().all(Refusal::is_right);
    let verdict =
        if right { "All of it is as it must be." } else { "SOMETHING IS WRONG: see the lines that are marked." };
    print(|out| {
        writeln!(out, "{}\n", report::lines(&lines, style))?;
        writeln!(out, "Refused before any connection, and said so in the status:")?;
        writeln!(out, "{}\n{verdict}", report::refusal_table(&refusals, style))
    })?;

    if !once {
        print_hand_tests(folder.path(), &snapshot, &backends)?;
        let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
        // Either way the folder of the demo is removed.
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.context("failed to wait for Ctrl-C")?,
            _ = terminate.recv() => {}
        }
    }
    standalone.shutdown(DRAIN).await;
    Ok(if right { Exit::Good } else { Exit::Refused })
}

fn write_manifests(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir(folder)?;
    for (name, text) in MANIFESTS {
        fs::write(folder.join(name), text).with_context(|| format!("failed to write {name}"))?;
    }
    Ok(())
}

fn input(folder: &Path, backends: &Backends, once: bool) -> anyhow::Result<Input> {
    let issuer = crate::world::LOCAL_ISSUER.to_owned();
    let config = Config {
        cluster_issuer: Some(issuer.clone()),
        tenant_api: Some(TenantApi {
            gateway_namespace: TENANT_NAMESPACE.to_owned(),
            gateway_name: "kubespaces-api".to_owned(),
            section: None,
            domain: DOMAIN.to_owned(),
            external_dns_target: None,
        }),
        tenant_apps: Some(TenantApps {
            gateway_namespace: TENANT_NAMESPACE.to_owned(),
            gateway_name: "kubespaces-apps".to_owned(),
            domain: DOMAIN.to_owned(),
            cluster_issuer: issuer,
            ..TenantApps::default()
        }),
        ..Config::default()
    };
    let maps = PORTS.map(|(from, to)| PortMap { from, to: if once { 0 } else { to } });
    Ok(Input {
        manifests: folder.join("manifests"),
        state: folder.join("state"),
        config,
        settings: Settings { controller_name: CONTROLLER_NAME.to_owned(), classes: Classes::Every },
        backends: backends.all.iter().map(Backend::endpoint).collect(),
        default_gateways: false,
        rules: Rules { pool: POOL.parse()?, listens: Vec::new(), maps: maps.into(), may_bind: |_| false },
    })
}

/// Asks one thing after the other, so that each line of the report is one connection.
async fn ask_all(steps: &[Step], snapshot: &Snapshot, journal: &Journal) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for step in steps {
        let socket = socket(snapshot, step.gateway, step.port)?;
        let (client, answer) = client::send(&step.request(socket)).await?;
        lines.push(Line::of(step, socket, journal.of(client).await.as_ref(), &answer));
    }
    Ok(lines)
}

fn socket(snapshot: &Snapshot, gateway: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Some(socket) = snapshot.socket(gateway, port) {
        return Ok(socket);
    }
    let problems: Vec<_> = snapshot.sockets.values().filter_map(|state| state.as_ref().err().cloned()).collect();
    bail!("port {port} of {gateway} is not served: {} (`demo --once` takes free ports)", problems.join("; "))
}

fn print_hand_tests(folder: &Path, snapshot: &Snapshot, backends: &Backends) -> anyhow::Result<()> {
    let clients = [("scheduler", backends.schedulers.first()), ("admin", Some(&backends.tenant_admin))];
    for (name, identity) in clients.into_iter().filter_map(|(name, identity)| Some((name, identity?))) {
        fs::write(folder.join(format!("{name}.crt")), &identity.certificate_pem)?;
        fs::write(folder.join(format!("{name}.key")), &identity.key_pem)?;
    }
    let (path, ca) = (folder.display(), snapshot.ca_certificate.display());
    let platform = socket(snapshot, PLATFORM, 443)?;
    let dask = socket(snapshot, PLATFORM, 8786)?;
    let (api, apps) = (socket(snapshot, TENANT_API, 443)?, socket(snapshot, TENANT_APPS, 443)?);
    let scheduler = scenario::scheduler_name(CLUSTERS[0]);
    let text = format!(
        "
It stays up until Ctrl-C. Change a manifest in {path}/manifests and see it applied, or try by hand:

  curl --cacert {ca} --connect-to ::{platform} https://hub.example.test/
  curl --cacert {ca} --connect-to ::{apps} https://web.blue.apps.example.test/
  curl --insecure --cert {path}/admin.crt --key {path}/admin.key --connect-to ::{api} https://blue.api.example.test/version
  openssl s_client -quiet -connect {dask} -servername {scheduler} \\
      -cert {path}/scheduler.crt -key {path}/scheduler.key
  openssl s_client -connect {dask} -servername daskgateway-dask.unknown    # closed
"
    );
    print(|out| writeln!(out, "{text}"))
}
