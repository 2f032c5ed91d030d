//! Sign-in: OpenID Connect's authorization code flow with PKCE, sessions in sealed cookies, and bearer tokens.
//!
//! ```text
//! request ── callback path ──────► code ► tokens ► session cookie ──► back to what was asked for
//!        ├── logout path ────────► cookies away ──► the provider's end of session
//!        ├── session ── too old ─► refreshed, or asked again
//!        │      └── allowed? ────► backend │ 403
//!        ├── bearer token ── good? allowed? ► backend │ 401 │ 403
//!        └── nobody ─────────────► to the provider, with a cookie of this attempt │ 401
//! ```
//!
//! The gateway remembers nobody: a session is in the browser's cookies, sealed with a key that outlasts restarts, and
//! holds as long as the provider says. What the provider signs is checked with its keys.

mod cookies;
mod provider;
mod seal;
mod session;
mod tokens;
mod visitor;

use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, SET_COOKIE, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use openidconnect::core::{CoreAuthenticationFlow, CoreIdToken};
use openidconnect::{
    ClientId, CsrfToken, EndSessionUrl, LogoutRequest, Nonce, PkceCodeChallenge, PostLogoutRedirectUrl, Scope,
};
use portreeve_table::Login;
use serde_json::Value;

use self::cookies::{ATTEMPT_LIFE, Names};
use self::provider::{FRESH, Providers};
use self::seal::Seal;
pub use self::seal::SessionSecret;
use self::session::{Attempt, Session, is_allowed, now};
use self::tokens::{Fault, Refreshes};
pub(crate) use self::visitor::{Visitor, strip};
use crate::observe::Outcome;

/// How long before its end a session is refreshed, in seconds, so that a backend gets a token that holds for a moment.
const MARGIN: u64 = 5;
/// How long a session goes on while the provider cannot be asked whether it does, in seconds.
const GRACE: u64 = 3600;

/// Signs visitors in, for every route of a gateway.
pub(crate) struct SignIn {
    /// Absent where the system has no randomness: nobody can sign in.
    secret: Option<SessionSecret>,
    providers: Arc<Providers>,
    refreshes: Refreshes,
}

/// Who is let in brings this.
#[derive(Default)]
pub(crate) struct Admission {
    /// For the backend, where it is to get it.
    authorization: Option<HeaderValue>,
    /// For the browser.
    cookies: Vec<HeaderValue>,
}

/// Who is not let in gets this.
pub(crate) struct Refusal {
    /// Boxed, since most requests have none.
    pub(crate) response: Box<Response<String>>,
    pub(crate) outcome: Outcome,
}

/// One request, and what it takes to answer it.
struct Visit<'v> {
    sign_in: &'v SignIn,
    visitor: &'v Visitor,
    login: &'v Arc<Login>,
    names: Names,
    seal: Seal,
}

impl Admission {
    /// Gives the backend the visitor's token, where it is to get it.
    pub(crate) fn introduce(&self, headers: &mut HeaderMap) {
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
    }

