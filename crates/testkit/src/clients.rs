//! Clients that speak HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::tls::handshake;

/// How long a request may take in all.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server has answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// The body, as text.
    pub body: String,
    /// The certificate that the server has shown, over HTTPS.
    pub certificate: Option<CertificateDer<'static>>,
}

/// Asks for `path` of the host `name` at an address over HTTP, on a connection of its own, within five seconds.
pub async fn http_get(to: SocketAddr, name: &str, path: &str) -> anyhow::Result<Answer> {
    within_patience(async {
        let (status, body) = get(TcpStream::connect(to).await?, name, path).await?;
        Ok(Answer { status, body, certificate: None })
    })
    .await
}

/// The same over HTTPS, with `name` as the server name too.
pub async fn https_get(to: SocketAddr, name: &str, path: &str, tls: ClientConfig) -> anyhow::Result<Answer> {
    within_patience(async {
        let stream = handshake(tls, name, TcpStream::connect(to).await?).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first()).cloned();
        let certificate = certificate.map(CertificateDer::into_owned);
        let (status, body) = get(stream, name, path).await?;
        Ok(Answer { status, body, certificate })
    })
    .await
}

async fn within_patience(answer: impl Future<Output = anyhow::Result<Answer>>) -> anyhow::Result<Answer> {
    tokio::time::timeout(PATIENCE, answer).await.context("no answer in 5 s")?
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    name: &str,
    path: &str,
) -> anyhow::Result<(u16, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header(HOST, name).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
