//! The local certificate authority: in standalone it stands for any issuer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use serde::{Deserialize, Serialize};
use x509_parser::pem::parse_x509_pem;

use crate::state::{Secrecy, StateDirectory, StateError};

/// The CA's certificate, for clients to trust.
pub const CA_CERTIFICATE: &str = "ca.crt";
/// The CA's certificate and private key.
const CA_FILE: &str = "authority.json";
/// The certificates that it has issued, with their keys.
const ISSUED_FILE: &str = "certificates.json";

/// Ten years: users install it by hand.
const CA_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// 90 days, as public CAs do.
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(24 * 90);
/// Certificates are valid from a little before they are made, for clients whose clock is behind.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(1);
/// How long a subject's common name may be (RFC 5280, `ub-common-name`).
const MAX_COMMON_NAME: usize = 64;

/// A CA and what it has issued.
#[derive(Debug)]
pub struct Authority {
    ca: Ca,
    issued: BTreeMap<String, KeyMaterial>,
    /// Whether something was issued since the last save.
    unsaved: bool,
}

/// A certificate with its key, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyMaterial {
    /// The certificate.
    pub certificate: String,
    /// Its private key, in PKCS#8.
    pub key: String,
    /// The names that it is for, in order.
    pub dns_names: BTreeSet<String>,
    /// From when it is valid.
    pub not_before: Timestamp,
    /// Until when it is valid.
    pub not_after: Timestamp,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The state directory does not do its part.
    #[error(transparent)]
    State(#[from] StateError),
    /// What the state directory holds is no CA.
    #[error("{CA_FILE} in the state directory holds no usable CA; move it away to get a new one")]
    BadCa(#[source] rcgen::Error),
    /// A certificate cannot be made.
    #[error("failed to make a certificate")]
    Generate(#[from] rcgen::Error),
    /// It would be for nobody.
    #[error("a certificate needs at least one DNS name")]
    NoNames,
}

#[derive(Serialize, Deserialize)]
struct Ca {
    certificate: String,
    key: String,
}

impl Authority {
    /// A CA that lives as long as the value.
    pub fn ephemeral(now: Timestamp) -> Result<Self, AuthorityError> {
        Ok(Self { ca: Ca::generate(now)?, issued: BTreeMap::new(), unsaved: false })
    }

    /// The CA of a state directory, made if there is none or if it is about to expire.
    pub fn open(state: &StateDirectory, now: Timestamp) -> Result<Self, AuthorityError> {
        let authority = match state.read::<Ca>(CA_FILE)? {
            Some(ca) if ca.is_good_for(LEAF_LIFE, now)? => {
                Self { ca, issued: state.read(ISSUED_FILE)?.unwrap_or_default(), unsaved: false }
            }
            // What the old CA has issued is worth nothing under the new one.
            _ => {
                let authority = Self { unsaved: true, ..Self::ephemeral(now)? };
                state.write(CA_FILE, Secrecy::Private, &authority.ca)?;
                authority
            }
        };
        let certificate = authority.ca.certificate.as_bytes();
        // A disk that has become full is no reason not to start.
        if !std::fs::read(state.path().join(CA_CERTIFICATE)).is_ok_and(|shown| shown == certificate) {
            state.write_bytes(CA_CERTIFICATE, Secrecy::Public, certificate)?;
        }
        Ok(authority)
    }

    /// Writes what was issued since the last time, if anything was.
    pub fn save(&mut self, state: &StateDirectory) -> Result<(), StateError> {
        if self.unsaved {
            state.write(ISSUED_FILE, Secrecy::Private, &self.issued)?;
            self.unsaved = false;
        }
        Ok(())
    }

    /// The CA's own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.ca.certificate
    }

    /// A certificate for these names, kept under `id`: the one from last time until two thirds of its life are over.
    pub fn issue(
        &mut self,
        id: &str,
        dns_names: &BTreeSet<String>,
        now: Timestamp,
    ) -> Result<KeyMaterial, AuthorityError> {
        let kept = self.issued.get(id);
        if let Some(kept) = kept.filter(|kept| kept.dns_names == *dns_names && now < kept.renew_at()) {
            return Ok(kept.clone());
        }
        let fresh = self.ca.issue(dns_names, now)?;
        self.issued.insert(id.to_owned(), fresh.clone());
        self.unsaved = true;
        Ok(fresh)
    }

    /// Forgets what is kept under every other id, so that a state directory does not grow for ever.
    pub fn keep_only(&mut self, ids: &BTreeSet<String>) {
        let before = self.issued.len();
        self.issued.retain(|id, _| ids.contains(id));
        self.unsaved |= self.issued.len() != before;
    }

    /// When the next certificate is due for renewal.
    pub fn renew_at(&self) -> Option<Timestamp> {
        self.issued.values().map(KeyMaterial::renew_at).min()
    }
}

impl KeyMaterial {
    /// When two thirds of its life are over.
    pub fn renew_at(&self) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before);
        self.not_before.saturating_add(life * 2 / 3).unwrap_or(self.not_after)
    }
}

impl std::fmt::Debug for KeyMaterial {
    /// Never prints the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyMaterial").field("dns_names", &self.dns_names).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ca {
    /// Never prints the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").finish_non_exhaustive()
    }
}

