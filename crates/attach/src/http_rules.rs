//! From the rules of an HTTPRoute to matches and filters of the table.
//!
//! What is not supported is never left out of a rule: the rule then answers its requests with 500, as the standard asks
//! for filters that cannot be applied, and the route says so.

use gateway_api::httproutes::{
    HttpRouteRules, HttpRouteRulesFilters, HttpRouteRulesFiltersRequestHeaderModifier,
    HttpRouteRulesFiltersRequestRedirect, HttpRouteRulesFiltersRequestRedirectScheme,
    HttpRouteRulesFiltersResponseHeaderModifier, HttpRouteRulesFiltersType, HttpRouteRulesMatches,
    HttpRouteRulesMatchesHeaders, HttpRouteRulesMatchesHeadersType, HttpRouteRulesMatchesMethod,
    HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType, HttpRouteRulesMatchesQueryParams,
    HttpRouteRulesMatchesQueryParamsType,
};
use portreeve_table::{HeaderChange, HttpFilters, HttpMatch, PathMatch, Redirect};

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
    #[error("timeouts are not supported")]
    Timeouts,
    #[error("a redirect cannot change the path")]
    RedirectPath,
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
        if rule.timeouts.is_some() {
            refused.get_or_insert(Unsupported::Timeouts);
        }
        if rule.backend_refs.iter().flatten().any(|reference| BackendRef::from(reference).filtered) {
            refused.get_or_insert(Unsupported::BackendFilter);
        }
        Self { matches, filters: filters.unwrap_or_default(), unsupported: refused }
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
            HttpRouteRulesFiltersType::UrlRewrite => return Err(Unsupported::Filter("URLRewrite")),
            HttpRouteRulesFiltersType::ExtensionRef => return Err(Unsupported::Filter("ExtensionRef")),
            HttpRouteRulesFiltersType::Cors => return Err(Unsupported::Filter("CORS")),
        }
    }
    Ok(read)
}

fn read_redirect(redirect: &HttpRouteRulesFiltersRequestRedirect) -> Result<Redirect, Unsupported> {
    if redirect.path.is_some() {
        return Err(Unsupported::RedirectPath);
    }
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
        status,
    })
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
