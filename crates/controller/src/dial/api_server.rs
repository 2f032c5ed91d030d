//! Whether a tenant's API server is reached under its public name, and whether nobody on the way ends its TLS.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use portreeve_plan::{ApiServerDial, DialResult, World};
use rustls::pki_types::{CertificateDer, ServerName};

use super::handshake::{Answer, certificate_at, covers};

/// How many addresses of one API server are dialled at once.
const AT_ONCE: usize = 4;
/// The most addresses of its own that are asked: replicas may have a certificate each.
const MOST_REPLICAS: usize = 8;
/// Until it is proved: the first pause, which doubles each time, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(2));
/// How long a proof is good for.
const GOOD_FOR: Duration = Duration::from_mins(5);

/// An API server with every address (`HOST:PORT`) that is dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiServer {
    /// The public name.
    pub(crate) host: String,
    /// Its Service itself: the cluster IP and the ready endpoints.
    pub(crate) own: Vec<String>,
    /// The Service of the Gateway's data plane, then the Gateway's addresses.
    pub(crate) public: Vec<String>,
}

/// What came of dialling, by public name.
pub(crate) type Proofs = BTreeMap<String, DialResult>;

/// When each API server is to be dialled.
#[derive(Debug, Default)]
pub(crate) struct Schedule(BTreeMap<String, Entry>);

#[derive(Debug)]
struct Entry {
    server: ApiServer,
    due: Instant,
    failures: u32,
    result: Option<DialResult>,
}

impl ApiServer {
    /// Looks up the addresses of what the planner wants to have dialled.
    pub(crate) fn of(dial: &ApiServerDial, world: &World) -> Self {
        let (namespace, service, port) = &dial.service;
        let data_plane = dial.data_plane.as_ref().and_then(|(namespace, name)| cluster_ip(world, namespace, name));
        let public = data_plane.iter().chain(&dial.addresses).map(|address| at(address, dial.port)).collect();
        let own = cluster_ip(world, namespace, service).map(|ip| at(&ip, *port));
        let own = own.into_iter().chain(endpoints(world, namespace, service, *port)).take(MOST_REPLICAS).collect();
        Self { host: dial.host.clone(), own, public }
    }

    /// Dials everything and compares.
    pub(crate) async fn prove(&self) -> DialResult {
        let Ok(name) = ServerName::try_from(self.host.clone()) else {
            return DialResult::ConnectFailed(format!("{} is no name that can be asked for", self.host));
        };
        let public = ask(&self.public, &name).await;
        let own = ask(&self.own, &name).await;
        judge(&name, &public, &own)
    }
}

/// What the answers at the public addresses mean, beside those of the Service itself. Addresses that nobody takes
/// connections at are passed over while another one answers: not every address is reached from everywhere.
fn judge(name: &ServerName<'_>, public: &[(String, Answer)], own: &[(String, Answer)]) -> DialResult {
    let connected: Vec<_> = public.iter().filter(|(_, answer)| !matches!(answer, Answer::NoConnection(_))).collect();
    if connected.is_empty() {
        return DialResult::ConnectFailed(all("the Gateway has no address", public));
    }
    let silent = connected.iter().find_map(|(address, answer)| match answer {
        Answer::Silence(why) => Some(format!("{address}: {why}")),
        Answer::Certificate(_) | Answer::NoConnection(_) => None,
    });
    if let Some(silent) = silent {
        return DialResult::NoRoute(silent);
    }
    let own_certificates: Vec<_> = own.iter().filter_map(|(_, answer)| answer.certificate()).collect();
    if own_certificates.is_empty() {
        let why = all("it has no address", own);
        return DialResult::ConnectFailed(format!("the Service itself cannot be asked for its certificate: {why}"));
    }
    let shown = connected.iter().filter_map(|(address, answer)| Some((address, answer.certificate()?)));
    for (address, certificate) in shown {
        if !own_certificates.contains(&certificate) {
            let whose = covers(certificate, name).map_or_else(|names| names, |()| "this name too".to_owned());
            return DialResult::Terminated(format!(
                "{address} shows another certificate than the Service itself; it is for {whose}"
            ));
        }
        if let Err(names) = covers(certificate, name) {
            return DialResult::SanMissing(names);
        }
    }
    DialResult::Proved
}

impl Answer {
    fn certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Certificate(certificate) => Some(certificate),
            Self::Silence(_) | Self::NoConnection(_) => None,
        }
    }

    fn why(&self) -> &str {
        match self {
            Self::Certificate(_) => "it answers",
            Self::Silence(why) | Self::NoConnection(why) => why,
        }
    }
}

