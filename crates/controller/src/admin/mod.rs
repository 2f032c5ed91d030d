//! What those who run the controller may ask it: whether it lives, whether it is ready, and its numbers.

pub(crate) mod metrics;
mod secure;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use kube::Client;
use metrics::Metrics;
use secure::Guard;
pub(crate) use secure::TlsListener;
pub use secure::{CertificateSource, NoCertificate};

/// Whether everything is known that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// What is not known yet, and why.
    pub(crate) missing: Vec<String>,
}

impl Default for Readiness {
    /// Before anything is known.
    fn default() -> Self {
        Self { missing: vec!["the controller has only just started".to_owned()] }
    }
}

/// Binds an address as the operators that Portreeve replaces write it: `:8081` is every address.
pub(crate) async fn bind(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        // Also where there is no IPv6.
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Ok(listener) => Ok(listener),
            Err(_) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        },
        None => TcpListener::bind(address).await,
    }
}

/// `/healthz` and `/readyz`. A replica that waits for its turn is ready; one that cannot even ask for it is not.
pub(crate) async fn serve_probes(
    listener: TcpListener,
    readiness: watch::Receiver<Readiness>,
    lease_failure: watch::Receiver<Option<String>>,
) {
    let ready = get(async move || {
        let mut missing = readiness.borrow().missing.clone();
        missing.extend(lease_failure.borrow().clone());
        let missing = missing.join("\n");
        if missing.is_empty() { (StatusCode::OK, "ok".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, missing) }
    });
    let router = Router::new().route("/healthz", get(async || "ok")).route("/readyz", ready);
    end(axum::serve(listener, router).await);
}

/// `/metrics`, for everybody who can reach the address.
pub(crate) async fn serve_metrics(listener: TcpListener, metrics: Arc<Metrics>) {
    end(axum::serve(listener, metrics_router(metrics)).await);
}

/// `/metrics` over HTTPS, for those whom the API server lets `get` it.
pub(crate) async fn serve_secure_metrics(listener: TlsListener, metrics: Arc<Metrics>, client: Client) {
    let guard = from_fn_with_state(Guard::new(client), secure::guard);
    end(axum::serve(listener, metrics_router(metrics).layer(guard)).await);
}

fn metrics_router(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(async move || text(&metrics)))
}

fn text(metrics: &Metrics) -> axum::response::Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(fault) => (StatusCode::INTERNAL_SERVER_ERROR, fault.to_string()).into_response(),
    }
}

fn end(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::error!(%error, "an admin server has ended");
    }
}
