//! From the rules of an HTTPRoute to matches and filters of the table.
//!
//! What is not supported is never left out of a rule: the rule then answers its requests with 500, as the standard asks
//! for filters that cannot be applied, and the route says so.

use std::time::Duration;

use gateway_api::httproutes::{
    HttpRouteRules, HttpRouteRulesFilters, HttpRouteRulesFiltersRequestHeaderModifier,
    HttpRouteRulesFiltersRequestRedirect, HttpRouteRulesFiltersRequestRedirectScheme,
    HttpRouteRulesFiltersResponseHeaderModifier, HttpRouteRulesFiltersType, HttpRouteRulesMatches,
    HttpRouteRulesMatchesHeaders, HttpRouteRulesMatchesHeadersType, HttpRouteRulesMatchesMethod,
    HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType, HttpRouteRulesMatchesQueryParams,
    HttpRouteRulesMatchesQueryParamsType, HttpRouteRulesTimeouts,
};
use portreeve_names::Hostname;
use portreeve_table::{HeaderChange, HttpFilters, HttpMatch, PathChange, PathMatch, Redirect};

use crate::duration;
use crate::references::BackendRef;

/// A rule of an HTTPRoute.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpRule {
    /// Those that can be read; a request that has one of them is the rule's.
    pub matches: Vec<HttpMatch>,
    pub filters: HttpFilters,
    /// What it asks for in vain; it then serves nothing.
    pub unsupported: Option<Unsupported>,
}

/// A part of a rule that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsupported {
    #[error("{0} matches of type RegularExpression are not supported; use Exact")]
    RegularExpression(&'static str),
    #[error("path '{0}' does not start with '/'")]
    Path(String),
    #[error("filters of type {0} are not supported")]
    Filter(&'static str),
    #[error("a filter of type {0} lacks its settings")]
    EmptyFilter(&'static str),
    #[error("filters on backendRefs are not supported; put them on the rule")]
    BackendFilter,
    #[error("'{0}' is not a duration; write it like 10s")]
    Duration(String),
    #[error("'{0}' is not a path to send requests to")]
    PathChange(String),
    #[error("'{0}' is not a host name")]
    Hostname(String),
    #[error("a path can be replaced or redirected as a prefix only where every match of the rule is a PathPrefix")]
    NoPrefix,
    #[error("a redirect cannot answer {0}; use 301, 302, 303, 307 or 308")]
    RedirectStatus(i64),
    #[error("{0} is not a port")]
    RedirectPort(i32),
    #[error("'{0}' is not a header name, or its value cannot be sent")]
    Header(String),
}

impl From<&HttpRouteRules> for HttpRule {
    fn from(rule: &HttpRouteRules) -> Self {
        let (matches, unreadable) = read_matches(rule.matches.as_deref().unwrap_or_default());
        let filters = read_filters(rule.filters.as_deref().unwrap_or_default());
        let mut refused = unreadable.or(filters.as_ref().err().cloned());
        let timeout = read_timeouts(rule.timeouts.as_ref());
        if let Some(problem) = timeout.as_ref().err() {
            refused.get_or_insert(problem.clone());
        }
        let mut filters = filters.unwrap_or_default();
        filters.timeout = timeout.ok().flatten();
        if changes_prefix(&filters) && matches.iter().any(|one| matches!(one.path, PathMatch::Exact(_))) {
            refused.get_or_insert(Unsupported::NoPrefix);
        }
        if rule.backend_refs.iter().flatten().any(|reference| BackendRef::from(reference).filtered) {
            refused.get_or_insert(Unsupported::BackendFilter);
        }
        Self { matches, filters, unsupported: refused }
    }
}

/// The rule of a route that has none: every request (the default of `HTTPRoute.spec.rules`).
impl Default for HttpRule {
    fn default() -> Self {
        Self { matches: vec![any_request()], filters: HttpFilters::default(), unsupported: None }
    }
}

fn any_request() -> HttpMatch {
    HttpMatch { path: PathMatch::Prefix("/".to_owned()), method: None, headers: Vec::new(), query: Vec::new() }
}

/// The matches that can be read, and why the first of the others cannot.
fn read_matches(matches: &[HttpRouteRulesMatches]) -> (Vec<HttpMatch>, Option<Unsupported>) {
    if matches.is_empty() {
        return (vec![any_request()], None);
    }
    let mut unreadable = None;
    let mut readable = Vec::new();
    for one in matches {
        match read_match(one) {
            Ok(one) => readable.push(one),
            Err(problem) => _ = unreadable.get_or_insert(problem),
        }
    }
    (readable, unreadable)
}

fn read_match(one: &HttpRouteRulesMatches) -> Result<HttpMatch, Unsupported> {
    let headers = one.headers.iter().flatten().map(read_header).collect::<Result<_, _>>()?;
    let query = one.query_params.iter().flatten().map(read_parameter).collect::<Result<_, _>>()?;
    Ok(HttpMatch {
        path: one.path.as_ref().map_or(Ok(any_request().path), read_path)?,
        method: one.method.as_ref().map(|method| method_name(method).to_owned()),
        headers: first_of_each(headers),
        query: first_of_each(query),
    })
}

/// "Only the first entry with an equivalent name MUST be considered for a match."
fn first_of_each(pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut kept: Vec<(String, String)> = Vec::new();
    for (name, value) in pairs {
        if kept.iter().all(|(other, _)| *other != name) {
            kept.push((name, value));
        }
    }
    kept
}

fn read_path(path: &HttpRouteRulesMatchesPath) -> Result<PathMatch, Unsupported> {
    let value = path.value.as_deref().unwrap_or("/").to_owned();
    if !value.starts_with('/') && path.r#type != Some(HttpRouteRulesMatchesPathType::RegularExpression) {
        return Err(Unsupported::Path(value));
    }
    match path.r#type {
        Some(HttpRouteRulesMatchesPathType::Exact) => Ok(PathMatch::Exact(value)),
        Some(HttpRouteRulesMatchesPathType::PathPrefix) | None => Ok(PathMatch::Prefix(value)),
        Some(HttpRouteRulesMatchesPathType::RegularExpression) => Err(Unsupported::RegularExpression("path")),
    }
}

