use std::fmt;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

/// A certificate chain and its private key, proved to belong together and ready to serve.
#[derive(Clone)]
pub struct KeyPair {
    /// What rustls serves.
    pub certified_key: Arc<CertifiedKey>,
    /// When the leaf certificate stops being valid, in seconds since 1970 (UTC).
    pub not_after: i64,
    /// The DNS names of the leaf certificate, as written in it.
    pub dns_names: Vec<String>,
}

/// Why the contents of a TLS Secret cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyPair {
    /// `tls.crt` has no PEM certificate.
    #[error("tls.crt holds no PEM certificate")]
    NoCertificate,
    /// A certificate cannot be read.
    #[error("tls.crt cannot be read: {0}")]
    BadCertificate(String),
    /// `tls.key` has no PEM private key.
    #[error("tls.key holds no PEM private key")]
    NoKey,
    /// The key is of a kind that cannot be used.
    #[error("tls.key cannot be used: {0}")]
    BadKey(String),
    /// Both are good, but not a pair.
    #[error("tls.key is not the key of the certificate in tls.crt")]
    Mismatch,
}

impl PartialEq for KeyPair {
    /// Two pairs are equal when they show the same chain.
    fn eq(&self, other: &Self) -> bool {
        self.certified_key.cert == other.certified_key.cert
    }
}

impl fmt::Debug for KeyPair {
    /// Never prints the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("dns_names", &self.dns_names).field("not_after", &self.not_after).finish()
    }
}
