//! From codes and tokens to who somebody is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use chrono::DateTime;
use openidconnect::core::{
    CoreClient, CoreErrorResponseType, CoreIdToken, CoreIdTokenVerifier, CoreJwsSigningAlgorithm, CoreTokenResponse,
};
use openidconnect::{
    AuthType, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret, EndpointNotSet, EndpointSet,
    IssuerUrl, JsonWebTokenType, Nonce, OAuth2TokenResponse, PkceCodeVerifier, RedirectUrl, RefreshToken,
    RequestTokenError, SignatureVerificationError, StandardErrorResponse, TokenResponse,
};
use portreeve_table::Login;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::provider::{Away, HttpFault, Known, Providers, ROTATED, causes};
use super::session::{Attempt, Session, claims, now};

/// How far the provider's clock may be from ours, in seconds.
const CLOCK_SKEW: u64 = 60;
/// How long tokens hold whose provider does not say, in seconds.
const USUAL_LIFE: u64 = 300;
/// The longest that a session goes on without a word of the provider.
const LONGEST_LIFE: u64 = 24 * 3600;
/// How long parallel requests get the outcome of one refresh. Some providers take a refresh token once only.
const REMEMBERED: Duration = Duration::from_mins(1);
/// Likewise, where the provider was away.
const AWAY: Duration = Duration::from_secs(5);

/// The client at the provider, as far as it is needed.
type Client = CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet, EndpointNotSet>;
type TokenFault = RequestTokenError<HttpFault, StandardErrorResponse<CoreErrorResponseType>>;

/// Why there are no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The provider cannot be asked now.
    Away,
    /// It says no.
    Refused,
    /// It does not take the gateway for the client that it says it is.
    Client,
    /// What came cannot be trusted.
    Untrusted,
}

impl From<Away> for Fault {
    fn from(Away: Away) -> Self {
        Self::Away
    }
}

/// The client that a policy names; nothing where what it says can be no client.
pub(super) fn client(login: &Login, known: &Known) -> Option<Client> {
    let issuer = IssuerUrl::new(login.provider.issuer.clone()).ok()?;
    let client = CoreClient::new(ClientId::new(login.client_id.clone()), issuer, known.keys.clone())
        .set_client_secret(ClientSecret::new(login.client_secret.0.clone()))
        .set_auth_type(if known.secret_in_body { AuthType::RequestBody } else { AuthType::BasicAuth })
        .set_auth_uri(known.authorization.clone())
        .set_token_uri(known.token.clone());
    Some(client)
}

/// Where the provider sends the visitors of an app back, by the name by which their browsers know it.
pub(super) fn redirect_url(login: &Login, authority: &str) -> Option<RedirectUrl> {
    RedirectUrl::new(format!("https://{authority}{}", login.callback.path)).ok()
}

/// The session that a code stands for.
pub(super) async fn redeem(
    providers: &Providers,
    login: &Login,
    attempt: &Attempt,
    code: String,
) -> Result<Session, Fault> {
    let known = providers.any(&login.provider).await?;
    let client = client(login, &known).ok_or(Fault::Client)?;
    let redirect = redirect_url(login, &attempt.authority).ok_or(Fault::Client)?;
    let http = providers.http();
    let call = move |request| http.clone().send(request);
    let answer = client
        .exchange_code(AuthorizationCode::new(code))
        .set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier.clone()))
        .set_redirect_uri(std::borrow::Cow::Owned(redirect))
        .request_async(&call)
        .await
        .map_err(|error| token_fault(login, &error))?;
    let id_token = answer.id_token().ok_or(Fault::Untrusted)?.to_string();
    verify(providers, login, &id_token, Some(&attempt.nonce)).await?;
    Ok(session(login, &answer, id_token, None))
}

/// The session by the provider's word of now.
async fn refresh(providers: &Providers, login: &Login, session: &Session) -> Result<Session, Fault> {
    let token = session.refresh_token.clone().ok_or(Fault::Refused)?;
    let known = providers.any(&login.provider).await?;
    let client = client(login, &known).ok_or(Fault::Client)?;
    let http = providers.http();
    let call = move |request| http.clone().send(request);
    let answer = client
        .exchange_refresh_token(&RefreshToken::new(token.clone()))
        .request_async(&call)
        .await
        .map_err(|error| token_fault(login, &error))?;
    let id_token = match answer.id_token() {
        Some(id_token) => {
            let id_token = id_token.to_string();
            let said = verify(providers, login, &id_token, None).await?;
            // OpenID Connect Core, section 12.2.
            if said["sub"] != session.claims()["sub"] {
                return Err(Fault::Untrusted);
            }
            id_token
        }
        // What it said at sign-in may not hold any more.
        None if login.allowed.is_some() => return Err(Fault::Refused),
        None => session.id_token.clone(),
    };
    Ok(self::session(login, &answer, id_token, Some(token)))
}

/// A provider that gives no new refresh token means the old one.
fn session(login: &Login, answer: &CoreTokenResponse, id_token: String, refresh_token: Option<String>) -> Session {
    let life = answer.expires_in().map_or(USUAL_LIFE, |life| life.as_secs()).min(LONGEST_LIFE);
    Session {
        id_token,
        access_token: login.forward_access_token.then(|| answer.access_token().secret().clone()),
        refresh_token: answer.refresh_token().map(|token| token.secret().clone()).or(refresh_token),
        expires: now() + life,
    }
}

