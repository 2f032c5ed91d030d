//! The demo's client: one request through the gateway, and what came back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::any_certificate::AnyCertificate;
use super::identity::Identity;

/// How long one request may take; everything is on this machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// One request.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) socket: SocketAddr,
    /// The server name to send, if any, and the `Host`.
    pub(super) name: Option<String>,
    /// `None` speaks no HTTP: the server talks first.
    pub(super) path: Option<String>,
    pub(super) http2: bool,
    pub(super) identity: Option<Identity>,
}

/// What came back, or that the gateway closed without a word.
pub(super) enum Answer {
    /// The other side answered.
    Answered {
        /// The leaf certificate that was shown.
        certificate: CertificateDer<'static>,
        /// The HTTP status, where HTTP was spoken.
        status: Option<u16>,
        body: String,
    },
    /// Closed before a single byte came.
    Closed,
    /// A TLS alert or anything else that is not a plain close.
    Broken(String),
}

/// Sends `request` and says what came back and from which local address it was sent.
pub(super) async fn send(request: &Request) -> anyhow::Result<(SocketAddr, Answer)> {
    let stream = TcpStream::connect(request.socket)
        .await
        .with_context(|| format!("failed to connect to {}: is the gateway up", request.socket))?;
    let local = stream.local_addr()?;
    let answer = tokio::time::timeout(DEADLINE, exchange(stream, request)).await.context("no answer in time")??;
    Ok((local, answer))
}

async fn exchange(stream: TcpStream, request: &Request) -> anyhow::Result<Answer> {
    let connector = TlsConnector::from(Arc::new(configuration(request)?));
    let name = match &request.name {
        Some(name) => ServerName::try_from(name.clone())?,
        // rustls sends no server name for an address.
        None => ServerName::from(request.socket.ip()),
    };
    let mut stream = match connector.connect(name, stream).await {
        Ok(stream) => stream,
        Err(error) if is_plain_close(&error) => return Ok(Answer::Closed),
        Err(error) => return Ok(Answer::Broken(error.to_string())),
    };
    let certificate = match stream.get_ref().1.peer_certificates() {
        Some([leaf, ..]) => leaf.clone().into_owned(),
        _ => bail!("the server showed no certificate"),
    };
    let (status, body) = match &request.path {
        None => (None, read_greeting(&mut stream).await?),
        Some(path) => {
            let (status, body) = fetch(stream, request, path).await?;
            (Some(status), body)
        }
    };
    Ok(Answer::Answered { certificate, status, body: body.trim().to_owned() })
}

async fn read_greeting(stream: &mut TlsStream<TcpStream>) -> anyhow::Result<String> {
    let mut greeting = String::new();
    stream.read_to_string(&mut greeting).await.context("failed to read the greeting")?;
    Ok(greeting)
}

async fn fetch<S>(stream: S, request: &Request, path: &str) -> anyhow::Result<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let host = request.name.as_deref().unwrap_or_default();
    let head = http::Request::builder().uri(format!("https://{host}{path}"));
    let response = if request.http2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(head.body(Empty::<bytes::Bytes>::new())?).await?
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let head = http::Request::builder().uri(path).header(http::header::HOST, host);
        sender.send_request(head.body(Empty::<bytes::Bytes>::new())?).await?
    };
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// A client that takes any certificate, since the demo compares certificates itself, byte by byte.
fn configuration(request: &Request) -> anyhow::Result<ClientConfig> {
    let mut config = match &request.identity {
        Some(identity) => identity.mutual_client()?,
        None => ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new()))
            .with_no_client_auth(),
    };
    if request.path.is_some() {
        config.alpn_protocols = vec![if request.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    }
    Ok(config)
}

/// FIN or RST without a TLS alert: what a client sees of a gateway that has nothing for it.
fn is_plain_close(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset)
}
