//! Certificates and TLS clients for tests.

use std::sync::Arc;

use anyhow::Context;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A self-signed certificate with its key, as a dask scheduler has: server, client and authority in one.
#[derive(Debug)]
pub struct Identity {
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

impl Identity {
    /// Makes one for these names.
    pub fn new(names: &[&str]) -> anyhow::Result<Self> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = rcgen::KeyPair::generate()?;
        Ok(Self { certificate: rcgen::CertificateParams::new(names)?.self_signed(&key)?, key })
    }

    /// Makes what dask-gateway makes for a cluster: an RSA key, and names that are not the server name by which clients ask.
    pub fn of_dask_cluster(cluster: &str) -> anyhow::Result<Self> {
        let names = [cluster, "dask-internal", "skein-internal"].map(str::to_owned);
        let key = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048)?;
        let mut parameters = rcgen::CertificateParams::new(names)?;
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "dask-internal");
        Ok(Self { certificate: parameters.self_signed(&key)?, key })
    }

    /// The certificate as the other side of a connection sees it.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.certificate.der()
    }

    /// The certificate as PEM.
    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    /// The key as PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// A server that shows this certificate; with `require_client`, to clients only that show the same one.
    pub fn server(&self, require_client: bool) -> anyhow::Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?;
        let builder = if require_client {
            let provider = Arc::new(aws_lc_rs::default_provider());
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()?), provider).build()?,
            )
        } else {
            builder.with_no_client_auth()
        };
        Ok(builder.with_single_cert(vec![self.certificate().clone()], self.key())?)
    }

    /// A client that trusts a server with this certificate only, and shows it itself when asked.
    pub fn client(&self) -> anyhow::Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?;
        Ok(builder
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(vec![self.certificate().clone()], self.key())?)
    }

    fn roots(&self) -> anyhow::Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate().clone())?;
        Ok(roots)
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}

/// A client that takes any certificate, for tests that compare it themselves.
pub fn any_certificate() -> anyhow::Result<ClientConfig> {
    any_certificate_with(Arc::new(aws_lc_rs::default_provider()))
}

/// The same with other cryptography than the usual.
pub fn any_certificate_with(provider: Arc<CryptoProvider>) -> anyhow::Result<ClientConfig> {
    let verifier = Arc::new(AnyCertificate(provider.clone()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// The bytes with which a client begins that asks for `name`: one record with a ClientHello.
pub fn client_hello(name: &'static str) -> anyhow::Result<Vec<u8>> {
    let mut client = rustls::ClientConnection::new(Arc::new(any_certificate()?), ServerName::try_from(name)?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

/// Asks only that the server has the key of the certificate that it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Shakes hands over a connection, asking for `name`.
pub async fn handshake(
    client: ClientConfig,
    name: &str,
    connection: TcpStream,
) -> anyhow::Result<TlsStream<TcpStream>> {
    let asked = ServerName::try_from(name.to_owned())?;
    let connected = TlsConnector::from(Arc::new(client)).connect(asked, connection).await;
    connected.with_context(|| format!("no TLS with {name}"))
}
