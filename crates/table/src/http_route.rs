use std::sync::Arc;
use std::time::Duration;

use portreeve_names::{HostPattern, Hostname};

use crate::backend::Backends;
use crate::host_map::HostMap;
use crate::listener::RouteId;
use crate::login::Login;

/// The HTTP routes of one listener: found by host, then by the most specific match.
///
/// Precedence is that of Gateway API (`HTTPRouteSpec.hostnames`, `HTTPRouteMatch`): the rule with the most specific
/// host that matches the *whole* request wins. A rule of `*.example.com` therefore takes what no rule of
/// `a.example.com` matches: the standard ranks rules, it does not hide those of the wider host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpRoutes {
    /// The rules of a host in order of precedence; fill it through [`HttpRoutes::insert`].
    hosts: HostMap<Vec<HttpRoute>>,
}

/// One match of one rule of an HTTPRoute.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRoute {
    /// Who this is, for logs and explanations.
    pub id: RouteId,
    /// Which requests it takes.
    pub matches: HttpMatch,
    /// What is changed or answered on the way.
    pub filters: HttpFilters,
    /// Where the request goes, when no filter answers it.
    pub backends: Arc<Backends>,
    /// Who gets there; absent: everybody.
    pub login: Option<Arc<Login>>,
}

/// What a request must have; every part that is present must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpMatch {
    /// The path, without the query.
    pub path: PathMatch,
    /// The method, in capitals.
    pub method: Option<String>,
    /// Headers by lower-case name, with the exact value.
    pub headers: Vec<(String, String)>,
    /// Query parameters with the exact value.
    pub query: Vec<(String, String)>,
}

/// How a path is matched; case-sensitive, byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// The whole path.
    Exact(String),
    /// Whole path elements from the start: `/foo` matches `/foo` and `/foo/bar`, not `/foobar`; a final `/` does not count.
    Prefix(String),
}

/// What a rule does to a request and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpFilters {
    /// Applied to the request before it goes on.
    pub request_headers: Vec<HeaderChange>,
    /// Applied to the answer before it goes back.
    pub response_headers: Vec<HeaderChange>,
    /// Answers instead of any backend.
    pub redirect: Option<Redirect>,
    /// The host that the backend is asked for, instead of the client's; without a port.
    pub hostname: Option<String>,
    /// The path that the backend is asked for, instead of the client's.
    pub path: Option<PathChange>,
    /// How long a backend may take to begin its answer; `None`: as long as it likes.
    pub timeout: Option<Duration>,
}

/// Another path instead of the one that was asked for; the query stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChange {
    /// This one.
    Full(String),
    /// This one instead of the prefix that the rule matched, and then the rest.
    Prefix(String),
}

/// One change of a header, in the order set, add, remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderChange {
    /// Replaces every value.
    Set(String, String),
    /// Adds a value.
    Add(String, String),
    /// Removes every value.
    Remove(String),
}

/// An answer that sends the client elsewhere; what is absent is taken from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// Without a port.
    pub hostname: Option<String>,
    /// Absent: the well-known port of `scheme` if that is given, else the listener's.
    pub port: Option<u16>,
    /// Another path.
    pub path: Option<PathChange>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// What routing reads of a request.
#[derive(Clone, Copy, Debug)]
pub struct HttpRequestHead<'a> {
    /// The path, without the query.
    pub path: &'a str,
    /// The raw query, without the `?`.
    pub query: Option<&'a str>,
    /// The method.
    pub method: &'a http::Method,
    /// All headers.
    pub headers: &'a http::HeaderMap,
}

impl HttpRoutes {
    /// Adds a match for the requests of these hosts.
    ///
    /// Among equals the first that was put wins, so routes come in oldest first, then by name, and the rules and
    /// matches of a route in their order.
    pub fn insert(&mut self, hosts: HostPattern, route: HttpRoute) {
        let rules = self.hosts.entry_or_insert_with(hosts, Vec::new);
        let place = rules.partition_point(|rule| rule.matches.specificity() >= route.matches.specificity());
        rules.insert(place, route);
    }