/// In the order of the addresses.
async fn ask(addresses: &[String], name: &ServerName<'static>) -> Vec<(String, Answer)> {
    let ask_one = |address: &String| ask_one(address.clone(), name.clone());
    let asked: Vec<_> = addresses.iter().map(ask_one).collect();
    stream::iter(asked).buffered(AT_ONCE).collect().await
}

async fn ask_one(address: String, name: ServerName<'static>) -> (String, Answer) {
    let answer = certificate_at(&address, &name).await;
    (address, answer)
}

fn all(none: &str, answers: &[(String, Answer)]) -> String {
    let each: Vec<_> = answers.iter().map(|(address, answer)| format!("{address}: {}", answer.why())).collect();
    if each.is_empty() { none.to_owned() } else { each.join("; ") }
}

/// `ADDRESS:PORT`, also for IPv6.
pub(super) fn at(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

fn cluster_ip(world: &World, namespace: &str, name: &str) -> Option<String> {
    let service = world.services.iter().find(|service| {
        service.metadata.namespace.as_deref() == Some(namespace) && service.metadata.name.as_deref() == Some(name)
    })?;
    let ip = service.spec.as_ref()?.cluster_ip.clone();
    ip.filter(|ip| !matches!(ip.as_str(), "" | "None"))
}

/// The ready endpoints of a Service's port.
fn endpoints(world: &World, namespace: &str, service: &str, port: u16) -> Vec<String> {
    let port_name = world.services.iter().find_map(|found| {
        let is_it =
            found.metadata.namespace.as_deref() == Some(namespace) && found.metadata.name.as_deref() == Some(service);
        let ports = found.spec.as_ref().filter(|_| is_it)?.ports.as_ref()?;
        let port = ports.iter().find(|one| one.port == i32::from(port))?;
        Some(port.name.clone().unwrap_or_default())
    });
    let slices = world.endpoint_slices.iter().filter(|slice| {
        let label = slice.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/service-name"));
        slice.metadata.namespace.as_deref() == Some(namespace) && label.is_some_and(|label| label == service)
    });
    let found = slices.flat_map(|slice| {
        let ports = slice.ports.iter().flatten().filter(|one| Some(one.name.clone().unwrap_or_default()) == port_name);
        let ports: Vec<_> = ports.filter_map(|one| u16::try_from(one.port?).ok()).collect();
        let is_ready = |conditions: Option<bool>| conditions != Some(false);
        let ready = slice
            .endpoints
            .iter()
            .flatten()
            .filter(move |one| is_ready(one.conditions.as_ref().and_then(|one| one.ready)));
        let addresses = ready.filter_map(|one| one.addresses.first());
        addresses
            .flat_map(move |address| ports.clone().into_iter().map(move |port| at(address, port)))
            .collect::<Vec<_>>()
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

impl Schedule {
    /// Dials exactly these from now on; at once those that are new or have moved. `remembered` is what was known before this
    /// process knew anything: it holds until they are dialled.
    pub(crate) fn aim(&mut self, servers: Vec<ApiServer>, remembered: &Proofs, now: Instant) {
        let mut before = std::mem::take(&mut self.0);
        for server in servers {
            let known = before.remove(&server.host);
            let entry = match known {
                Some(known) if known.server == server => known,
                known => {
                    let result = known.map_or_else(|| remembered.get(&server.host).cloned(), |known| known.result);
                    Entry { server, due: now, failures: 0, result }
                }
            };
            self.0.insert(entry.server.host.clone(), entry);
        }
    }

    /// What is to be dialled now.
    pub(crate) fn due(&self, now: Instant) -> Vec<ApiServer> {
        self.0.values().filter(|entry| entry.due <= now).map(|entry| entry.server.clone()).collect()
    }

    /// When something is to be dialled next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.values().map(|entry| entry.due).min()
    }

    /// Takes in what came of it.
    pub(crate) fn note(&mut self, host: &str, result: DialResult, now: Instant, jitter: impl Fn(Duration) -> Duration) {
        let Some(entry) = self.0.get_mut(host) else { return };
        let pause = if result == DialResult::Proved {
            entry.failures = 0;
            GOOD_FOR
        } else {
            entry.failures = entry.failures.saturating_add(1);
            PAUSE.0.saturating_mul(2_u32.saturating_pow(entry.failures - 1)).min(PAUSE.1)
        };
        entry.due = now + jitter(pause);
        entry.result = Some(result);
    }

    /// What is known.
    pub(crate) fn proofs(&self) -> Proofs {
        let known = self.0.iter().filter_map(|(host, entry)| Some((host.clone(), entry.result.clone()?)));
        known.collect()
    }
}

#[cfg(test)]
#[path = "api_server_tests.rs"]
mod tests;
