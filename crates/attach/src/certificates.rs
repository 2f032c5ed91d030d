//! From `certificateRefs` to key pairs.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use portreeve_names::HostPattern;
use portreeve_table::{InvalidKeyPair, KeyPair};

use crate::Warning;
use crate::decisions::Decisions;
use crate::index::{Index, Name, Referent, Referrer};
use crate::listener::{Listener, kind_name};
use crate::owners::Owner;
use crate::references::CertificateRef;
use crate::routes::Route;

/// The only type of Secret that holds a certificate (`kubernetes.io/tls`).
const TLS_SECRET: &str = "kubernetes.io/tls";

/// Why a reference to a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateProblem {
    #[error("it names no certificate (tls.certificateRefs)")]
    None,
    #[error("certificates come from Secrets, and '{name}' is a {kind}")]
    InvalidKind { kind: String, name: String },
    /// Says nothing about whether the Secret exists.
    #[error(
        "no ReferenceGrant in namespace '{namespace}' lets a {from_kind} of namespace '{from}' use Secret '{secret}'"
    )]
    NotPermitted { namespace: String, from_kind: &'static str, from: String, secret: String },
    #[error("Secret '{secret}': {problem}")]
    Unusable { secret: String, problem: SecretProblem },
}

/// What is wrong with a Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SecretProblem {
    #[error("it does not exist")]
    Missing,
    #[error("its type is '{0}', but a certificate is of type {TLS_SECRET}")]
    Type(String),
    #[error("it has no '{0}'")]
    NoData(&'static str),
    #[error(transparent)]
    KeyPair(#[from] InvalidKeyPair),
}

impl CertificateProblem {
    /// The reason of `ResolvedRefs=False`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotPermitted { .. } => "RefNotPermitted",
            Self::None | Self::InvalidKind { .. } | Self::Unusable { .. } => "InvalidCertificateRef",
        }
    }
}

/// Finds the certificate of every listener that ends TLS. Each Secret is read once, however many listeners share it.
pub(crate) fn resolve<'a>(index: &Index<'a>, owners: &[Owner<'a>], listeners: &mut [Listener<'a>]) {
    let mut pairs = KeyPairs::default();
    for listener in listeners.iter_mut().filter(|listener| listener.terminates()) {
        let owner = &owners[listener.owner];
        let from = Referrer { kind: owner.kind().as_str(), namespace: owner.name().0 };
        let mut found = listener.certificates.iter().map(|reference| pairs.find(index, from, *reference)).peekable();
        if found.peek().is_none() {
            listener.certificate_problem = Some(CertificateProblem::None);
        }
        for result in found {
            match result {
                Ok(pair) => _ = listener.certificate.get_or_insert(pair),
                Err(problem) => _ = listener.certificate_problem.get_or_insert(problem),
            }
        }
    }
}

/// What clients will refuse although it is served, and what is not used although it is there.
pub(crate) fn warnings(decisions: &Decisions<'_>, now: jiff::Timestamp) -> Vec<Warning> {
    let served = decisions.listeners.iter().filter(|listener| listener.is_usable());
    let of_listeners = served
        .filter_map(|listener| Some((listener, listener.certificate.as_deref()?)))
        .flat_map(|(listener, pair)| listener_warnings(&decisions.owners[listener.owner], listener, pair, now));
    of_listeners.chain(decisions.routes.iter().flat_map(|route| route_warnings(decisions, route))).collect()
}

/// Whether a client that asks for one of `hosts` can find its name in the certificate. A certificate's wildcard
/// stands for one label, unlike one of Gateway API (RFC 9525, section 6.3).
pub(crate) fn covers(pair: &KeyPair, hosts: &HostPattern) -> bool {
    let named = |name: &str| pair.dns_names.iter().any(|dns_name| dns_name.eq_ignore_ascii_case(name));
    match hosts {
        HostPattern::Any => true,
        HostPattern::Exact(name) => {
            named(name.as_str()) || name.parent().is_some_and(|parent| named(&format!("*.{parent}")))
        }
        HostPattern::Wildcard(_) => pair.dns_names.iter().any(|dns_name| {
            let covered = HostPattern::parse(dns_name);
            covered.is_ok_and(|covered| hosts.covers(&covered))
        }),
    }
}

