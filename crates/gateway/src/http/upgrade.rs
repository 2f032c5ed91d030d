//! Requests that become tunnels (WebSocket and whatever else says `Upgrade`).

use std::sync::Arc;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use crate::admission::Place;
use crate::observe::{Access, Outcome};
use crate::shared::Shared;
use crate::tunnel::Side;

impl Side for TokioIo<Upgraded> {}

/// Both ends, once each side has spoken its last HTTP.
pub(super) struct Upgrade {
    pub(super) client: OnUpgrade,
    pub(super) backend: OnUpgrade,
    pub(super) access: Access,
    pub(super) place: Arc<Place>,
    pub(super) shared: Arc<Shared>,
}

impl Upgrade {
    /// Carries bytes until both directions have ended.
    pub(super) async fn run(self) {
        let Self { client, backend, mut access, place, shared } = self;
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => {
                access.tunnel_opened();
                let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
                let carried = shared.tunnels.carry(&mut client, &mut backend, &mut access.record, None).await;
                access.record.outcome = carried.err().unwrap_or(Outcome::Served);
            }
            Err(error) => tracing::debug!(%error, "a connection broke off before it was upgraded"),
        }
        drop(place);
    }
}