    /// Gives the browser its cookies.
    pub(crate) fn remember(self, headers: &mut HeaderMap) {
        cookies::guard(headers);
        if !self.cookies.is_empty() {
            // It is one visitor's, whatever the backend says of its own part.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        for cookie in self.cookies {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

impl SignIn {
    /// Without a secret that is kept, nobody stays signed in over a restart.
    pub(crate) fn new(kept: Option<SessionSecret>) -> Self {
        Self {
            secret: kept.or_else(SessionSecret::random),
            providers: Arc::new(Providers::new()),
            refreshes: Refreshes::default(),
        }
    }

    /// Whether a request may go on.
    pub(crate) async fn admit(&self, visitor: &Visitor) -> Result<Admission, Refusal> {
        let login = &visitor.login;
        let seal = self.secret.as_ref().and_then(|secret| Seal::of(secret, login)).ok_or_else(broken)?;
        let visit = Visit { sign_in: self, visitor, login, names: Names::of(&login.id), seal };
        visit.answer().await
    }
}

impl Visit<'_> {
    async fn answer(&self) -> Result<Admission, Refusal> {
        if self.visitor.path == self.login.callback.path {
            return Err(self.callback().await);
        }
        if self.visitor.path == self.login.logout_path {
            return Err(self.log_out().await);
        }
        if self.visitor.is_foreign {
            return Err(refusal(
                StatusCode::FORBIDDEN,
                "this connection was asked for by a page of another origin",
                Outcome::Forbidden,
            ));
        }
        match self.session().await? {
            Some((session, cookies)) => self.with_session(&session, cookies),
            None => self.without_session().await,
        }
    }

    /// The visitor's session as it is now, and the cookies that keep it.
    async fn session(&self) -> Result<Option<(Session, Vec<HeaderValue>)>, Refusal> {
        let Some(session) = self.kept_session() else { return Ok(None) };
        let now = now();
        if now + MARGIN < session.expires {
            return Ok(Some((session, Vec::new())));
        }
        let SignIn { providers, refreshes, .. } = self.sign_in;
        match refreshes.refresh(providers, self.login, session.clone()).await {
            Ok(new) => {
                let cookies = self.keep(&new)?;
                Ok(Some((new, cookies)))
            }
            Err(Fault::Away) if now < session.expires + GRACE => Ok(Some((session, Vec::new()))),
            Err(Fault::Away) => Err(away()),
            Err(Fault::Refused | Fault::Client | Fault::Untrusted) => Ok(None),
        }
    }

    fn kept_session(&self) -> Option<Session> {
        Session::open(&self.seal, &self.visitor.cookies.session(&self.names)?)
    }

    fn keep(&self, session: &Session) -> Result<Vec<HeaderValue>, Refusal> {
        let sealed = session.close(&self.seal).ok_or_else(broken)?;
        self.visitor.cookies.keep_session(&self.names, &sealed).ok_or_else(|| {
            tracing::error!(login = %self.login.id, "the provider's tokens are too large for cookies: give them fewer claims");
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "the identity provider's tokens are too large", Outcome::NotSignedIn)
        })
    }

    fn with_session(&self, session: &Session, cookies: Vec<HeaderValue>) -> Result<Admission, Refusal> {
        if !is_allowed(self.login.allowed.as_deref(), &session.claims()) {
            return Err(forbidden(&self.login.logout_path).with_cookies(cookies));
        }
        let authorization = session.access_token.as_ref().filter(|_| self.login.forward_access_token);
        Ok(Admission { authorization: authorization.and_then(|token| bearer(token)), cookies })
    }

    async fn without_session(&self) -> Result<Admission, Refusal> {
        if let Some(token) = &self.visitor.bearer {
            let claims = tokens::bearer(&self.sign_in.providers, self.login, token).await;
            return self.with_bearer(token, claims);
        }
        let forgotten = self.visitor.cookies.forget_session(&self.names);
        let refusal = if self.visitor.may_be_sent { self.send_to_provider().await } else { unauthorized("") };
        Err(refusal.with_cookies(forgotten))
    }

    fn with_bearer(&self, token: &str, claims: Result<Value, Fault>) -> Result<Admission, Refusal> {
        match claims {
            Ok(claims) if is_allowed(self.login.allowed.as_deref(), &claims) => {
                let authorization = bearer(token).filter(|_| self.login.forward_access_token);
                Ok(Admission { authorization, cookies: Vec::new() })
            }
            Ok(_) => Err(forbidden(&self.login.logout_path)),
            Err(Fault::Away) => Err(away()),
            Err(Fault::Refused | Fault::Client | Fault::Untrusted) => Err(unauthorized(" error=\"invalid_token\"")),
        }
    }

    async fn send_to_provider(&self) -> Refusal {
        let Ok(known) = self.sign_in.providers.within(&self.login.provider, FRESH).await else { return away() };
        let authority = &self.visitor.authority;
        let parts = tokens::client(self.login, &known).zip(tokens::redirect_url(self.login, authority));
        let Some((client, redirect)) = parts else { return broken() };
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let (url, state, nonce) = client
            .authorize_url(CoreAuthenticationFlow::AuthorizationCode, CsrfToken::new_random, Nonce::new_random)
            .add_scopes(self.login.scopes.iter().filter(|scope| *scope != "openid").cloned().map(Scope::new))
            .set_redirect_uri(std::borrow::Cow::Owned(redirect))
            .set_pkce_challenge(challenge)
            .url();
        let attempt = Attempt {
            state: state.secret().clone(),
            nonce: nonce.secret().clone(),
            verifier: verifier.secret().clone(),
            back: self.visitor.way_back(),
            authority: authority.clone(),
            begun: now(),
        };
        let sealed = attempt.close(&self.seal);
        let keep =
            |sealed: String| self.visitor.cookies.keep_attempt(&self.names, &attempt.state, &sealed, attempt.begun);
        match sealed.and_then(keep) {
            Some(cookies) => redirect_to(url.as_str(), Outcome::NotSignedIn).with_cookies(cookies),
            None => broken(),
        }
    }

    /// The provider has sent a visitor back.
    async fn callback(&self) -> Refusal {
        let state = self.visitor.parameter("state").unwrap_or_default();
        let sealed = self.visitor.cookies.attempt(&self.names, &state);
        let attempt = sealed.and_then(|sealed| Attempt::open(&self.seal, sealed));
        // Names of cookies are no proof: the state inside is.
        let attempt = attempt.filter(|attempt| attempt.state == state && now() < attempt.begun + ATTEMPT_LIFE);
        let Some(attempt) = attempt else {
            return refusal(
                StatusCode::BAD_REQUEST,
                "this sign-in was not begun in this browser, or took too long: open the app again",
                Outcome::NotSignedIn,
            );
        };
        let forgotten = self.visitor.cookies.forget_attempt(&self.names, &state);
        self.complete(&attempt).await.with_cookies(forgotten)
    }

    async fn complete(&self, attempt: &Attempt) -> Refusal {
        let is_elsewhere = self.visitor.parameter("iss").is_some_and(|issuer| issuer != self.login.provider.issuer);
        let code = self.visitor.parameter("code").filter(|_| !is_elsewhere);
        let Some(code) = code else {
            let error: Option<String> = self.visitor.parameter("error").map(|error| error.chars().take(64).collect());
            tracing::info!(login = %self.login.id, error, "a sign-in came to nothing");
            return refusal(StatusCode::FORBIDDEN, "the identity provider did not sign you in", Outcome::NotSignedIn);
        };
        let session = match tokens::redeem(&self.sign_in.providers, self.login, attempt, code).await {
            Ok(session) => session,
            Err(Fault::Away) => return away(),
            Err(Fault::Client) => {
                return refusal(
                    StatusCode::BAD_GATEWAY,
                    "the identity provider refuses this app's client ID or secret",
                    Outcome::NotSignedIn,
                );
            }
            Err(Fault::Refused | Fault::Untrusted) => {
                return refusal(
                    StatusCode::BAD_REQUEST,
                    "this sign-in has failed: open the app again",
                    Outcome::NotSignedIn,
                );
            }
        };
        match self.keep(&session) {
            Ok(cookies) => redirect_to(&format!("https://{}{}", attempt.authority, attempt.back), Outcome::Served)
                .with_cookies(cookies),
            Err(refusal) => refusal,
        }
    }

    /// Ends the session here, and at the provider where it can be.
    async fn log_out(&self) -> Refusal {
        let known = self.sign_in.providers.any(&self.login.provider).await.ok();
        let said = self.login.provider.end_session.clone().and_then(|url| EndSessionUrl::new(url).ok());
        let end = said.or_else(|| known.and_then(|known| known.end_session.clone()));
        let refusal = match end {
            Some(end) => redirect_to(&self.end_of_session(end), Outcome::Served),
            None => refusal(StatusCode::OK, "you are signed out of this app", Outcome::Served),
        };
        refusal.with_cookies(self.visitor.cookies.forget_session(&self.names))
    }

    fn end_of_session(&self, end: EndSessionUrl) -> String {
        let mut request = LogoutRequest::from(end).set_client_id(ClientId::new(self.login.client_id.clone()));
        if let Ok(back) = PostLogoutRedirectUrl::new(format!("https://{}/", self.visitor.authority)) {
            request = request.set_post_logout_redirect_uri(back);
        }
        let id_token: Option<CoreIdToken> = self.kept_session().and_then(|session| session.id_token.parse().ok());
        if let Some(id_token) = id_token {
            request = request.set_id_token_hint(&id_token);
        }
        request.http_get_url().to_string()
    }
}

impl Refusal {
    fn with_cookies(mut self, cookies: Vec<HeaderValue>) -> Self {
        for cookie in cookies {
            self.response.headers_mut().append(SET_COOKIE, cookie);
        }
        self
    }
}

fn refusal(status: StatusCode, reason: &str, outcome: Outcome) -> Refusal {
    let mut response = Response::new(format!("portreeve: {reason}\n"));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Refusal { response: Box::new(response), outcome }
}

/// What only a fault of this gateway leads to.
fn broken() -> Refusal {
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "sign-in is not set up here", Outcome::NotSignedIn)
}