fn listener_warnings(owner: &Owner<'_>, listener: &Listener<'_>, pair: &KeyPair, now: jiff::Timestamp) -> Vec<Warning> {
    let secrets = secrets(owner, listener);
    let mut messages = Vec::new();
    if pair.not_after < now.as_second() {
        messages.push(format!("the certificate of {secrets} has expired, so clients will refuse it; renew it"));
    }
    if !covers(pair, &listener.hosts) {
        messages.push(not_covered(&secrets, &listener.hosts));
    }
    if listener.certificates.len() > 1 {
        messages.push(format!("only the first usable certificate of {secrets} is served"));
    }
    let subject = listener.id.to_string();
    messages.into_iter().map(|message| Warning { subject: subject.clone(), message }).collect()
}

/// Names of a route that belong to a listener whose certificate is not for them, such as `a.b.example.com` on a listener
/// for `*.example.com`. Where the certificate does not suit the listener, that is said once, there.
fn route_warnings(decisions: &Decisions<'_>, route: &Route<'_>) -> Vec<Warning> {
    let attachments = route.parents.iter().flat_map(|parent| parent.attachments.iter().flatten());
    let on_listener = attachments.map(|attachment| (&decisions.listeners[attachment.listener], &attachment.hosts));
    let not_covered_hosts = on_listener.filter_map(|(listener, hosts)| {
        let pair = listener.certificate.as_deref().filter(|pair| covers(pair, &listener.hosts))?;
        Some(hosts.iter().filter(|hosts| !covers(pair, hosts)).map(move |hosts| (listener, hosts)))
    });
    not_covered_hosts
        .flatten()
        .map(|(listener, hosts)| Warning {
            subject: route.id.to_string(),
            message: not_covered(&secrets(&decisions.owners[listener.owner], listener), hosts),
        })
        .collect()
}

fn not_covered(secrets: &str, hosts: &HostPattern) -> String {
    format!(
        "no name of the certificate of {secrets} covers '{hosts}', so clients will refuse it; issue it for that name"
    )
}

/// `Secret 'namespace/name'`, for each that the listener names.
fn secrets(owner: &Owner<'_>, listener: &Listener<'_>) -> String {
    let names = listener.certificates.iter().map(|reference| secret_name(owner.name().0, *reference));
    let names: Vec<_> = names.map(|(namespace, name)| format!("'{namespace}/{name}'")).collect();
    format!("Secret {}", names.join(", "))
}

/// Key pairs that were read, or why they could not be.
#[derive(Default)]
struct KeyPairs<'a> {
    read: HashMap<Name<'a>, Result<Arc<KeyPair>, SecretProblem>>,
}

impl<'a> KeyPairs<'a> {
    fn find(
        &mut self,
        index: &Index<'a>,
        from: Referrer<'a>,
        reference: CertificateRef<'a>,
    ) -> Result<Arc<KeyPair>, CertificateProblem> {
        if (reference.group, reference.kind) != ("", "Secret") {
            let kind = kind_name(reference.group, reference.kind);
            return Err(CertificateProblem::InvalidKind { kind, name: reference.name.to_owned() });
        }
        let (namespace, name) = secret_name(from.namespace, reference);
        if !index.permits(from, Referent { kind: "Secret", namespace, name }) {
            return Err(CertificateProblem::NotPermitted {
                namespace: namespace.to_owned(),
                from_kind: from.kind,
                from: from.namespace.to_owned(),
                secret: name.to_owned(),
            });
        }
        let read = self.read.entry((namespace, name)).or_insert_with(|| read(index.secret((namespace, name))));
        read.clone().map_err(|problem| CertificateProblem::Unusable { secret: format!("{namespace}/{name}"), problem })
    }
}

fn secret_name<'a>(home: &'a str, reference: CertificateRef<'a>) -> Name<'a> {
    (reference.namespace.unwrap_or(home), reference.name)
}

fn read(secret: Option<&Secret>) -> Result<Arc<KeyPair>, SecretProblem> {
    let secret = secret.ok_or(SecretProblem::Missing)?;
    let kind = secret.type_.as_deref().unwrap_or("Opaque");
    if kind != TLS_SECRET {
        return Err(SecretProblem::Type(kind.to_owned()));
    }
    Ok(Arc::new(KeyPair::parse(data(secret, "tls.crt")?, data(secret, "tls.key")?)?))
}

/// `stringData` counts too: in a file it is what a person wrote.
fn data<'a>(secret: &'a Secret, key: &'static str) -> Result<&'a [u8], SecretProblem> {
    let encoded = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.as_slice());
    let plain = secret.string_data.as_ref().and_then(|data| data.get(key)).map(String::as_bytes);
    plain.or(encoded).ok_or(SecretProblem::NoData(key))
}
