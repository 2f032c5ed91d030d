//! Keys and certificates of the demo's backends and clients.

use std::sync::Arc;

use anyhow::Context;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::any_certificate::AnyCertificate;

/// A certificate and its key, used as server, as client, or as both.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, DER.
    pub certificate: CertificateDer<'static>,
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The key, PEM.
    pub key_pem: String,
    key: Vec<u8>,
}

impl Identity {
    /// What a Dask cluster uses: one self-signed certificate that is authority, server and client at once, and whose
    /// names are not the server name that clients send.
    pub fn self_signed(common_name: &str, names: &[&str]) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        Ok(Self::new(&parameters(common_name, names)?.self_signed(&key)?, &key))
    }

    /// Signed by `authority`.
    pub(super) fn signed_by(authority: &Authority, common_name: &str, names: &[&str]) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        Ok(Self::new(&parameters(common_name, names)?.signed_by(&key, &authority.issuer)?, &key))
    }

    fn new(certificate: &Certificate, key: &KeyPair) -> Self {
        Self {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            key: key.serialize_der(),
        }
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }

    /// A client that shows this certificate and, like Dask's, checks no names: whoever uses it compares certificates.
    pub fn mutual_client(&self) -> anyhow::Result<ClientConfig> {
        let verifier = Arc::new(AnyCertificate::new());
        let builder = ClientConfig::builder().dangerous().with_custom_certificate_verifier(verifier);
        Ok(builder.with_client_auth_cert(vec![self.certificate.clone()], self.key())?)
    }

    /// A server that shows this certificate and demands a client certificate signed by `clients`.
    pub fn mutual_server(&self, clients: &CertificateDer<'static>) -> anyhow::Result<ServerConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(clients.clone())?;
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().context("failed to build a verifier")?;
        Ok(ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate.clone()], self.key())?)
    }
}

/// A certificate authority of the demo.
pub(super) struct Authority {
    pub(super) certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(common_name: &str) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = parameters(common_name, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }
}

fn parameters(common_name: &str, names: &[&str]) -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}