fn away() -> Refusal {
    let reason = "the identity provider cannot be reached, so nobody can sign in now: try again in a moment";
    refusal(StatusCode::SERVICE_UNAVAILABLE, reason, Outcome::ProviderAway)
}

fn forbidden(logout_path: &str) -> Refusal {
    let reason = format!("you are signed in, and may not use this app; {logout_path} signs you out");
    refusal(StatusCode::FORBIDDEN, &reason, Outcome::Forbidden)
}

fn unauthorized(detail: &str) -> Refusal {
    let mut refusal = refusal(StatusCode::UNAUTHORIZED, "sign in first", Outcome::NotSignedIn);
    if let Ok(challenge) = format!("Bearer{detail}").parse() {
        refusal.response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    refusal
}

fn redirect_to(url: &str, outcome: Outcome) -> Refusal {
    let Ok(location) = url.parse() else { return broken() };
    let mut refusal = refusal(StatusCode::FOUND, "continue elsewhere", outcome);
    refusal.response.headers_mut().insert(LOCATION, location);
    refusal
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value: HeaderValue = format!("Bearer {token}").parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use portreeve_table::{Callback, HeaderCheck, HeaderValueCheck, Provider, Secret};

    use super::*;

    pub(crate) fn login() -> Login {
        Login {
            id: "team/app-security".into(),
            provider: Provider {
                issuer: "https://id.example.com".to_owned(),
                authorization: None,
                token: None,
                end_session: None,
                keys: None,
            },
            client_id: "app".to_owned(),
            client_secret: Secret("secret".to_owned()),
            scopes: vec!["openid".to_owned()],
            callback: Callback { authority: "app.example.com".to_owned(), path: "/oauth2/callback".to_owned() },
            logout_path: "/logout".to_owned(),
            withheld_cookies: Vec::new(),
            deny_redirect: vec![HeaderCheck {
                name: "X-Requested-With".to_owned(),
                value: HeaderValueCheck::Exact("XMLHttpRequest".to_owned()),
            }],
            forward_access_token: false,
            allowed: None,
        }
    }
}
