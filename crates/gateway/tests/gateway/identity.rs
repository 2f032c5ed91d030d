//! Certificates, made on the spot.

use std::sync::Arc;

use portreeve_table::KeyPair;
use rcgen::{CertificateParams, DnType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// A self-signed certificate that can be served, shown by a client, and trusted.
pub(crate) struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    key: Vec<u8>,
    pub(crate) key_pair: Arc<KeyPair>,
}

impl Identity {
    pub(crate) fn new(names: &[&str]) -> Arc<Self> {
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.distinguished_name.push(DnType::CommonName, names[0]);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key_pair = KeyPair::parse(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        Arc::new(Self {
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
            key_pair: Arc::new(key_pair),
        })
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }
}
