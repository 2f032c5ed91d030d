//! Servers behind the gateway.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use ::http::header::{CONNECTION, UPGRADE};
use ::http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;

use crate::bed::ANY_PORT;
use crate::clients::provider;
use crate::identity::Identity;

/// Serves every connection with `serve`, for as long as the runtime lives.
async fn server<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Says its name and a line end, and then whatever it hears; when the client is done, says "bye" and is done too.
pub(crate) async fn echo(name: &'static str) -> SocketAddr {
    server(move |stream| async move { drop(talk(stream, name).await) }).await
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, name: &str) -> std::io::Result<()> {
    stream.write_all(format!("{name}\n").as_bytes()).await?;
    stream.flush().await?;
    let mut buffer = [0; 4096];
    loop {
        let len = stream.read(&mut buffer).await?;
        if len == 0 {
            stream.write_all(b"bye").await?;
            return stream.shutdown().await;
        }
        stream.write_all(&buffer[..len]).await?;
        stream.flush().await?;
    }
}

/// Hands every connection out as it comes.
pub(crate) async fn by_hand() -> (SocketAddr, UnboundedReceiver<TcpStream>) {
    let (connections, connections_rx) = unbounded_channel();
    let address = server(move |stream| {
        let _ = connections.send(stream);
        async {}
    });
    (address.await, connections_rx)
}

/// A scheduler as dask makes it: TLS with one self-signed certificate for both sides, which a client must show.
pub(crate) struct Scheduler {
    pub(crate) address: SocketAddr,
    /// The certificates that clients showed.
    pub(crate) shown: UnboundedReceiver<CertificateDer<'static>>,
}

impl Scheduler {
    pub(crate) async fn start(name: &'static str, identity: &Identity) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(demanding_config(identity)));
        let (shown, shown_rx) = unbounded_channel();
        let address = server(move |stream| schedule(acceptor.clone(), stream, name, shown.clone()));
        Self { address: address.await, shown: shown_rx }
    }
}

async fn schedule(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    name: &'static str,
    shown: UnboundedSender<CertificateDer<'static>>,
) {
    if let Ok(stream) = acceptor.accept(stream).await {
        let certificates = stream.get_ref().1.peer_certificates().unwrap();
        let _ = shown.send(certificates[0].clone());
        let _ = talk(stream, name).await;
    }
}

fn demanding_config(identity: &Identity) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain(), identity.key())
        .unwrap()
}

/// Answers with its name, the request line and headers as it saw them, and the body; upgrades to an echo on demand.
pub(crate) async fn http(name: &'static str) -> SocketAddr {
    server(move |stream| async move {
        let service = service_fn(move |request| async move { Ok::<_, Infallible>(reflect(name, request).await) });
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let _ = serving.with_upgrades().await;
    })
    .await
}

/// The same over HTTP/2 from the first byte, with a trailer after the body.
pub(crate) async fn h2c(name: &'static str) -> SocketAddr {
    server(move |stream| async move {
        let service = service_fn(move |request| async move {
            let response = reflect(name, request).await;
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            Ok::<_, Infallible>(response.map(|body| body.with_trailers(async { Some(Ok(trailers)) })))
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = serving.serve_connection(TokioIo::new(stream), service).await;
    })
    .await
}

async fn reflect(name: &str, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.headers().contains_key(UPGRADE) {
        let upgraded = hyper::upgrade::on(&mut request);
        let protocol = request.headers()[UPGRADE].clone();
        tokio::spawn(async move { talk(TokioIo::new(upgraded.await.unwrap()), "upgraded").await });
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(CONNECTION, "upgrade".parse().unwrap());
        response.headers_mut().insert(UPGRADE, protocol);
        return response;
    }
    let mut seen = format!("{name}\n{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        seen.extend([name.as_str(), ": ", value.to_str().unwrap(), "\n"]);
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut response = Response::new(Full::from([seen.as_bytes(), b"\n", &body].concat()));
    response.headers_mut().insert("x-backend", name.parse().unwrap());
    response
}
