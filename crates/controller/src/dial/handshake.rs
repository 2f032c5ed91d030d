//! Which certificate answers under a name, without asking who signed it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portreeve_plan::DialResult;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// What answered. Texts have no times or counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A server that has the key of this certificate.
    Certificate(CertificateDer<'static>),
    /// Somebody takes the connection and shows no certificate.
    Silence(String),
    /// Nobody takes the connection.
    NoConnection(String),
}

/// Connects to an address (`HOST:PORT`).
///
/// # Errors
///
/// Says why not, in words without times or counts.
pub(crate) async fn connect(address: &str) -> Result<TcpStream, String> {
    match timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("nothing answers".to_owned()),
    }
}

/// Shakes hands with an address (`HOST:PORT`), asking for `name` as SNI, and says what answered. A server that goes on to
/// refuse a client without a certificate has shown its own by then.
pub(crate) async fn certificate_at(address: &str, name: &ServerName<'static>) -> Answer {
    let stream = match connect(address).await {
        Ok(stream) => stream,
        Err(why) => return Answer::NoConnection(why),
    };
    let capture = Arc::new(Capture::new());
    let config = match capture.config() {
        Ok(config) => config,
        Err(error) => return Answer::Silence(error.to_string()),
    };
    let shaken = timeout(HANDSHAKE, TlsConnector::from(Arc::new(config)).connect(name.clone(), stream)).await;
    match (capture.proved(), shaken) {
        (Some(certificate), _) => Answer::Certificate(certificate),
        (None, Ok(Ok(_))) => Answer::Silence("no certificate is shown".to_owned()),
        (None, Ok(Err(error))) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Answer::Silence("the connection is closed without a handshake".to_owned())
        }
        (None, Ok(Err(error))) => Answer::Silence(error.to_string()),
        (None, Err(_)) => Answer::Silence("no handshake comes".to_owned()),
    }
}

/// Shakes hands with an address (`HOST:PORT`) as a client that trusts only `roots` and asks for `name`.
///
/// # Errors
///
/// Says why such a client does not get through.
pub async fn trusted_at(address: &str, name: &ServerName<'static>, roots: RootCertStore) -> Result<(), DialResult> {
    let stream = connect(address).await.map_err(DialResult::ConnectFailed)?;
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| DialResult::ConnectFailed(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()));
    let Ok(shaken) = timeout(HANDSHAKE, connector.connect(name.clone(), stream)).await else {
        return Err(DialResult::NoRoute("no handshake comes".to_owned()));
    };
    let Err(error) = shaken else { return Ok(()) };
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    Err(match cause {
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })) => {
            DialResult::SanMissing(names(presented))
        }
        Some(rustls::Error::InvalidCertificate(why)) => DialResult::Terminated(why.to_string()),
        _ => DialResult::NoRoute(error.to_string()),
    })
}

/// Whether a certificate is for a name.
///
/// # Errors
///
/// Says which names it is for.
pub(crate) fn covers(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), String> {
    let checked = ParsedCertificate::try_from(certificate).and_then(|parsed| verify_server_name(&parsed, name));
    checked.map_err(|error| match error {
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            names(&presented)
        }
        other => format!("no names that can be read ({other})"),
    })
}

fn names(presented: &[String]) -> String {
    let names: Vec<_> = presented.iter().map(|name| plain(name)).collect();
    if names.is_empty() { "no names".to_owned() } else { names.join(", ") }
}

/// The one that the process has installed.
fn provider() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default().cloned();
    installed.unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// `DnsName("a")` as rustls says it, as `a`.
fn plain(name: &str) -> &str {
    name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name).trim_matches('"')
}

/// Keeps the certificate that a server shows and has the key of, whoever signed it.
#[derive(Debug)]
struct Capture {
    provider: Arc<CryptoProvider>,
    shown: OnceLock<CertificateDer<'static>>,
    is_signed: OnceLock<()>,
}

impl Capture {
    fn new() -> Self {
        Self { provider: provider(), shown: OnceLock::new(), is_signed: OnceLock::new() }
    }

    fn config(self: &Arc<Self>) -> Result<ClientConfig, rustls::Error> {
        let builder =
            ClientConfig::builder_with_provider(self.provider.clone()).with_safe_default_protocol_versions()?;
        Ok(builder.dangerous().with_custom_certificate_verifier(self.clone()).with_no_client_auth())
    }

    fn proved(&self) -> Option<CertificateDer<'static>> {
        self.is_signed.get().and_then(|()| self.shown.get().cloned())
    }

    fn signed(
        &self,
        valid: Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if valid.is_ok() {
            self.is_signed.get_or_init(|| ());
        }
        valid
    }
}

impl ServerCertVerifier for Capture {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.shown.get_or_init(|| end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.signed(verify_tls12_signature(message, certificate, signature, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.signed(verify_tls13_signature(message, certificate, signature, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
