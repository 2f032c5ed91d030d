//! Answers, and those that the gateway gives itself.

use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http::uri::{Authority, PathAndQuery};
use http::{Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use portreeve_table::{BackendFault, PathChange, PathMatch, Redirect};

use crate::http::body::Upload;
use crate::http::target::Target;
use crate::observe::Outcome;

/// What follows the head of an answer.
pub(super) enum Answer {
    /// The gateway's own words.
    Own(String),
    /// What the backend says, and what it was told.
    Backend(Incoming, Upload),
    /// No more HTTP.
    Tunnel { client: OnUpgrade, backend: OnUpgrade },
}

/// The answer to a request that is not served: one line of plain text that names no other tenant.
pub(super) fn refusal(outcome: Outcome) -> Response<Answer> {
    let (status, reason) = match outcome {
        Outcome::BadRequest => (StatusCode::BAD_REQUEST, "the request is malformed or ambiguous"),
        Outcome::Aborted => (StatusCode::BAD_REQUEST, "the request broke off"),
        Outcome::UnknownName => (StatusCode::NOT_FOUND, "no listener serves this host"),
        Outcome::NoRoute => (StatusCode::NOT_FOUND, "no route matches this request"),
        Outcome::Misdirected => (StatusCode::MISDIRECTED_REQUEST, "this connection was opened for another host"),
        Outcome::BackendFailed => (StatusCode::BAD_GATEWAY, "the backend broke off"),
        Outcome::BackendTimeout => (StatusCode::GATEWAY_TIMEOUT, "the backend took too long"),
        Outcome::Unreachable => (StatusCode::SERVICE_UNAVAILABLE, "no endpoint of the backend can be reached"),
        Outcome::Backend(BackendFault::NoEndpoint) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the backend has no ready endpoint")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the route has no usable backend"),
    };
    let mut response = Response::new(Answer::Own(format!("portreeve: {reason}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Sends the client elsewhere; a status that is no redirect becomes 302, Gateway API's default.
pub(super) fn redirect(location: HeaderValue, status: u16) -> Response<Answer> {
    let mut response = Response::new(Answer::Own(String::new()));
    let status = StatusCode::from_u16(status).ok().filter(StatusCode::is_redirection);
    *response.status_mut() = status.unwrap_or(StatusCode::FOUND);
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Where a redirect leads; what it leaves open is as in the request, on the listener's port.
///
/// `None` if neither says a host.
pub(super) fn location(
    redirect: &Redirect,
    matched: &PathMatch,
    target: &Target,
    uri: &Uri,
    scheme: &'static str,
    listener_port: u16,
) -> Option<HeaderValue> {
    let host = redirect.hostname.as_deref().or(target.authority.as_ref().map(Authority::host))?;
    let unnamed_port = if redirect.scheme.is_some() { None } else { Some(listener_port) };
    let scheme = redirect.scheme.as_deref().unwrap_or(scheme);
    let port = redirect.port.or(unnamed_port).filter(|port| Some(*port) != well_known_port(scheme));
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let path = match &redirect.path {
        Some(change) => changed_path(change, matched, uri)?,
        None => uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
    };
    HeaderValue::try_from(format!("{scheme}://{host}{port}{path}")).ok()
}

/// Another path with the same query; `None` if that can be no path.
pub(super) fn changed_path(change: &PathChange, matched: &PathMatch, uri: &Uri) -> Option<PathAndQuery> {
    let path = change.apply(matched, uri.path());
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    PathAndQuery::try_from(path + &query).ok()
}

fn well_known_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// `scheme`, `hostname` and `port` of a redirect, on a listener at 8080 that was asked for `/x?y` over `http`.
    fn led(scheme: Option<&str>, hostname: Option<&str>, port: Option<u16>) -> String {
        let redirect = Redirect {
            scheme: scheme.map(str::to_owned),
            hostname: hostname.map(str::to_owned),
            port,
            path: None,
            status: 301,
        };
        let request = Request::builder().uri("/x?y").header("host", "a.example.com:8080").body(()).unwrap();
        let target = Target::of(&request).unwrap();
        location(&redirect, &PathMatch::Prefix("/".to_owned()), &target, request.uri(), "http", 8080)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// Origin: Gateway API, `HTTPRequestRedirectFilter.port`.
    #[test]
    fn what_a_redirect_leaves_open_is_as_in_the_request() {
        assert_eq!(led(None, None, None), "http://a.example.com:8080/x?y");
        assert_eq!(led(None, Some("b.example.com"), None), "http://b.example.com:8080/x?y");
        assert_eq!(led(Some("https"), None, None), "https://a.example.com/x?y");
        assert_eq!(led(Some("https"), None, Some(443)), "https://a.example.com/x?y");
        assert_eq!(led(Some("https"), None, Some(8443)), "https://a.example.com:8443/x?y");
        assert_eq!(led(Some("http"), None, Some(80)), "http://a.example.com/x?y");
        assert_eq!(led(None, None, Some(80)), "http://a.example.com/x?y");
    }
}