fn read_header(header: &HttpRouteRulesMatchesHeaders) -> Result<(String, String), Unsupported> {
    match header.r#type {
        None | Some(HttpRouteRulesMatchesHeadersType::Exact) => {
            Ok((header.name.to_ascii_lowercase(), header.value.clone()))
        }
        Some(HttpRouteRulesMatchesHeadersType::RegularExpression) => Err(Unsupported::RegularExpression("header")),
    }
}

fn read_parameter(parameter: &HttpRouteRulesMatchesQueryParams) -> Result<(String, String), Unsupported> {
    match parameter.r#type {
        None | Some(HttpRouteRulesMatchesQueryParamsType::Exact) => {
            Ok((parameter.name.clone(), parameter.value.clone()))
        }
        Some(HttpRouteRulesMatchesQueryParamsType::RegularExpression) => {
            Err(Unsupported::RegularExpression("query parameter"))
        }
    }
}

fn method_name(method: &HttpRouteRulesMatchesMethod) -> &'static str {
    match method {
        HttpRouteRulesMatchesMethod::Get => "GET",
        HttpRouteRulesMatchesMethod::Head => "HEAD",
        HttpRouteRulesMatchesMethod::Post => "POST",
        HttpRouteRulesMatchesMethod::Put => "PUT",
        HttpRouteRulesMatchesMethod::Delete => "DELETE",
        HttpRouteRulesMatchesMethod::Connect => "CONNECT",
        HttpRouteRulesMatchesMethod::Options => "OPTIONS",
        HttpRouteRulesMatchesMethod::Trace => "TRACE",
        HttpRouteRulesMatchesMethod::Patch => "PATCH",
    }
}

fn read_filters(filters: &[HttpRouteRulesFilters]) -> Result<HttpFilters, Unsupported> {
    let mut read = HttpFilters::default();
    for filter in filters {
        match filter.r#type {
            HttpRouteRulesFiltersType::RequestHeaderModifier => {
                let modifier = filter.request_header_modifier.as_ref();
                let modifier = modifier.ok_or(Unsupported::EmptyFilter("RequestHeaderModifier"))?;
                read.request_headers.extend(Vec::try_from(Changes::from(modifier))?);
            }
            HttpRouteRulesFiltersType::ResponseHeaderModifier => {
                let modifier = filter.response_header_modifier.as_ref();
                let modifier = modifier.ok_or(Unsupported::EmptyFilter("ResponseHeaderModifier"))?;
                read.response_headers.extend(Vec::try_from(Changes::from(modifier))?);
            }
            HttpRouteRulesFiltersType::RequestRedirect => {
                let redirect = filter.request_redirect.as_ref();
                read.redirect = Some(read_redirect(redirect.ok_or(Unsupported::EmptyFilter("RequestRedirect"))?)?);
            }
            HttpRouteRulesFiltersType::RequestMirror => return Err(Unsupported::Filter("RequestMirror")),
            HttpRouteRulesFiltersType::UrlRewrite => {
                let rewrite = filter.url_rewrite.as_ref().ok_or(Unsupported::EmptyFilter("URLRewrite"))?;
                let path = rewrite.path.as_ref();
                read.path = read_path_change(path.map(|path| (&path.replace_full_path, &path.replace_prefix_match)))?;
                read.hostname = rewrite.hostname.as_deref().map(read_hostname).transpose()?;
            }
            HttpRouteRulesFiltersType::ExtensionRef => return Err(Unsupported::Filter("ExtensionRef")),
            HttpRouteRulesFiltersType::Cors => return Err(Unsupported::Filter("CORS")),
        }
    }
    Ok(read)
}

