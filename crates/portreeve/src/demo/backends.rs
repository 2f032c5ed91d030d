//! The sample backends: small servers in this process, each on a loopback port of its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::identity::{Authority, Identity};
use crate::world::BackendEndpoint;

/// The two Dask clusters of `examples/quickstart/dask.yaml`.
pub const CLUSTERS: [&str; 2] = ["5f1c0a7be2d94c0b8d3e6a91f0c4b7d2", "c83b2e6d17f54a0a9be1d5f7206a4c9e"];

/// One running backend, and the Service that it stands for.
pub struct Backend {
    namespace: &'static str,
    service: String,
    address: SocketAddr,
}

/// Everything that runs, and what its clients need to be let in.
pub struct Backends {
    /// All of them.
    pub all: Vec<Backend>,
    /// The Dask schedulers by cluster: server and client at once.
    pub schedulers: Vec<Identity>,
    /// The database: server and client at once.
    pub query: Identity,
    /// The server certificate of the tenant's API server.
    pub api_server: Identity,
    /// The client certificate that it lets in.
    pub tenant_admin: Identity,
}

impl Backend {
    /// What `--backend` says for it.
    pub fn endpoint(&self) -> BackendEndpoint {
        let (namespace, service) = (self.namespace.to_owned(), self.service.clone());
        BackendEndpoint { namespace, service, port: None, address: self.address }
    }
}

impl Backends {
    /// Binds and serves every backend that the example's Services name.
    pub async fn start() -> anyhow::Result<Self> {
        let mut all = Vec::new();
        for (namespace, service) in
            [("hub", "hub"), ("dask", "api-dask-gateway"), ("lake", "lake-ui"), ("kubespaces-tenant-blue", "web")]
        {
            all.push(Backend { namespace, service: service.into(), address: serve_http(service).await? });
        }

        let mut schedulers = Vec::new();
        for cluster in CLUSTERS {
            let identity = Identity::self_signed("dask-internal", &[cluster, "dask-internal"])?;
            let service = format!("dask-{cluster}");
            let address = serve_greeting(&service, identity.mutual_server(&identity.certificate)?).await?;
            all.push(Backend { namespace: "dask", service, address });
            schedulers.push(identity);
        }

        let query = Identity::self_signed("lake", &["query.lake.example.test"])?;
        let address = serve_greeting("lake-query", query.mutual_server(&query.certificate)?).await?;
        all.push(Backend { namespace: "lake", service: "lake-query".into(), address });

        let authority = Authority::new("blue's cluster")?;
        let api_server = Identity::signed_by(&authority, "kube-apiserver", &["blue.api.example.test"])?;
        let tenant_admin = Identity::signed_by(&authority, "blue-admin", &[])?;
        let address = serve_https("api-server", api_server.mutual_server(&authority.certificate)?).await?;
        all.push(Backend { namespace: "kubespaces-tenant-blue", service: "blue".into(), address });

        Ok(Self { all, schedulers, query, api_server, tenant_admin })
    }
}

/// An HTTP app that says who it is and what reached it.
async fn serve_http(name: &'static str) -> anyhow::Result<SocketAddr> {
    listen(move |stream| async move { answer_http(name, stream, None).await }).await
}

/// An HTTPS server that says whose client certificate it saw.
async fn serve_https(name: &'static str, config: ServerConfig) -> anyhow::Result<SocketAddr> {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listen(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                let client = common_name(stream.get_ref().1.peer_certificates());
                answer_http(name, stream, client).await;
            }
        }
    })
    .await
}

/// A TLS server of another protocol than HTTP: it greets each client by its certificate and hangs up.
async fn serve_greeting(name: &str, config: ServerConfig) -> anyhow::Result<SocketAddr> {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let name: Arc<str> = name.into();
    listen(move |stream| {
        let (acceptor, name) = (acceptor.clone(), name.clone());
        async move {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let client = common_name(stream.get_ref().1.peer_certificates()).unwrap_or_default();
                // A client that has gone already needs no greeting.
                let _ = stream.write_all(format!("{name} greets {client}").as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }
    })
    .await
}

/// Accepts on a free loopback port for as long as the process lives.
async fn listen<F, S>(serve: S) -> anyhow::Result<SocketAddr>
where
    S: Fn(TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    Ok(address)
}

async fn answer_http<S>(name: &'static str, stream: S, client: Option<String>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let client = client.clone();
        async move {
            let greeting = client.map(|client| format!(" greets {client}")).unwrap_or_default();
            let body = format!("{name}{greeting}: {}\n", request.uri().path());
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
        }
    });
    // A client that breaks off is no fault of the demo.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The common name of the certificate that a client showed.
fn common_name(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    let (_, certificate) = x509_parser::parse_x509_certificate(chain?.first()?).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}
