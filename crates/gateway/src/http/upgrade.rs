//! Requests that become tunnels (WebSocket and whatever else says `Upgrade`).

use std::sync::Arc;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;

use crate::observe::{Access, Outcome};
use crate::tunnel::{self, Side};

impl Side for TokioIo<Upgraded> {}

/// Both ends, once each side has spoken its last HTTP.
pub(super) struct Upgrade {
    pub(super) client: OnUpgrade,
    pub(super) backend: OnUpgrade,
    pub(super) access: Access,
    pub(super) permit: Arc<OwnedSemaphorePermit>,
}

impl Upgrade {
    /// Carries bytes until both directions have ended.
    pub(super) async fn run(self) {
        let Self { client, backend, mut access, permit } = self;
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => {
                access.tunnel_opened();
                let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
                if tunnel::carry(&mut client, &mut backend, &mut access.record.traffic).await.is_ok() {
                    access.record.outcome = Outcome::Served;
                }
            }
            Err(error) => tracing::debug!(%error, "a connection broke off before it was upgraded"),
        }
        drop(permit);
    }
}
