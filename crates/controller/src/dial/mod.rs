//! Connections to data planes, as a part of the proof that something is served.
//!
//! `ports` keeps account of Gateways' ports, `api_server` of tenants' API servers under their public names; both say
//! when to dial and what it means, and dial nothing. Only a replica that leads dials: another has no aims.

mod api_server;
mod handshake;
mod ports;

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use portreeve_plan::{DialResult, GatewayPorts, Plan, World, ports_to_dial, remembered_dials, remembered_proofs};
use tokio::sync::watch;
use tokio::time::sleep_until;

use crate::jitter::jitter;
use api_server::{ApiServer, Proofs, Schedule};
use ports::{Book, FailedPorts, Place};

pub use handshake::trusted_at;

/// How many connections are made at once. Where an address is out of reach, each of them waits until it is given up.
const AT_ONCE: usize = 64;
/// The shortest pause between two rounds, so that what is due a moment later is dialled with it.
const REST: Duration = Duration::from_millis(200);

/// What to dial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aims {
    ports: Vec<GatewayPorts>,
    /// Ports that failed when somebody dialled last.
    remembered: FailedPorts,
    api_servers: Vec<ApiServer>,
    /// What came of these then.
    remembered_proofs: Proofs,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dialled {
    failed_ports: FailedPorts,
    proofs: Proofs,
}

impl Aims {
    /// What is to be dialled in a world, and for its plan.
    pub(crate) fn of(world: &World, plan: &Plan) -> Self {
        Self {
            ports: ports_to_dial(world),
            remembered: remembered_dials(world),
            api_servers: plan.dials.iter().map(|dial| ApiServer::of(dial, world)).collect(),
            remembered_proofs: remembered_proofs(world),
        }
    }
}

impl Dialled {
    /// Puts into a world what is known; where nothing was dialled yet, what statuses tell.
    pub(crate) fn tell(this: Option<&Self>, world: &mut World) {
        let found = this.map(|dialled| (dialled.failed_ports.clone(), dialled.proofs.clone()));
        (world.failed_dials, world.dialled) =
            found.unwrap_or_else(|| (remembered_dials(world), remembered_proofs(world)));
    }
}

/// Dials what `aims` says, for as long as anybody listens to `results`. Without aims there is no result.
pub(crate) async fn dial(mut aims: watch::Receiver<Aims>, results: watch::Sender<Option<Dialled>>) {
    let (mut book, mut schedule, mut has_aims) = (Book::default(), Schedule::default(), false);
    loop {
        let next = [book.next(), schedule.next()].into_iter().flatten().min();
        tokio::select! {
            changed = aims.changed() => {
                if changed.is_err() {
                    // Nobody aims any more: the engine is gone, and this ends with it.
                    return std::future::pending().await;
                }
                let Aims { ports, remembered, api_servers, remembered_proofs } = aims.borrow_and_update().clone();
                has_aims = !ports.is_empty() || !api_servers.is_empty();
                book.aim(&ports, &remembered, Instant::now());
                schedule.aim(api_servers, &remembered_proofs, Instant::now());
            }
            () = until(next) => {
                let ports = dial_ports(book.due(Instant::now()));
                let servers = prove_all(schedule.due(Instant::now()));
                let (ports, servers) = tokio::join!(ports, servers);
                for (place, result) in ports {
                    book.note(&place, result, Instant::now(), jitter);
                }
                for (host, result) in servers {
                    schedule.note(&host, result, Instant::now(), jitter);
                }
            }
        }
        let dialled = has_aims.then(|| Dialled { failed_ports: book.failed(), proofs: schedule.proofs() });
        results.send_if_modified(|known| {
            let is_new = *known != dialled;
            *known = dialled;
            is_new
        });
    }
}

async fn dial_ports(due: Vec<Place>) -> Vec<(Place, Result<(), String>)> {
    let dialled: Vec<_> = due.into_iter().map(dial_port).collect();
    stream::iter(dialled).buffer_unordered(AT_ONCE).collect().await
}

async fn dial_port(place: Place) -> (Place, Result<(), String>) {
    let address = api_server::at(&place.address, place.port);
    let result = handshake::connect(&address).await.map(drop);
    (place, result)
}

async fn prove_one(server: ApiServer) -> (String, DialResult) {
    let result = server.prove().await;
    (server.host, result)
}

async fn prove_all(due: Vec<ApiServer>) -> Vec<(String, DialResult)> {
    let proved: Vec<_> = due.into_iter().map(prove_one).collect();
    stream::iter(proved).buffer_unordered(AT_ONCE).collect().await
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next.max(Instant::now() + REST).into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use portreeve_plan::claim::GatewayName;
    use tokio::net::TcpListener;

    use super::*;

    /// A replica that does not lead has no aims.
    #[tokio::test]
    async fn without_aims_nobody_is_dialled_and_nothing_is_known() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ((aims, aimed), (results, mut dialled)) = (watch::channel(Aims::default()), watch::channel(None));
        let task = tokio::spawn(dial(aimed, results));
        let ports = GatewayPorts {
            gateway: GatewayName::new("a", "g"),
            addresses: vec![address.ip().to_string()],
            ports: [address.port()].into(),
        };
        aims.send(Aims { ports: vec![ports], ..Aims::default() }).unwrap();
        let (_, client) = listener.accept().await.unwrap();
        assert_eq!(client.ip(), address.ip());
        assert_eq!(*dialled.wait_for(Option::is_some).await.unwrap(), Some(Dialled::default()));
        aims.send(Aims::default()).unwrap();
        assert_eq!(*dialled.wait_for(Option::is_none).await.unwrap(), None);
        task.abort();
    }
}
