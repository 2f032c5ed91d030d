//! Clients in front of the gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ::http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bed::soon;
use crate::identity::Identity;

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// A client configuration that takes any certificate, like dask's `check_hostname = False`, and may show one itself.
pub(crate) fn tls_config(shown: Option<&Identity>, alpn: &[&str]) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())));
    let mut config = match shown {
        Some(identity) => builder.with_client_auth_cert(identity.chain(), identity.key()).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    config
}

pub(crate) fn server_name(text: &str) -> ServerName<'static> {
    ServerName::try_from(text.to_owned()).unwrap()
}

/// Connects and completes the handshake.
pub(crate) async fn tls(address: SocketAddr, sni: &str, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    tls_shared(address, sni, &Arc::new(config)).await
}

/// The same, with a configuration that may remember sessions.
pub(crate) async fn tls_shared(
    address: SocketAddr,
    sni: &str,
    config: &Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = soon(TcpStream::connect(address)).await?;
    soon(TlsConnector::from(config.clone()).connect(server_name(sni), stream)).await
}

/// The bytes of a ClientHello.
pub(crate) fn client_hello(sni: &str) -> Vec<u8> {
    let mut client = ClientConnection::new(Arc::new(tls_config(None, &[])), server_name(sni)).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

pub(crate) fn peer_certificate(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

/// Reads up to a line end, which is left out.
pub(crate) async fn read_line<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut line = Vec::new();
    loop {
        match soon(stream.read_u8()).await.unwrap() {
            b'\n' => return String::from_utf8(line).unwrap(),
            byte => line.push(byte),
        }
    }
}

/// Says something and hears it back.
pub(crate) async fn assert_echo<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, text: &str) {
    soon(stream.write_all(text.as_bytes())).await.unwrap();
    soon(stream.flush()).await.unwrap();
    let mut heard = vec![0; text.len()];
    soon(stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(String::from_utf8(heard).unwrap(), text);
}

/// The other side closes or resets without having said a word: no alert, nothing.
pub(crate) async fn assert_closed_in_silence<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut heard = Vec::new();
    let ended = soon(stream.read_to_end(&mut heard)).await;
    assert!(heard.is_empty(), "{heard:?}");
    assert!(ended.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::ConnectionReset, |_| true), "{ended:?}");
}

/// What an answer says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: ::http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn of(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let body = soon(body.collect()).await.unwrap().to_bytes();
        Self { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// Whether the backend saw this header line.
    pub(crate) fn saw(&self, line: &str) -> bool {
        self.body.lines().any(|seen| seen == line)
    }
}

pub(crate) type Body = Full<Bytes>;

/// An HTTP/1.1 connection on `stream`.
pub(crate) async fn http1<S>(stream: S) -> http1::SendRequest<Body>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender
}

/// An HTTP/2 connection on `stream`.
pub(crate) async fn http2<S>(stream: S) -> http2::SendRequest<Body>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn request(host: &str, path: &str) -> Request<Body> {
    Request::builder().uri(path).header("host", host).body(Body::default()).unwrap()
}

/// Asks on a connection of its own, in HTTP/1.1 without TLS.
pub(crate) async fn ask(address: SocketAddr, request: Request<Body>) -> Answer {
    let mut connection = http1(TcpStream::connect(address).await.unwrap()).await;
    Answer::of(soon(connection.send_request(request)).await.unwrap()).await
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