/// What an access token says that a program brings with it.
pub(super) async fn bearer(providers: &Providers, login: &Login, token: &str) -> Result<Value, Fault> {
    let claims = verify(providers, login, token, None).await?;
    // Other tokens are signed with the same keys. Keycloak says which they are; an ID token, which is in URLs and logs, has
    // claims that no access token has.
    let is_access = match claims["typ"].as_str() {
        Some(kind) => kind.eq_ignore_ascii_case("bearer"),
        None => ["nonce", "at_hash", "c_hash"].iter().all(|claim| claims.get(claim).is_none()),
    };
    if is_access { Ok(claims) } else { Err(Fault::Untrusted) }
}

/// What a token says that the provider has signed for this client, and that holds now.
async fn verify(providers: &Providers, login: &Login, token: &str, nonce: Option<&str>) -> Result<Value, Fault> {
    let parsed: CoreIdToken = token.parse().map_err(|_| Fault::Untrusted)?;
    let known = providers.any(&login.provider).await?;
    let outcome = match check(login, &known, &parsed, nonce) {
        // The provider may have new keys.
        Err(ClaimsVerificationError::SignatureVerification(SignatureVerificationError::NoMatchingKey)) => {
            let known = providers.within(&login.provider, ROTATED).await?;
            check(login, &known, &parsed, nonce)
        }
        outcome => outcome,
    };
    outcome.map_err(|error| {
        tracing::debug!(login = %login.id, error = causes(&error), "a token is refused");
        Fault::Untrusted
    })?;
    let claims = claims(token);
    let from = claims["nbf"].as_f64().and_then(|from| Duration::try_from_secs_f64(from).ok());
    let is_early = from.is_some_and(|from| from > Duration::from_secs(now() + CLOCK_SKEW));
    if is_early { Err(Fault::Untrusted) } else { Ok(claims) }
}

fn check(
    login: &Login,
    known: &Known,
    token: &CoreIdToken,
    nonce: Option<&str>,
) -> Result<(), ClaimsVerificationError> {
    let issuer = IssuerUrl::new(login.provider.issuer.clone())
        .map_err(|error| ClaimsVerificationError::Other(error.to_string()))?;
    let kinds =
        ["JWT", "at+jwt"].into_iter().filter_map(|kind| JsonWebTokenType::new(kind.to_owned()).normalize().ok());
    let now = i64::try_from(now() - CLOCK_SKEW).ok().and_then(|now| DateTime::from_timestamp(now, 0));
    let now = now.unwrap_or_default();
    // Tokens that only the client's secret signs are not among these: whoever has the secret could make them.
    let verifier =
        CoreIdTokenVerifier::new_public_client(ClientId::new(login.client_id.clone()), issuer, known.keys.clone())
            .set_allowed_algs(ALGORITHMS)
            .set_allowed_jose_types(kinds)
            .set_other_audience_verifier_fn(|_| true)
            .set_time_fn(move || now);
    match nonce {
        Some(nonce) => token.claims(&verifier, &Nonce::new(nonce.to_owned())).map(drop),
        None => token.claims(&verifier, |_: Option<&Nonce>| Ok(())).map(drop),
    }
}

const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// An answer that cannot be read is one of something else that stands in for the provider while it is away.
fn token_fault(login: &Login, error: &TokenFault) -> Fault {
    // What cannot be read may have tokens in it.
    let why = match error {
        RequestTokenError::Parse(..) => "its answer cannot be read".to_owned(),
        error => causes(error),
    };
    tracing::warn!(login = %login.id, why, "the identity provider gives no tokens");
    match error {
        RequestTokenError::ServerResponse(answer) => match answer.error() {
            CoreErrorResponseType::InvalidClient | CoreErrorResponseType::UnauthorizedClient => Fault::Client,
            CoreErrorResponseType::Extension(_) => Fault::Away,
            _ => Fault::Refused,
        },
        RequestTokenError::Request(_) | RequestTokenError::Parse(..) | RequestTokenError::Other(_) => Fault::Away,
    }
}

/// Refreshes that are going on or have just ended, so that the requests of one page make one.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<HashMap<Vec<u8>, Arc<Refresh>>>);

struct Refresh {
    outcome: OnceCell<Result<Session, Fault>>,
    begun: Instant,
}

impl Refreshes {
    pub(super) async fn refresh(
        &self,
        providers: &Arc<Providers>,
        login: &Arc<Login>,
        session: Session,
    ) -> Result<Session, Fault> {
        let flight = self.flight(login, &session);
        let run = || async {
            let (providers, login) = (providers.clone(), login.clone());
            // Its outcome counts although the request that began it is given up.
            let task = tokio::spawn(async move { refresh(&providers, &login, &session).await });
            task.await.unwrap_or(Err(Fault::Away))
        };
        flight.outcome.get_or_init(run).await.clone()
    }

    fn flight(&self, login: &Login, session: &Session) -> Arc<Refresh> {
        let token = session.refresh_token.as_deref().unwrap_or_default();
        let whose = format!("{}\n{}\n{token}", login.id, session.expires);
        let mut flights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| {
            let life = if matches!(flight.outcome.get(), Some(Err(Fault::Away))) { AWAY } else { REMEMBERED };
            flight.begun.elapsed() < life
        });
        let new = || Arc::new(Refresh { outcome: OnceCell::new(), begun: Instant::now() });
        flights.entry(digest(&SHA256, whose.as_bytes()).as_ref().to_vec()).or_insert_with(new).clone()
    }
}
