//! Connections to backends that are kept for the next request.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::backend::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_RETRIES, USER_TIMEOUT};
use crate::http::body::Upload;
use crate::http::http2_pool::Http2Pool;
use crate::settings::Settings;
use crate::shared::Tasks;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a connection to a backend is kept without a request.
///
/// Common application servers close idle connections after 5 s; a request that meets that close would be lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// HTTP to backends, with connections kept by endpoint.
pub(crate) struct Pool {
    http1: Client<HttpConnector, Upload>,
    http2: Http2Pool,
}

impl Pool {
    pub(crate) fn new(settings: &Settings, tasks: &Tasks) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(settings.connect_timeout));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE_IDLE));
        connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT);
        Self { http1: client.build(connector), http2: Http2Pool::new(settings, tasks) }
    }

    /// Sends `request`, whose URI is only a path and query, to `endpoint`; ends with the head of the answer.
    pub(super) async fn send(
        &self,
        endpoint: SocketAddr,
        mut request: Request<Upload>,
        http2: bool,
    ) -> Result<Response<Incoming>, SendError> {
        if http2 {
            return self.http2.send(endpoint, request).await;
        }
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::builder().scheme("http").authority(endpoint.to_string()).path_and_query(path).build();
        *request.uri_mut() = uri.map_err(SendError::Request)?;
        self.http1.request(request).await.map_err(|error| {
            if error.is_connect() { SendError::Connect(error.into()) } else { SendError::Exchange(error.into()) }
        })
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// The request cannot be written as HTTP.
    #[error("the request cannot be passed on")]
    Request(#[source] http::Error),
    /// The endpoint did not accept a connection: nothing was sent, and another may be tried.
    #[error("the endpoint cannot be reached")]
    Connect(#[source] BoxError),
    /// The exchange broke off before the answer.
    #[error("the endpoint broke off")]
    Exchange(#[source] BoxError),
}
