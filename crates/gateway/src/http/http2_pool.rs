//! HTTP/2 to backends, in the clear and from the first byte.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::HOST;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend;
use crate::http::body::Upload;
use crate::http::pool::SendError;
use crate::http::{PING_INTERVAL, PING_TIMEOUT};
use crate::settings::Settings;
use crate::shared::Tasks;

/// One connection for each endpoint, which all requests share; it is made anew when the backend has closed it.
pub(super) struct Http2Pool {
    connections: Mutex<HashMap<SocketAddr, SendRequest<Upload>>>,
    connect_timeout: Duration,
    tasks: Tasks,
}

impl Http2Pool {
    pub(super) fn new(settings: &Settings, tasks: &Tasks) -> Self {
        Self { connections: Mutex::default(), connect_timeout: settings.connect_timeout, tasks: tasks.clone() }
    }

    /// Sends `request`, whose URI is only a path and query; ends with the head of the answer.
    pub(super) async fn send(
        &self,
        endpoint: SocketAddr,
        mut request: Request<Upload>,
    ) -> Result<Response<Incoming>, SendError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let authority = host.map_or_else(|| endpoint.to_string(), str::to_owned);
        let uri = Uri::builder().scheme("http").authority(authority).path_and_query(path).build();
        *request.uri_mut() = uri.map_err(SendError::Request)?;
        *request.version_mut() = Version::HTTP_2;
        // `:authority` says it.
        request.headers_mut().remove(HOST);
        let mut sender = self.sender(endpoint).await?;
        sender.send_request(request).await.map_err(|error| SendError::Exchange(error.into()))
    }

    async fn sender(&self, endpoint: SocketAddr) -> Result<SendRequest<Upload>, SendError> {
        let known = self.connections().get(&endpoint).cloned();
        if let Some(mut sender) = known
            && sender.ready().await.is_ok()
        {
            return Ok(sender);
        }
        let mut sender = self.connect(endpoint).await?;
        sender.ready().await.map_err(|error| SendError::Connect(error.into()))?;
        Ok(sender)
    }

    async fn connect(&self, endpoint: SocketAddr) -> Result<SendRequest<Upload>, SendError> {
        let connecting = timeout(self.connect_timeout, TcpStream::connect(endpoint)).await;
        let connected = connecting.map_err(|late| SendError::Connect(late.into()))?;
        let stream = connected.map_err(|error| SendError::Connect(error.into()))?;
        backend::tune(&stream);
        let mut client = Builder::new(TokioExecutor::new());
        client.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
        client.keep_alive_while_idle(true);
        let handshake = client.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| SendError::Connect(error.into()))?;
        // Not one of those that a shutdown waits for: it ends with the gateway.
        tokio::spawn(self.tasks.cut.clone().run_until_cancelled_owned(connection));
        let mut connections = self.connections();
        connections.retain(|_, sender| !sender.is_closed());
        connections.insert(endpoint, sender.clone());
        Ok(sender)
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<SocketAddr, SendRequest<Upload>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
