use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

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

impl KeyPair {
    /// Reads the `tls.crt` (leaf first) and `tls.key` of a Secret of type `kubernetes.io/tls`.
    ///
    /// An expired certificate is still a pair: whether to serve it is for the caller, who knows the time.
    pub fn parse(cert_pem: &[u8], key_pem: &[u8]) -> Result<Self, InvalidKeyPair> {
        let chain = read_chain(cert_pem)?;
        let leaf = read_leaf(&chain)?;
        let certified_key = CertifiedKey::new(chain, read_key(key_pem)?);
        match certified_key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(Error::InconsistentKeys(_)) => return Err(InvalidKeyPair::Mismatch),
            Err(error) => return Err(InvalidKeyPair::BadCertificate(error.to_string())),
        }
        Ok(Self { certified_key: Arc::new(certified_key), not_after: leaf.not_after, dns_names: leaf.dns_names })
    }
}

fn read_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, InvalidKeyPair> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| InvalidKeyPair::BadCertificate(error.to_string()))
}

fn read_key(pem: &[u8]) -> Result<Arc<dyn SigningKey>, InvalidKeyPair> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => InvalidKeyPair::NoKey,
        error => InvalidKeyPair::BadKey(error.to_string()),
    })?;
    aws_lc_rs::sign::any_supported_type(&key).map_err(|error| InvalidKeyPair::BadKey(error.to_string()))
}

/// What is read from the first certificate of a chain.
struct Leaf {
    not_after: i64,
    dns_names: Vec<String>,
}

fn read_leaf(chain: &[CertificateDer<'_>]) -> Result<Leaf, InvalidKeyPair> {
    let bad = |error: &dyn fmt::Display| InvalidKeyPair::BadCertificate(error.to_string());
    let leaf = chain.first().ok_or(InvalidKeyPair::NoCertificate)?;
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|error| bad(&error))?;
    let names = certificate.subject_alternative_name().map_err(|error| bad(&error))?;
    let dns_names = names.into_iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Ok(Leaf { not_after: certificate.validity().not_after.timestamp(), dns_names: dns_names.collect() })
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
        let Self { dns_names, not_after, .. } = self;
        f.debug_struct("KeyPair").field("dns_names", dns_names).field("not_after", not_after).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertifiedKey as Generated, KeyPair as GeneratedKey};

    use super::*;

    fn generated(names: &[&str]) -> Generated<GeneratedKey> {
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        let signing_key = GeneratedKey::generate().unwrap();
        Generated { cert: params.self_signed(&signing_key).unwrap(), signing_key }
    }

    fn parse(cert: &str, key: &str) -> Result<KeyPair, InvalidKeyPair> {
        KeyPair::parse(cert.as_bytes(), key.as_bytes())
    }

    #[test]
    fn a_pair_knows_its_names_and_its_end() {
        let pair = generated(&["a.example.com", "*.b.example.com", "192.0.2.1"]);
        let parsed = parse(&pair.cert.pem(), &pair.signing_key.serialize_pem()).unwrap();
        assert_eq!(parsed.dns_names, ["a.example.com", "*.b.example.com"]);
        assert_eq!(parsed.not_after, 1_927_843_200);
        assert_eq!(parsed.certified_key.cert, [pair.cert.der().clone()]);
    }

    #[test]
    fn a_chain_is_served_whole() {
        let (leaf, issuer) = (generated(&["a.example.com"]), generated(&["issuer.example.com"]));
        let chain = leaf.cert.pem() + &issuer.cert.pem();
        let parsed = parse(&chain, &leaf.signing_key.serialize_pem()).unwrap();
        assert_eq!(parsed.certified_key.cert.len(), 2);
        assert_eq!(parsed.dns_names, ["a.example.com"]);
    }

    #[test]
    fn every_fault_has_its_own_reason() {
        let (one, other) = (generated(&["a.example.com"]), generated(&["a.example.com"]));
        let (cert, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let broken_cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let broken_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let truncated = &cert[..cert.len() / 2];
        assert_eq!(parse("", &key), Err(InvalidKeyPair::NoCertificate));
        assert_eq!(parse(&key, &key), Err(InvalidKeyPair::NoCertificate));
        assert!(matches!(parse(broken_cert, &key), Err(InvalidKeyPair::BadCertificate(_))));
        assert!(matches!(parse(truncated, &key), Err(InvalidKeyPair::BadCertificate(_))));
        assert_eq!(parse(&cert, &cert), Err(InvalidKeyPair::NoKey));
        assert!(matches!(parse(&cert, broken_key), Err(InvalidKeyPair::BadKey(_))));
        assert_eq!(parse(&cert, &other.signing_key.serialize_pem()), Err(InvalidKeyPair::Mismatch));
    }

    #[test]
    fn the_key_is_never_printed() {
        let pair = generated(&["a.example.com"]);
        let parsed = parse(&pair.cert.pem(), &pair.signing_key.serialize_pem()).unwrap();
        assert_eq!(format!("{parsed:?}"), r#"KeyPair { dns_names: ["a.example.com"], not_after: 1927843200, .. }"#);
    }
}
