//! What sign-in asks about a request.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, ORIGIN, UPGRADE};
use http::{Method, Request};
use openidconnect::url::form_urlencoded;
use portreeve_table::Login;

use super::cookies::Cookies;

/// The longest way back that is kept; browsers' cookies hold 4096 bytes.
const MAX_BACK: usize = 2000;

const SEC_FETCH_MODE: &str = "sec-fetch-mode";

/// A request to something that is protected, without what nobody behind the gateway may see.
pub(crate) struct Visitor {
    pub(super) login: Arc<Login>,
    pub(super) cookies: Cookies,
    pub(super) path: String,
    query: Option<String>,
    /// Host and port by which the browser knows the app.
    pub(super) authority: String,
    pub(super) bearer: Option<String>,
    /// Whether a page of another origin wants a WebSocket: browsers send it with the visitor's cookies, and no script of the
    /// app would have to agree.
    pub(super) is_foreign: bool,
    /// Whether it may be sent to sign in: somebody sees what comes back, and nothing is lost.
    pub(super) may_be_sent: bool,
}

/// Takes the gateway's own cookies away from a request that is not protected.
pub(crate) fn strip(headers: &mut HeaderMap) {
    Cookies::take(headers, &[]);
}

impl Visitor {
    /// Takes cookies and `Authorization` away from the request: who is let in is given what is meant for the backend.
    pub(crate) fn take<B>(login: Arc<Login>, authority: Option<&str>, request: &mut Request<B>) -> Self {
        let is_refused = login.deny_redirect.iter().any(|check| check.matches(request.headers()));
        let asks_upgrade = request.headers().contains_key(UPGRADE) || *request.method() == Method::CONNECT;
        // What a page fetches for itself shows nobody a form, and each answer would be a sign-in that nobody ends.
        let navigates = request.headers().get(SEC_FETCH_MODE).is_none_or(|mode| mode == "navigate");
        let is_page = matches!(*request.method(), Method::GET | Method::HEAD) && !asks_upgrade && navigates;
        let authority = known_as(&login, authority);
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().map(str::to_owned));
        let headers = request.headers_mut();
        let origin = headers.get(ORIGIN).map(|origin| {
            let origin = origin.to_str().unwrap_or_default();
            origin.split_once("://").map_or("", |(_, authority)| authority).to_owned()
        });
        let authorization = headers.remove(AUTHORIZATION);
        let bearer = authorization.as_ref().and_then(|value| value.to_str().ok()).and_then(bearer);
        Self {
            cookies: Cookies::take(headers, &login.withheld_cookies),
            is_foreign: asks_upgrade && origin.is_some_and(|origin| !origin.eq_ignore_ascii_case(&authority)),
            authority,
            bearer: bearer.map(str::to_owned),
            may_be_sent: is_page && !is_refused,
            login,
            path,
            query,
        }
    }

    /// A parameter of the query, if it is there once.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let mut found = form_urlencoded::parse(self.query.as_deref()?.as_bytes()).filter(|(key, _)| key == name);
        let (_, value) = found.next()?;
        found.next().is_none().then(|| value.into_owned())
    }

    /// Path and query of what was asked for.
    pub(super) fn way_back(&self) -> String {
        let back = self.query.as_ref().map_or_else(|| self.path.clone(), |query| format!("{}?{query}", self.path));
        if back.len() <= MAX_BACK && back.starts_with('/') { back } else { "/".to_owned() }
    }
}

/// The policy's host, with the port that the browser uses: the gateway may be behind one that the policy does not know.
fn known_as(login: &Login, authority: Option<&str>) -> String {
    let host = |authority: &str| authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_ascii_lowercase();
    let own = &login.callback.authority;
    match authority {
        Some(asked) if host(asked) == host(own) => asked.to_ascii_lowercase(),
        _ => own.clone(),
    }
}

/// RFC 6750, section 2.1.
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login::tests::login;

    fn visitor(request: http::request::Builder) -> Visitor {
        Visitor::take(Arc::new(login()), None, &mut request.body(()).unwrap())
    }

    #[test]
    fn only_pages_are_sent_to_sign_in() {
        assert!(visitor(Request::get("/")).may_be_sent);
        assert!(!visitor(Request::post("/")).may_be_sent);
        assert!(!visitor(Request::get("/").header(UPGRADE, "websocket")).may_be_sent);
        assert!(!visitor(Request::get("/").header("x-requested-with", "XMLHttpRequest")).may_be_sent);
        assert!(visitor(Request::get("/").header("x-requested-with", "other")).may_be_sent);
    }

    #[test]
    fn what_is_the_gateways_is_taken_away() {
        let mut request = Request::get("/")
            .header(AUTHORIZATION, "bearer a.b.c")
            .header("cookie", "a=1; __Host-portreeve-x-0=s")
            .body(())
            .unwrap();
        let visitor = Visitor::take(Arc::new(login()), None, &mut request);
        assert_eq!(visitor.bearer.as_deref(), Some("a.b.c"));
        assert_eq!(request.headers().get(AUTHORIZATION), None);
        assert_eq!(request.headers()["cookie"], "a=1");
    }

    #[test]
    fn the_way_back_stays_on_the_host() {
        assert_eq!(visitor(Request::get("/a?b=c")).way_back(), "/a?b=c");
        assert_eq!(visitor(Request::get(format!("/{}", "x".repeat(MAX_BACK)))).way_back(), "/");
        let known = |authority| known_as(&login(), authority);
        assert_eq!(known(Some("App.Example.com:8443")), "app.example.com:8443");
        assert_eq!(known(Some("evil.example.com")), "app.example.com");
        assert_eq!(known(None), "app.example.com");
    }

    #[test]
    fn a_parameter_that_is_there_twice_is_none() {
        let visitor = visitor(Request::get("/?code=a%20b&state=1&state=2"));
        assert_eq!(visitor.parameter("code").as_deref(), Some("a b"));
        assert_eq!(visitor.parameter("state"), None);
    }
}
