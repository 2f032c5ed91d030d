//! Servers that run in the test process and listen in a host.

use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::network::Host;

/// A server that ends, with its connections still open to their end, when it is dropped.
#[derive(Debug)]
pub struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves HTTP/1 and HTTP/2 at `port` of a host. It answers with what it was asked, as JSON: `server`, `method`, `path`,
/// `headers` (the last of each name) and `body`.
pub fn echo(host: &Host, port: u16, name: &str) -> anyhow::Result<Server> {
    let name: Arc<str> = name.into();
    serve(host, port, move |connection| answer_http(connection, name.clone()))
}

/// Serves TLS at `port` of a host and sends back what it gets; `config` comes from [`crate::tls::Identity::server`].
pub fn tls_echo(host: &Host, port: u16, config: ServerConfig) -> anyhow::Result<Server> {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    serve(host, port, move |connection| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(connection).await {
                send_back(stream).await;
            }
        }
    })
}

/// Serves HTTPS at `port` of a host, with the answers of [`echo`].
pub fn https_echo(host: &Host, port: u16, name: &str, config: ServerConfig) -> anyhow::Result<Server> {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let name: Arc<str> = name.into();
    serve(host, port, move |connection| {
        let (acceptor, name) = (acceptor.clone(), name.clone());
        async move {
            if let Ok(stream) = acceptor.accept(connection).await {
                answer_http(stream, name).await;
            }
        }
    })
}

/// Accepts connections of a host for as long as the result lives.
fn serve<F>(host: &Host, port: u16, handle: impl Fn(TcpStream) -> F + Send + 'static) -> anyhow::Result<Server>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::from_std(host.listen(port)?)?;
    Ok(Server(tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(handle(connection));
        }
    })))
}

async fn answer_http(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, name: Arc<str>) {
    let service = service_fn(move |request| answer(request, name.clone()));
    // A client that goes away is the test's business.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, name: Arc<str>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        let mut refused = Response::new(Full::default());
        *refused.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(refused);
    };
    let headers: serde_json::Map<_, _> = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    let answer = json!({
        "server": &*name,
        "method": head.method.as_str(),
        "path": head.uri.path_and_query().map_or("/", |path| path.as_str()),
        "headers": headers,
        "body": String::from_utf8_lossy(&body.to_bytes()),
    });
    Ok(Response::new(Full::from(answer.to_string())))
}

async fn send_back(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut bytes = [0; 4096];
    while let Ok(count) = stream.read(&mut bytes).await
        && count > 0
        && stream.write_all(&bytes[..count]).await.is_ok()
    {}
}
