//! HTTPS clients, and the HTTP server behind the proxies.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::future::try_join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use portreeve_testkit::tls;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, NamedGroup};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How many clients shake hands at once.
const CONNECTING: usize = 32;
/// How many connections requests come on, and how many requests each has under way in HTTP/2.
const CONNECTIONS: usize = 32;
const STREAMS: usize = 4;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_secs(20);
/// What the backend answers.
const ANSWER: &[u8] = &[b'k'; 1024];

/// The version that requests are made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http {
    One,
    Two,
}

/// Clients of one address that ask for one name.
#[derive(Clone)]
pub(super) struct Clients {
    to: SocketAddr,
    name: &'static str,
    config: ClientConfig,
}

/// Answers every request with a kilobyte, and keeps connections open.
pub(super) fn backend() -> anyhow::Result<SocketAddr> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(4096)?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener));
    Ok(address)
}

async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let answer = service_fn(async |_| Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(ANSWER)))));
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

impl Clients {
    /// They offer the same key exchange to all, so that what one proxy can do beyond the others is not what is compared.
    pub(super) fn new(to: SocketAddr, name: &'static str) -> anyhow::Result<Self> {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider.kx_groups.retain(|group| group.name() == NamedGroup::X25519);
        Ok(Self { to, name, config: tls::any_certificate_with(Arc::new(provider))? })
    }

    /// Until the proxy answers as it will while it is measured.
    pub(super) async fn wait_until_served(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        let config = Arc::new(self.config.clone());
        while let Err(error) = self.connect_and_ask(&config).await {
            if start.elapsed() > START {
                return Err(error.context("the proxy does not serve"));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Connections with one request each, as fast as they can: how long each took.
    pub(super) async fn handshakes(&self, resumed: bool, during: Duration) -> anyhow::Result<Vec<Duration>> {
        let start = Instant::now();
        let worker = async || -> anyhow::Result<Vec<Duration>> {
            let mut config = self.config.clone();
            config.resumption = if resumed { Resumption::in_memory_sessions(8) } else { Resumption::disabled() };
            let config = Arc::new(config);
            let wanted = if resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
            if resumed {
                self.connect_and_ask(&config).await?;
            }
            let mut latencies = Vec::new();
            while start.elapsed() < during {
                let begun = Instant::now();
                let kind = self.connect_and_ask(&config).await?;
                ensure!(kind == wanted, "the handshake was {kind:?}, and should have been {wanted:?}");
                latencies.push(begun.elapsed());
            }
            Ok(latencies)
        };
        Ok(try_join_all((0..CONNECTING).map(|_| worker())).await?.concat())
    }

    /// Requests on connections that are open, as fast as they can: how long each took.
    pub(super) async fn requests(&self, http: Http, during: Duration) -> anyhow::Result<Vec<Duration>> {
        let start = Instant::now();
        let worker = async || match http {
            Http::One => self.requests_http1(start, during).await,
            Http::Two => self.requests_http2(start, during).await,
        };
        Ok(try_join_all((0..CONNECTIONS).map(|_| worker())).await?.concat())
    }

    async fn requests_http1(&self, start: Instant, during: Duration) -> anyhow::Result<Vec<Duration>> {
        let stream = self.connect(&self.with_alpn(b"http/1.1")).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut latencies = Vec::new();
        while start.elapsed() < during {
            let begun = Instant::now();
            let request = Request::get("/").header("host", self.name).body(Empty::<Bytes>::new())?;
            check(timeout(PATIENCE, sender.send_request(request)).await??).await?;
            latencies.push(begun.elapsed());
        }
        Ok(latencies)
    }

    async fn requests_http2(&self, start: Instant, during: Duration) -> anyhow::Result<Vec<Duration>> {
        let stream = self.connect(&self.with_alpn(b"h2")).await?;
        ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "the proxy does not speak HTTP/2");
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let stream = async || -> anyhow::Result<Vec<Duration>> {
            let (mut sender, mut latencies) = (sender.clone(), Vec::new());
            while start.elapsed() < during {
                let begun = Instant::now();
                let request = Request::get(format!("https://{}/", self.name)).body(Empty::<Bytes>::new())?;
                check(timeout(PATIENCE, sender.send_request(request)).await??).await?;
                latencies.push(begun.elapsed());
            }
            Ok(latencies)
        };
        Ok(try_join_all((0..STREAMS).map(|_| stream())).await?.concat())
    }

    /// One connection with one request, and whether its handshake was full.
    async fn connect_and_ask(&self, config: &Arc<ClientConfig>) -> anyhow::Result<HandshakeKind> {
        let stream = self.connect(config).await?;
        let kind = stream.get_ref().1.handshake_kind().context("no handshake")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driving = tokio::spawn(connection);
        let request =
            Request::get("/").header("host", self.name).header("connection", "close").body(Empty::<Bytes>::new())?;
        check(timeout(PATIENCE, sender.send_request(request)).await??).await?;
        drop(sender);
        driving.abort();
        Ok(kind)
    }

    async fn connect(&self, config: &Arc<ClientConfig>) -> anyhow::Result<TlsStream<TcpStream>> {
        let connecting = async {
            let stream = TcpStream::connect(self.to).await?;
            stream.set_nodelay(true)?;
            TlsConnector::from(config.clone())
                .connect(ServerName::try_from(self.name)?, stream)
                .await
                .map_err(Into::into)
        };
        timeout(PATIENCE, connecting).await.context("no handshake in time")?
    }

    fn with_alpn(&self, protocol: &[u8]) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    }
}

async fn check(answer: Response<hyper::body::Incoming>) -> anyhow::Result<()> {
    if answer.status() != StatusCode::OK {
        bail!("the answer was {}", answer.status());
    }
    let body = timeout(PATIENCE, answer.into_body().collect()).await??.to_bytes();
    ensure!(body == ANSWER, "the answer was another");
    Ok(())
}