    /// The route that takes this request, if any; `host` is what the client asked for, without the port.
    pub fn find(&self, host: Option<&Hostname>, request: &HttpRequestHead<'_>) -> Option<&HttpRoute> {
        self.hosts.matching(host).flatten().find(|route| route.matches.matches(request))
    }

    /// Every match with the hosts that it is for, in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = (HostPattern, &HttpRoute)> {
        self.hosts.iter().flat_map(|(hosts, rules)| rules.iter().map(move |rule| (hosts.clone(), rule)))
    }

    /// Whether no request is ever taken.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

/// What precedence compares, the first field first; the greater one wins (Gateway API, `HTTPRouteMatch`).
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Specificity {
    exact_path: bool,
    path_len: usize,
    method: bool,
    headers: usize,
    query: usize,
}

impl HttpMatch {
    /// Whether every part that is present matches.
    pub fn matches(&self, request: &HttpRequestHead<'_>) -> bool {
        self.path.matches(request.path)
            && self.method.as_deref().is_none_or(|method| method == request.method.as_str())
            && self.headers.iter().all(|(name, value)| has_header(request.headers, name, value))
            && self.query.iter().all(|(name, value)| has_parameter(request.query.unwrap_or_default(), name, value))
    }

    fn specificity(&self) -> Specificity {
        let (exact_path, path_len) = match &self.path {
            PathMatch::Exact(path) => (true, path.len()),
            PathMatch::Prefix(path) => (false, without_final_slash(path).len()),
        };
        Specificity {
            exact_path,
            path_len,
            method: self.method.is_some(),
            headers: self.headers.len(),
            query: self.query.len(),
        }
    }
}

impl PathMatch {
    /// Whether `path` is one of those that are meant.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Prefix(prefix) => path
                .strip_prefix(without_final_slash(prefix))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        }
    }
}

impl PathChange {
    /// What becomes of `path`, which `matched` has matched. A rule with an exact path has no prefix: the whole path counts
    /// as one.
    pub fn apply(&self, matched: &PathMatch, path: &str) -> String {
        let (to, rest) = match (self, matched) {
            (Self::Full(to), _) => return to.clone(),
            (Self::Prefix(to), PathMatch::Exact(_)) => (to, ""),
            (Self::Prefix(to), PathMatch::Prefix(prefix)) => {
                (to, path.strip_prefix(without_final_slash(prefix)).unwrap_or_default())
            }
        };
        match (without_final_slash(to), rest) {
            ("", "") => "/".to_owned(),
            (_, "") => to.clone(),
            (to, rest) => format!("{to}{rest}"),
        }
    }
}

fn without_final_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Of a header that is sent several times, any value may match.
fn has_header(headers: &http::HeaderMap, name: &str, value: &str) -> bool {
    headers.get_all(name).iter().any(|sent| sent.as_bytes() == value.as_bytes())
}

/// Of a parameter that is sent several times, the first counts.
fn has_parameter(query: &str, name: &str, value: &str) -> bool {
    let mut parameters = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    parameters.find(|(sent, _)| decoded(sent).eq(name.bytes())).is_some_and(|(_, sent)| decoded(sent).eq(value.bytes()))
}

/// The bytes of a form-encoded text; a `%` without two hexadecimal digits stands for itself.
fn decoded(text: &str) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (byte, tail) = match *rest {
            [b'%', high, low, ref tail @ ..] => hex(high, low).map_or((b'%', &rest[1..]), |byte| (byte, tail)),
            [b'+', ref tail @ ..] => (b' ', tail),
            [byte, ref tail @ ..] => (byte, tail),
            [] => return None,
        };
        rest = tail;
        Some(byte)
    })
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests;
