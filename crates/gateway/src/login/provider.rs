//! Identity providers: where they are and which keys they have, fetched when needed and kept for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use openidconnect::core::{CoreClientAuthMethod, CoreJsonWebKeySet};
use openidconnect::{
    AuthUrl, EndSessionUrl, HttpRequest, HttpResponse, IssuerUrl, JsonWebKeySetUrl, ProviderMetadataWithLogout,
    TokenUrl,
};
use portreeve_table::Provider;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use crate::tls;

/// How long a provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer that is read. Discovery documents, keys and tokens are some kilobytes.
const MAX_ANSWER: usize = 1 << 20;
/// How long a provider that did not answer is left alone.
const RETRY: Duration = Duration::from_secs(2);
/// How old what is known may be before somebody is sent to the provider: whether it is there at all.
pub(super) const FRESH: Duration = Duration::from_secs(30);
/// How often a provider is asked for its keys again because a token has an unknown one.
pub(super) const ROTATED: Duration = Duration::from_secs(10);
/// How old its keys may be, as long as it answers.
const KEYS: Duration = Duration::from_hours(1);

/// What is known of a provider.
pub(super) struct Known {
    pub(super) authorization: AuthUrl,
    pub(super) token: TokenUrl,
    pub(super) end_session: Option<EndSessionUrl>,
    pub(super) keys: CoreJsonWebKeySet,
    /// Whether it takes the client's secret in the body of a request only.
    pub(super) secret_in_body: bool,
    fetched: Instant,
}

/// The provider cannot be asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Away;

/// All providers that somebody has asked for.
pub(super) struct Providers {
    http: Http,
    entries: Mutex<HashMap<Provider, Arc<Entry>>>,
}

#[derive(Default)]
struct Entry {
    known: Mutex<Option<Arc<Known>>>,
    /// Held while it is asked; when it last failed.
    asking: tokio::sync::Mutex<Option<Instant>>,
}

/// A client of HTTP and HTTPS that trusts whom the system trusts; nobody, where it has no authorities.
#[derive(Clone)]
pub(super) struct Http(Option<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>);

/// Why a provider gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpFault {
    #[error("it cannot be reached")]
    Unreachable(#[from] hyper_util::client::legacy::Error),
    #[error("its answer broke off, or is too large")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("it does not answer")]
    Silent,
    #[error("TLS could not be set up")]
    NoTls,
}

impl Http {
    fn new() -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = ClientConfig::builder_with_provider(tls::PROVIDER.clone()).with_safe_default_protocol_versions();
        let tls = tls.inspect_err(|error| tracing::error!(%error, "failed to set up TLS: nobody can sign in")).ok();
        let client = tls.map(|tls| {
            let tls = tls.with_root_certificates(roots).with_no_client_auth();
            let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
            Client::builder(TokioExecutor::new()).build(connector)
        });
        Self(client)
    }

    /// One request, never redirected.
    pub(super) async fn send(self, request: HttpRequest) -> Result<HttpResponse, HttpFault> {
        let exchange = async {
            let client = self.0.ok_or(HttpFault::NoTls)?;
            let response = client.request(request.map(Full::from)).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(HttpFault::Answer)?;
            Ok(HttpResponse::from_parts(head, body.to_bytes().to_vec()))
        };
        timeout(PATIENCE, exchange).await.unwrap_or(Err(HttpFault::Silent))
    }
}

impl Providers {
    pub(super) fn new() -> Self {
        Self { http: Http::new(), entries: Mutex::default() }
    }

    pub(super) fn http(&self) -> Http {
        self.http.clone()
    }

    /// What is known, however old it is where the provider does not answer.
    pub(super) async fn any(&self, provider: &Provider) -> Result<Arc<Known>, Away> {
        let fresh = self.within(provider, KEYS).await;
        fresh.or_else(|away| self.entry(provider).known().ok_or(away))
    }

    /// What was known not longer ago than `age`.
    pub(super) async fn within(&self, provider: &Provider, age: Duration) -> Result<Arc<Known>, Away> {
        let entry = self.entry(provider);
        let young = || entry.known().filter(|known| known.fetched.elapsed() < age);
        if let Some(known) = young() {
            return Ok(known);
        }
        let mut failed = entry.asking.lock().await;
        if let Some(known) = young() {
            return Ok(known);
        }
        if failed.is_some_and(|failed| failed.elapsed() < RETRY) {
            return Err(Away);
        }
        match fetch(self.http(), provider).await {
            Ok(known) => {
                let known = Arc::new(known);
                entry.know(known.clone());
                *failed = None;
                Ok(known)
            }
            Err(fault) => {
                tracing::warn!(issuer = provider.issuer, fault, "an identity provider cannot be used");
                *failed = Some(Instant::now());
                Err(Away)
            }
        }
    }

    fn entry(&self, provider: &Provider) -> Arc<Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.entry(provider.clone()).or_default().clone()
    }
}

impl Entry {
    fn known(&self) -> Option<Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn know(&self, known: Arc<Known>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }
}

/// Asks for the discovery document, unless everything is said that it would say, and for the keys.
async fn fetch(http: Http, provider: &Provider) -> Result<Known, String> {
    let call = |request| http.clone().send(request);
    let url = |error: &dyn std::fmt::Display| format!("a URL cannot be used: {error}");
    let fetched = Instant::now();
    let end_session = provider.end_session.clone().map(EndSessionUrl::new).transpose().map_err(|error| url(&error))?;
    if let (Some(authorization), Some(token), Some(keys)) = (&provider.authorization, &provider.token, &provider.keys) {
        return Ok(Known {
            authorization: AuthUrl::new(authorization.clone()).map_err(|error| url(&error))?,
            token: TokenUrl::new(token.clone()).map_err(|error| url(&error))?,
            end_session,
            keys: fetch_keys(&call, keys).await?,
            secret_in_body: false,
            fetched,
        });
    }
    let issuer = IssuerUrl::new(provider.issuer.clone()).map_err(|error| url(&error))?;
    let found = ProviderMetadataWithLogout::discover_async(issuer, &call).await.map_err(|error| causes(&error))?;
    let token = provider.token.clone().map(TokenUrl::new).transpose().map_err(|error| url(&error))?;
    let authorization = provider.authorization.clone().map(AuthUrl::new).transpose().map_err(|error| url(&error))?;
    let methods = found.token_endpoint_auth_methods_supported();
    let takes = |method| methods.is_none_or(|methods| methods.contains(&method));
    Ok(Known {
        authorization: authorization.unwrap_or_else(|| found.authorization_endpoint().clone()),
        token: token
            .or_else(|| found.token_endpoint().cloned())
            .ok_or("its discovery document has no token_endpoint")?,
        end_session: end_session.or_else(|| found.additional_metadata().end_session_endpoint.clone()),
        keys: match &provider.keys {
            Some(keys) => fetch_keys(&call, keys).await?,
            None => found.jwks().clone(),
        },
        secret_in_body: !takes(CoreClientAuthMethod::ClientSecretBasic),
        fetched,
    })
}

async fn fetch_keys<F>(call: &impl Fn(HttpRequest) -> F, url: &str) -> Result<CoreJsonWebKeySet, String>
where
    F: Future<Output = Result<HttpResponse, HttpFault>>,
{
    let url = JsonWebKeySetUrl::new(url.to_owned()).map_err(|error| format!("a URL cannot be used: {error}"))?;
    CoreJsonWebKeySet::fetch_async(&url, call).await.map_err(|error| causes(&error))
}

/// An error and what is behind it.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
