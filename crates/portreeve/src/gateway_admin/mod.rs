//! What those who run a gateway may ask it: whether it lives, whether it is ready, what it does, and its numbers.

mod numbers;

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use portreeve_gateway::{AccessRecord, Monitor, Observer};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use numbers::Numbers;

use crate::access_log::AccessLog;
use crate::standalone::Snapshot;
use crate::status::Status;

/// Where it can be asked unless somebody says otherwise: from this machine only.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:9180";

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `--admin-address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// Nobody can ask.
    Off,
    /// Here.
    At(SocketAddr),
}

/// Everything that there is to ask.
#[derive(Clone)]
pub struct Admin {
    /// The gateway.
    pub monitor: Monitor,
    /// What became of its sockets.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// What it counted.
    pub numbers: Arc<Numbers>,
}

/// Writes an access line and counts.
#[derive(Debug)]
pub struct Witness {
    /// Where lines go.
    pub log: AccessLog,
    /// Where it is counted.
    pub numbers: Arc<Numbers>,
}

impl Observer for Witness {
    fn finished(&self, record: &AccessRecord) {
        self.numbers.finished(record);
        self.log.finished(record);
    }
}

impl Admin {
    /// Answers on `listener`, until its task is dropped.
    pub async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        axum::serve(listener, self.router()).await
    }

    fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/status", get(status))
            .with_state(self)
    }
}

/// Who answers, lives.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready is who takes new connections, wherever it has a port at all.
async fn readyz(State(admin): State<Admin>) -> Response {
    let snapshot = admin.snapshots.borrow().clone();
    let problems: Vec<_> = snapshot.sockets.values().filter_map(|socket| socket.as_ref().err()).cloned().collect();
    if admin.monitor.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping: no new connection is taken\n").into_response()
    } else if problems.is_empty() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n").into_response()
    }
}

async fn status(State(admin): State<Admin>) -> Response {
    let sockets = admin.snapshots.borrow().sockets.clone();
    match serde_json::to_string(&Status::of(&admin.monitor, &sockets)) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let sockets = admin.snapshots.borrow().sockets.clone();
    match admin.numbers.encode(&admin.monitor, &sockets) {
        Ok(text) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl FromStr for AdminAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            text => text.parse().map(Self::At).map_err(|_| "write ADDR:PORT, such as 127.0.0.1:9180, or off"),
        }
    }
}