impl Ca {
    fn generate(now: Timestamp) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(now - CLOCK_SKEW);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(now + CA_LIFE);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Portreeve local CA");
        let key = KeyPair::generate()?;
        Ok(Self { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// Whether what it issues now for `life` will not outlive it.
    fn is_good_for(&self, life: SignedDuration, now: Timestamp) -> Result<bool, AuthorityError> {
        self.issuer().map_err(AuthorityError::BadCa)?;
        let bad = || AuthorityError::BadCa(rcgen::Error::CouldNotParseCertificate);
        let (_, pem) = parse_x509_pem(self.certificate.as_bytes()).map_err(|_| bad())?;
        let certificate = pem.parse_x509().map_err(|_| bad())?;
        Ok(certificate.validity().not_after.timestamp() > (now + life).as_second())
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, rcgen::Error> {
        Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)
    }

    fn issue(&self, dns_names: &BTreeSet<String>, now: Timestamp) -> Result<KeyMaterial, AuthorityError> {
        let first = dns_names.first().ok_or(AuthorityError::NoNames)?;
        let (not_before, not_after) = (now - CLOCK_SKEW, now + LEAF_LIFE);
        let mut params = CertificateParams::new(dns_names.iter().cloned().collect::<Vec<_>>())?;
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(not_before);
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(not_after);
        params.distinguished_name = rcgen::DistinguishedName::new();
        if first.len() <= MAX_COMMON_NAME {
            params.distinguished_name.push(DnType::CommonName, first.as_str());
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer()?)?.pem();
        Ok(KeyMaterial { certificate, key: key.serialize_pem(), dns_names: dns_names.clone(), not_before, not_after })
    }
}

/// To the second, as certificates have it.
fn since_1970(time: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use portreeve_table::KeyPair as Served;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn now() -> Timestamp {
        "2026-08-01T00:00:00Z".parse().unwrap()
    }

    /// Whether a client that trusts the CA accepts it.
    fn accepts(authority: &Authority, material: &KeyMaterial, name: &str, at: Timestamp) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let leaf = CertificateDer::from_pem_slice(material.certificate.as_bytes()).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at.as_second().try_into().unwrap()));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&leaf, &[], &name, &[], at).is_ok()
    }

    #[test]
    fn clients_that_trust_the_ca_accept_what_it_issues() {
        let mut authority = Authority::ephemeral(now()).unwrap();
        let long = format!("{}.example.com", "a".repeat(60));
        let material =
            authority.issue("ns/tls", &names(&["hub.example.com", "*.apps.example.com", &long]), now()).unwrap();
        for name in ["hub.example.com", "x.apps.example.com", &long] {
            assert!(accepts(&authority, &material, name, now()));
        }
        assert!(!accepts(&authority, &material, "other.example.com", now()));
        assert!(!accepts(&authority, &material, "hub.example.com", now() + DAY * 91));
        let served = Served::parse(material.certificate.as_bytes(), material.key.as_bytes()).unwrap();
        assert_eq!(served.not_after, material.not_after.as_second());
        authority.issue("long", &names(&[&long]), now()).unwrap();
        assert!(matches!(authority.issue("none", &names(&[]), now()), Err(AuthorityError::NoNames)));
    }

    #[test]
    fn it_is_issued_again_only_when_the_names_change_or_two_thirds_are_over() {
        let mut authority = Authority::ephemeral(now()).unwrap();
        let first = authority.issue("a", &names(&["x.test"]), now()).unwrap();
        assert_eq!(authority.renew_at(), Some(first.renew_at()));
        assert_eq!(authority.issue("a", &names(&["x.test"]), now() + DAY * 59).unwrap(), first);
        let renewed = authority.issue("a", &names(&["x.test"]), now() + DAY * 60).unwrap();
        assert_ne!(renewed, first);
        assert_ne!(authority.issue("a", &names(&["x.test", "y.test"]), now() + DAY * 60).unwrap(), renewed);
    }

    #[test]
    fn a_restart_keeps_the_ca_and_what_it_issued() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(home.path()).unwrap();
        let mut first = Authority::open(&state, now()).unwrap();
        let material = first.issue("a", &names(&["x.test"]), now()).unwrap();
        first.issue("gone", &names(&["y.test"]), now()).unwrap();
        first.keep_only(&names(&["a"]));
        first.save(&state).unwrap();
        let mut second = Authority::open(&state, now() + DAY).unwrap();
        assert_eq!(second.certificate(), first.certificate());
        assert_eq!(second.issued.len(), 1);
        assert_eq!(second.issue("a", &names(&["x.test"]), now() + DAY).unwrap(), material);
        assert_eq!(fs::read_to_string(home.path().join(CA_CERTIFICATE)).unwrap(), first.certificate());
        for file in [CA_FILE, ISSUED_FILE] {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(home.path().join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
        }
    }

    #[test]
    fn a_ca_that_is_about_to_expire_is_replaced_with_all_that_it_issued() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(home.path()).unwrap();
        let mut first = Authority::open(&state, now()).unwrap();
        let material = first.issue("a", &names(&["x.test"]), now()).unwrap();
        first.save(&state).unwrap();
        let late = now() + DAY * 3600;
        let mut second = Authority::open(&state, late).unwrap();
        assert_ne!(second.certificate(), first.certificate());
        let fresh = second.issue("a", &names(&["x.test"]), late).unwrap();
        assert_ne!(fresh, material);
        assert!(accepts(&second, &fresh, "x.test", late));
    }

    #[test]
    fn a_damaged_ca_is_not_replaced_in_silence() {
        let home = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(home.path()).unwrap();
        state.write(CA_FILE, Secrecy::Private, &Ca { certificate: "x".into(), key: "y".into() }).unwrap();
        let error = Authority::open(&state, now()).unwrap_err();
        assert!(error.to_string().contains("move it away"), "{error}");
    }
}
