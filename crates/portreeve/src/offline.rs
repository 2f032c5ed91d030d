//! What would be, once everything is bound: for `plan` and `trace`, which touch no socket and write no state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use portreeve_attach::{DataPlane, SocketState};
use portreeve_table::Table;

use crate::authority::{Authority, AuthorityError};
use crate::input::Input;
use crate::manifest::{Directory, Finding, Unreadable};
use crate::records::Records;
use crate::report::SocketStates;
use crate::sockets::{AddressBook, Sockets, assign};
use crate::state::StateError;
use crate::world::{Converged, Environment, World, converge};

/// How often the table may change because sockets did: they depend on nothing that a table changes, so twice is enough.
const MAX_BINDINGS: usize = 4;

/// A directory of manifests, converged as if every socket could be bound.
#[derive(Debug)]
pub struct Offline {
    /// Every object, with its status.
    pub world: World,
    /// What there is to say about the manifests.
    pub findings: Vec<Finding>,
    /// What came out.
    pub converged: Converged,
    /// Where each port would listen.
    pub sockets: SocketStates,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// There are no manifests.
    #[error(transparent)]
    Manifests(#[from] Unreadable),
    /// The record of who was granted what cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// No certificate can be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// Reads, and converges with every socket bound.
///
/// The record of an earlier `up` of the same directory counts: who was granted a name keeps it.
pub fn offline(input: &Input, now: Timestamp) -> Result<Offline, OfflineError> {
    let reading = Directory::new(&input.manifests).read()?;
    let Records { claims, mut addresses } = Records::peek(&input.state)?;
    let mut authority = Authority::ephemeral(now)?;
    let objects = input.complete(&reading);
    assign(&mut addresses, &objects.gateways, &input.rules.pool, !reading.has_errors());
    let mut world = World::new(claims);
    world.rewrite(objects.objects, !reading.has_errors());
    let (mut data_plane, mut sockets) = bind(input, &Table::default(), &addresses);
    let mut converged = Converged::default();
    for _ in 0..MAX_BINDINGS {
        let environment =
            Environment { config: &input.config, settings: &input.settings, data_plane: &data_plane, now };
        converged = converge(&mut world, &mut authority, environment);
        let (next_data_plane, next_sockets) = bind(input, &converged.table, &addresses);
        if next_sockets == sockets {
            break;
        }
        (data_plane, sockets) = (next_data_plane, next_sockets);
    }
    converged.warnings.extend(sockets.warnings());
    Ok(Offline { world, findings: reading.findings, converged, sockets: states(sockets) })
}

fn bind(input: &Input, table: &Table, addresses: &AddressBook) -> (DataPlane, Sockets) {
    let sockets = input.rules.resolve(table.ports.keys(), addresses, &BTreeMap::new());
    let bound = sockets.open.keys().map(|port| (port.clone(), SocketState::Bound));
    let failed = sockets.refused.iter().map(|(port, refusal)| (port.clone(), SocketState::Failed(refusal.to_string())));
    let addresses = addresses.iter().map(|(gateway, address)| (gateway.as_str().into(), vec![*address]));
    (DataPlane { addresses: addresses.collect(), sockets: bound.chain(failed).collect() }, sockets)
}

fn states(sockets: Sockets) -> SocketStates {
    let open = sockets.open.into_iter().map(|(port, address)| (port, Ok(address)));
    open.chain(sockets.refused.into_iter().map(|(port, refusal)| (port, Err(refusal.to_string())))).collect()
}