fn read_redirect(redirect: &HttpRouteRulesFiltersRequestRedirect) -> Result<Redirect, Unsupported> {
    let path = redirect.path.as_ref();
    let path = read_path_change(path.map(|path| (&path.replace_full_path, &path.replace_prefix_match)))?;
    let scheme = redirect.scheme.as_ref().map(|scheme| match scheme {
        HttpRouteRulesFiltersRequestRedirectScheme::Http => "http",
        HttpRouteRulesFiltersRequestRedirectScheme::Https => "https",
    });
    let status = match redirect.status_code.unwrap_or(302) {
        301 => 301,
        302 => 302,
        303 => 303,
        307 => 307,
        308 => 308,
        other => return Err(Unsupported::RedirectStatus(other)),
    };
    let port = |port| u16::try_from(port).map_err(|_| Unsupported::RedirectPort(port));
    Ok(Redirect {
        scheme: scheme.map(str::to_owned),
        hostname: redirect.hostname.clone(),
        port: redirect.port.map(port).transpose()?,
        path,
        status,
    })
}

/// Both kinds of change; one of them is there, as the API server sees to it.
fn read_path_change(change: Option<(&Option<String>, &Option<String>)>) -> Result<Option<PathChange>, Unsupported> {
    let change = match change {
        None => return Ok(None),
        Some((Some(full), None)) => PathChange::Full(full.clone()),
        Some((None, Some(prefix))) => PathChange::Prefix(prefix.clone()),
        Some(_) => return Err(Unsupported::PathChange(String::new())),
    };
    let (PathChange::Full(to) | PathChange::Prefix(to)) = &change;
    let is_whole = matches!(change, PathChange::Full(_));
    // An empty prefix is taken away. Neither may bring a query along.
    let is_path = to.starts_with('/') && !to.contains(['?', '#']) && http::uri::PathAndQuery::try_from(&**to).is_ok();
    if is_path || (to.is_empty() && !is_whole) { Ok(Some(change)) } else { Err(Unsupported::PathChange(to.clone())) }
}

fn changes_prefix(filters: &HttpFilters) -> bool {
    let of_redirect = filters.redirect.as_ref().and_then(|redirect| redirect.path.as_ref());
    [filters.path.as_ref(), of_redirect].into_iter().flatten().any(|change| matches!(change, PathChange::Prefix(_)))
}

fn read_hostname(text: &str) -> Result<String, Unsupported> {
    Hostname::parse(text).map(String::from).map_err(|_| Unsupported::Hostname(text.to_owned()))
}

/// The shorter of both: there is one attempt that is answered. A duration of zero is none (GEP-1742).
fn read_timeouts(timeouts: Option<&HttpRouteRulesTimeouts>) -> Result<Option<Duration>, Unsupported> {
    let both = timeouts.map(|timeouts| [&timeouts.request, &timeouts.backend_request]);
    let texts = both.into_iter().flatten().flatten();
    let read = |text: &String| duration::parse(text).ok_or_else(|| Unsupported::Duration(text.clone()));
    let durations = texts.map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(durations.into_iter().filter(|duration| !duration.is_zero()).min())
}

/// What a header modifier does, as pairs of name and value.
struct Changes<'a> {
    set: Vec<(&'a str, &'a str)>,
    add: Vec<(&'a str, &'a str)>,
    remove: &'a [String],
}

macro_rules! changes_from {
    ($($modifier:ty),*) => {$(
        impl<'a> From<&'a $modifier> for Changes<'a> {
            fn from(modifier: &'a $modifier) -> Self {
                Self {
                    set: modifier.set.iter().flatten().map(|header| (&*header.name, &*header.value)).collect(),
                    add: modifier.add.iter().flatten().map(|header| (&*header.name, &*header.value)).collect(),
                    remove: modifier.remove.as_deref().unwrap_or_default(),
                }
            }
        }
    )*};
}

changes_from!(HttpRouteRulesFiltersRequestHeaderModifier, HttpRouteRulesFiltersResponseHeaderModifier);

impl TryFrom<Changes<'_>> for Vec<HeaderChange> {
    type Error = Unsupported;

    fn try_from(changes: Changes<'_>) -> Result<Self, Unsupported> {
        let named = |(name, value): &(&str, &str)| sendable(name, value);
        let sets = changes.set.iter().map(|pair| named(pair).map(|(name, value)| HeaderChange::Set(name, value)));
        let adds = changes.add.iter().map(|pair| named(pair).map(|(name, value)| HeaderChange::Add(name, value)));
        let removes = changes.remove.iter().map(|name| sendable(name, "").map(|(name, _)| HeaderChange::Remove(name)));
        sets.chain(adds).chain(removes).collect()
    }
}

/// A header that HTTP can carry; so that nobody smuggles a line break in, and none is lost later without a word.
fn sendable(name: &str, value: &str) -> Result<(String, String), Unsupported> {
    let is_good = http::HeaderName::try_from(name).is_ok() && http::HeaderValue::try_from(value).is_ok();
    if is_good { Ok((name.to_owned(), value.to_owned())) } else { Err(Unsupported::Header(name.to_owned())) }
}
