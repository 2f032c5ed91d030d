//! The keys and certificates of a bed's API server.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};

/// Files in one folder, and the authority's certificate as text.
#[derive(Debug)]
pub(crate) struct Pki {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    /// The authority that signed the API server's certificate, as PEM.
    pub(crate) authority: String,
}

impl Pki {
    /// Makes an authority, the API server's certificate for these names and addresses, the administrator's certificate, and
    /// the key that signs the tokens of service accounts.
    pub(crate) fn create(folder: &Path, names: &[&str], addresses: &[Ipv4Addr]) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "test bed");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key)?.pem();

        let issuer = Issuer::new(authority, authority_key);
        let admin_key = KeyPair::generate()?;
        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::CommonName, "admin");
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let admin = admin.signed_by(&admin_key, &issuer)?;

        let pki = Self { folder: folder.to_owned(), issuer, authority: authority_pem };
        fs::write(pki.path("ca.crt"), &pki.authority)?;
        fs::write(pki.path("server.key"), KeyPair::generate()?.serialize_pem())?;
        pki.certify(names, addresses)?;
        fs::write(pki.path("admin.crt"), admin.pem())?;
        fs::write(pki.path("admin.key"), admin_key.serialize_pem())?;
        let service_accounts = KeyPair::generate()?;
        fs::write(pki.path("service-account.key"), service_accounts.serialize_pem())?;
        fs::write(pki.path("service-account.pub"), service_accounts.public_key_pem())?;
        Ok(pki)
    }

    /// Gives the API server's key a certificate for these names and addresses, in the place of the one that it had; whoever
    /// reads the file meanwhile sees one of the two.
    pub(crate) fn certify(&self, names: &[&str], addresses: &[Ipv4Addr]) -> anyhow::Result<()> {
        let key = KeyPair::from_pem(&fs::read_to_string(self.path("server.key"))?)?;
        let mut server = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        server.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress((*address).into())));
        let unfinished = self.path("server.crt.unfinished");
        fs::write(&unfinished, server.signed_by(&key, &self.issuer)?.pem())?;
        Ok(fs::rename(unfinished, self.path("server.crt"))?)
    }

    /// The path of one of the files: `ca.crt`, and `server`, `admin` with `.crt` and `.key`, and `service-account` with `.key`
    /// and `.pub`.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }
}
