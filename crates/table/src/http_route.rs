use std::sync::Arc;

use crate::backend::Backends;
use crate::host_map::HostMap;
use crate::listener::RouteId;

/// The HTTP routes of one listener: found by host, then by the first rule that matches.
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
    /// 301 or 302.
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
