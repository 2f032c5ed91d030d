//! HTTPS for metrics, and who may read them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take for its handshake.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(5);
/// How many handshakes may be under way at once.
const MOST_HANDSHAKES: usize = 64;
/// How long an answer about a token is believed, and how many are remembered.
const BELIEF: Duration = Duration::from_secs(30);
const MOST_BELIEFS: usize = 256;
/// How often the files of a certificate are read anew.
const RELOAD: Duration = Duration::from_mins(1);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Made at each start; nobody else has signed it.
    SelfSigned,
    /// PEM files, which are read anew from time to time.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

/// Why there is no certificate. Not the client's fault.
#[derive(Debug, thiserror::Error)]
pub enum NoCertificate {
    /// A file has none.
    #[error("failed to read {0}")]
    File(PathBuf, #[source] rustls::pki_types::pem::Error),
    /// The key does not fit, or is of no known kind.
    #[error("the certificate and its key cannot be used")]
    Unfit(#[from] rustls::Error),
    /// None could be made.
    #[error("failed to make a certificate")]
    Made(#[from] rcgen::Error),
}

/// A TCP listener whose connections have shaken hands.
pub(crate) struct TlsListener {
    tcp: TcpListener,
    source: CertificateSource,
    acceptor: TlsAcceptor,
    read: Instant,
    handshakes: FuturesUnordered<Handshake>,
}

type Handshake = std::pin::Pin<Box<dyn Future<Output = Option<(TlsStream<TcpStream>, SocketAddr)>> + Send>>;

impl TlsListener {
    pub(crate) fn new(tcp: TcpListener, source: CertificateSource) -> Result<Self, NoCertificate> {
        let acceptor = acceptor(&source)?;
        Ok(Self { tcp, source, acceptor, read: Instant::now(), handshakes: FuturesUnordered::new() })
    }

    /// Reads the files anew; with bad ones the old certificate stays.
    fn refresh(&mut self) {
        if self.read.elapsed() < RELOAD || self.source == CertificateSource::SelfSigned {
            return;
        }
        self.read = Instant::now();
        match acceptor(&self.source) {
            Ok(acceptor) => self.acceptor = acceptor,
            Err(error) => tracing::warn!("the metrics server keeps its certificate: {}", crate::text::chain(&error)),
        }
    }

    fn shake_hands(&mut self, stream: TcpStream, address: SocketAddr) {
        self.refresh();
        let handshake = self.acceptor.accept(stream);
        self.handshakes.push(Box::pin(async move {
            let stream = timeout(LONGEST_HANDSHAKE, handshake).await.ok()?.ok()?;
            Some((stream, address))
        }));
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(Some(connection)) = self.handshakes.next(), if !self.handshakes.is_empty() => return connection,
                accepted = axum::serve::Listener::accept(&mut self.tcp), if self.handshakes.len() < MOST_HANDSHAKES => {
                    self.shake_hands(accepted.0, accepted.1);
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

fn acceptor(source: &CertificateSource) -> Result<TlsAcceptor, NoCertificate> {
    let (chain, key) = match source {
        CertificateSource::SelfSigned => {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
            (vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()))
        }
        CertificateSource::Files { certificate, key } => read(certificate, key)?,
    };
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), NoCertificate> {
    let of = |path: &Path| {
        let path = path.to_owned();
        move |error| NoCertificate::File(path, error)
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(of(certificate))?;
    let chain = chain.collect::<Result<_, _>>().map_err(of(certificate))?;
    Ok((chain, PrivateKeyDer::from_pem_file(key).map_err(of(key))?))
}

/// Asks the API server who may read, and remembers its answers for a while.
pub(crate) struct Guard {
    client: Client,
    beliefs: Mutex<HashMap<String, (Instant, StatusCode)>>,
}

impl Guard {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client, beliefs: Mutex::default() })
    }

    /// `OK` for those who may `get` the path, by the API server's own rules.
    async fn verdict(&self, token: &str, path: &str) -> StatusCode {
        let (question, now) = (format!("{path} {token}"), Instant::now());
        if let Some(verdict) = self.remembered(&question, now) {
            return verdict;
        }
        let verdict = self.ask(token, path).await.unwrap_or_else(|error| {
            tracing::warn!("failed to ask who may read metrics: {}", crate::text::chain(&error));
            StatusCode::INTERNAL_SERVER_ERROR
        });
        if verdict != StatusCode::INTERNAL_SERVER_ERROR {
            let mut beliefs = self.beliefs.lock().unwrap_or_else(PoisonError::into_inner);
            beliefs.retain(|_, (since, _)| now.duration_since(*since) < BELIEF);
            if beliefs.len() < MOST_BELIEFS {
                beliefs.insert(question, (now, verdict));
            }
        }
        verdict
    }

    fn remembered(&self, question: &str, now: Instant) -> Option<StatusCode> {
        let beliefs = self.beliefs.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, verdict) = beliefs.get(question)?;
        (now.duration_since(*since) < BELIEF).then_some(*verdict)
    }

    async fn ask(&self, token: &str, path: &str) -> Result<StatusCode, kube::Error> {
        let parameters = PostParams::default();
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&parameters, &review).await?.status.unwrap_or_default();
        let (Some(true), Some(user)) = (status.authenticated, status.user) else { return Ok(StatusCode::UNAUTHORIZED) };
        let what = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            non_resource_attributes: Some(what),
            ..SubjectAccessReviewSpec::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = reviews.create(&parameters, &review).await?.status.unwrap_or_default();
        Ok(if status.allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }
}

/// Lets a request through only when its bearer may read the path.
pub(crate) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = header.and_then(|header| header.strip_prefix("Bearer ")).map(str::trim) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    match guard.verdict(token, request.uri().path()).await {
        StatusCode::OK => next.run(request).await,
        refusal => refusal.into_response(),
    }
}
