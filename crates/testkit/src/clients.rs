//! Clients that speak HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::header::HOST;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

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
    https_get_under(to, name, name, path, tls).await
}

/// The same with another server name than that of the host.
pub async fn https_get_under(
    to: SocketAddr,
    server_name: &str,
    name: &str,
    path: &str,
    tls: ClientConfig,
) -> anyhow::Result<Answer> {
    within_patience(async { over(TcpStream::connect(to).await?, server_name, name, path, tls).await }).await
}

/// The same on a connection that is there, such as that of a host.
pub async fn https_get_over(
    connection: TcpStream,
    server_name: &str,
    name: &str,
    path: &str,
    tls: ClientConfig,
) -> anyhow::Result<Answer> {
    within_patience(over(connection, server_name, name, path, tls)).await
}

async fn over(
    connection: TcpStream,
    server_name: &str,
    name: &str,
    path: &str,
    tls: ClientConfig,
) -> anyhow::Result<Answer> {
    let stream = handshake(tls, server_name, connection).await?;
    let certificate = shown(&stream);
    let (status, body) = get(stream, name, path).await?;
    Ok(Answer { status, body, certificate })
}

/// Asks for `/` of several hosts, one after the other, on one connection of HTTP/2 with the server name of the first.
pub async fn http2_get(to: SocketAddr, names: &[&str], mut tls: ClientConfig) -> anyhow::Result<Vec<Answer>> {
    tls.alpn_protocols = vec![b"h2".to_vec()];
    // It is large.
    within_patience(Box::pin(async {
        let first = names.first().context("there is a name to ask for")?;
        let stream = handshake(tls, first, TcpStream::connect(to).await?).await?;
        let certificate = shown(&stream);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut answers = Vec::new();
        for name in names {
            let request = Request::get(format!("https://{name}/")).body(Empty::<Bytes>::new())?;
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let body = String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned();
            answers.push(Answer { status, body, certificate: certificate.clone() });
        }
        connection.abort();
        Ok(answers)
    }))
    .await
}

/// The certificate that the other side has shown.
fn shown(stream: &TlsStream<TcpStream>) -> Option<CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates().and_then(|shown| shown.first()).cloned().map(CertificateDer::into_owned)
}

async fn within_patience<T>(answer: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
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
