//! TLS that ends here.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use portreeve_table::{HostMap, KeyPair, ListenerId, Port, Table, TlsListener, TlsService};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::SingleCertAndKey;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::observe::Outcome;
use crate::preface::Prefixed;

pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

const ALPN_HTTP2: &[u8] = b"h2";
const ALPN_HTTP1: &[u8] = b"http/1.1";

/// What is needed to speak TLS, for each listener that ends it.
///
/// Every listener has a configuration and ticket keys of its own, so that a session of one can never be resumed on
/// another, and keeps them from table to table while its certificate and protocol stay the same, so that its own
/// sessions can.
#[derive(Default)]
pub(crate) struct TlsConfigs {
    by_listener: HashMap<ListenerId, TlsConfig>,
}

#[derive(Clone)]
struct TlsConfig {
    certificate: Arc<KeyPair>,
    http: bool,
    config: Arc<ServerConfig>,
}

impl TlsConfigs {
    /// The configurations of a new table.
    pub(crate) fn renew(&self, table: &Table) -> Self {
        let listeners = table.ports.values().filter_map(|port| match port {
            Port::Tls(listeners) => Some(listeners),
            Port::Http(_) => None,
        });
        let by_listener = listeners.flat_map(HostMap::iter).filter_map(|(_, listener)| self.renew_one(listener));
        Self { by_listener: by_listener.collect() }
    }

    fn renew_one(&self, listener: &TlsListener) -> Option<(ListenerId, TlsConfig)> {
        let (certificate, http) = match &listener.service {
            TlsService::Passthrough(_) => return None,
            TlsService::TerminateTcp { certificate, .. } => (certificate, false),
            TlsService::TerminateHttp { certificate, .. } => (certificate, true),
        };
        let known = self.by_listener.get(&listener.id);
        let config = match known.filter(|known| known.http == http && known.certificate == *certificate) {
            Some(known) => known.clone(),
            None => TlsConfig::build(certificate, http)
                .inspect_err(|error| tracing::error!(listener = %listener.id, %error, "failed to set up TLS"))
                .ok()?,
        };
        Some((listener.id.clone(), config))
    }

    /// The configuration of a listener that ends TLS.
    pub(crate) fn find(&self, listener: &ListenerId) -> Result<Arc<ServerConfig>, Outcome> {
        self.by_listener.get(listener).map(|known| known.config.clone()).ok_or(Outcome::HandshakeFailed)
    }
}

impl TlsConfig {
    fn build(certificate: &Arc<KeyPair>, http: bool) -> Result<Self, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.certified_key.clone())));
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        if http {
            config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
        }
        Ok(Self { certificate: certificate.clone(), http, config: Arc::new(config) })
    }
}

/// Completes the handshake whose ClientHello is at the start of `stream`.
pub(crate) async fn accept(
    config: Arc<ServerConfig>,
    stream: Prefixed<TcpStream>,
    limit: Duration,
) -> Result<TlsStream<Prefixed<TcpStream>>, Outcome> {
    match timeout(limit, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            Err(Outcome::HandshakeFailed)
        }
        Err(_) => Err(Outcome::HandshakeFailed),
    }
}

/// Whether both sides agreed on HTTP/2.
pub(crate) fn chose_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP2)
}
