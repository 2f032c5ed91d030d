use http::{HeaderMap, Method};

use super::*;

fn path(match_: PathMatch) -> HttpMatch {
    HttpMatch { path: match_, method: None, headers: Vec::new(), query: Vec::new() }
}

fn exact(text: &str) -> HttpMatch {
    path(PathMatch::Exact(text.to_owned()))
}

fn prefix(text: &str) -> HttpMatch {
    path(PathMatch::Prefix(text.to_owned()))
}

impl HttpMatch {
    fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn parameter(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }
}

fn routes(matches: Vec<(&str, &str, HttpMatch)>) -> HttpRoutes {
    let mut routes = HttpRoutes::default();
    for (id, hosts, matches) in matches {
        let hosts = if hosts == "*" { HostPattern::Any } else { HostPattern::parse(hosts).unwrap() };
        let (filters, backends) = (HttpFilters::default(), Arc::default());
        routes.insert(hosts, HttpRoute { id: RouteId(id.into()), matches, filters, backends, login: None });
    }
    routes
}

/// `GET host/path?query` with headers: which route takes it.
fn taker<'a>(routes: &'a HttpRoutes, url: &str, headers: &[(&'static str, &str)]) -> Option<&'a str> {
    ask(routes, &Method::GET, url, headers)
}

fn ask<'a>(routes: &'a HttpRoutes, method: &Method, url: &str, headers: &[(&'static str, &str)]) -> Option<&'a str> {
    let (host, rest) = url.split_at(url.find('/')?);
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let head = HttpRequestHead { path, query, method, headers: &map };
    routes.find(Hostname::parse(host).ok().as_ref(), &head).map(|route| &*route.id.0)
}

#[test]
fn a_prefix_is_made_of_whole_elements() {
    for (prefix, path, expected) in [
        ("/foo", "/foo", true),
        ("/foo", "/foo/", true),
        ("/foo", "/foo/bar", true),
        ("/foo", "/foobar", false),
        ("/foo/", "/foo", true),
        ("/foo/", "/foo/bar", true),
        ("/foo/", "/foobar", false),
        ("/", "/", true),
        ("/", "/anything", true),
        ("/foo", "/Foo", false),
        ("/foo", "/", false),
    ] {
        assert_eq!(PathMatch::Prefix(prefix.to_owned()).matches(path), expected, "{prefix} and {path}");
    }
}

#[test]
fn an_exact_path_is_the_whole_path() {
    assert!(PathMatch::Exact("/foo".to_owned()).matches("/foo"));
    for other in ["/foo/", "/foo/bar", "/FOO", "/"] {
        assert!(!PathMatch::Exact("/foo".to_owned()).matches(other), "{other}");
    }
}

/// Origin: conformance `HTTPRoutePathMatchOrder`.
#[test]
fn an_exact_path_beats_every_prefix_and_the_longer_prefix_the_shorter() {
    let routes = routes(vec![
        ("root", "*", prefix("/")),
        ("short", "*", prefix("/match")),
        ("long", "*", prefix("/match/prefix/")),
        ("exact", "*", exact("/match/exact/one")),
    ]);
    assert_eq!(taker(&routes, "a.com/match/exact/one", &[]), Some("exact"));
    assert_eq!(taker(&routes, "a.com/match/exact", &[]), Some("short"));
    assert_eq!(taker(&routes, "a.com/match/prefix/one", &[]), Some("long"));
    assert_eq!(taker(&routes, "a.com/match/prefix", &[]), Some("long"));
    assert_eq!(taker(&routes, "a.com/other", &[]), Some("root"));
}

#[test]
fn then_a_method_then_more_headers_then_more_parameters_count() {
    let routes = routes(vec![
        ("plain", "*", prefix("/")),
        ("parameter", "*", prefix("/").parameter("q", "1")),
        ("two parameters", "*", prefix("/").parameter("q", "1").parameter("r", "2")),
        ("header", "*", prefix("/").header("x-a", "1")),
        ("two headers", "*", prefix("/").header("x-a", "1").header("x-b", "2")),
        ("method", "*", prefix("/").method("PUT")),
    ]);
    let both = [("x-a", "1"), ("x-b", "2")];
    assert_eq!(ask(&routes, &Method::PUT, "a.com/?q=1", &both), Some("method"));
    assert_eq!(taker(&routes, "a.com/?q=1&r=2", &both), Some("two headers"));
    assert_eq!(taker(&routes, "a.com/?q=1&r=2", &both[..1]), Some("header"));
    assert_eq!(taker(&routes, "a.com/?q=1&r=2", &[]), Some("two parameters"));
    assert_eq!(taker(&routes, "a.com/?q=1&r=3", &[]), Some("parameter"));
    assert_eq!(taker(&routes, "a.com/?q=2", &[]), Some("plain"));
}

#[test]
fn among_equals_the_first_wins() {
    let routes = routes(vec![("older", "*", prefix("/a")), ("younger", "*", prefix("/a/"))]);
    assert_eq!(taker(&routes, "a.com/a", &[]), Some("older"));
}

/// Origin: conformance `HTTPRouteMatchingAcrossRoutes`.
#[test]
fn a_more_specific_match_of_another_route_wins_on_the_hosts_that_it_is_for() {
    let one = [prefix("/"), prefix("/").header("version", "one")];
    let two = [prefix("/v2"), prefix("/").header("version", "two")];
    let mut matches = Vec::new();
    for host in ["example.com", "example.net"] {
        matches.extend(one.iter().map(|rule| ("v1", host, rule.clone())));
    }
    matches.extend(two.iter().map(|rule| ("v2", "example.com", rule.clone())));
    let routes = routes(matches);
    assert_eq!(taker(&routes, "example.com/", &[]), Some("v1"));
    assert_eq!(taker(&routes, "example.com/example", &[("version", "one")]), Some("v1"));
    assert_eq!(taker(&routes, "example.net/v2", &[]), Some("v1"));
    assert_eq!(taker(&routes, "example.com/v2/example", &[]), Some("v2"));
    assert_eq!(taker(&routes, "example.com/", &[("version", "two")]), Some("v2"));
    assert_eq!(taker(&routes, "example.org/", &[]), None);
}

/// Origin: Gateway API, `HTTPRouteSpec.hostnames` ("precedence must be given to rules"); envoyproxy/gateway#5500.
#[test]
fn a_wider_host_takes_what_no_rule_of_a_narrower_one_matches() {
    let routes = routes(vec![
        ("any", "*", exact("/any")),
        ("wildcard", "*.example.com", prefix("/bar")),
        ("wildcard exact", "*.example.com", exact("/foo/x")),
        ("exact", "a.example.com", prefix("/foo")),
    ]);
    assert_eq!(taker(&routes, "a.example.com/foo/x", &[]), Some("exact"), "the host counts before the path");
    assert_eq!(taker(&routes, "a.example.com/bar", &[]), Some("wildcard"));
    assert_eq!(taker(&routes, "a.example.com/any", &[]), Some("any"));
    assert_eq!(taker(&routes, "a.example.com/other", &[]), None);
    assert_eq!(taker(&routes, "b.example.com/foo", &[]), None);
}

#[test]
fn a_request_without_a_host_is_only_for_rules_of_any_host() {
    let routes = routes(vec![("named", "a.com", prefix("/")), ("any", "*", prefix("/any"))]);
    assert_eq!(taker(&routes, "/any", &[]), Some("any"));
    assert_eq!(taker(&routes, "/", &[]), None);
}

#[test]
fn header_names_have_no_case_and_any_value_may_match() {
    let routes = routes(vec![("header", "*", prefix("/").header("x-colour", "red"))]);
    assert_eq!(taker(&routes, "a.com/", &[("X-Colour", "blue"), ("x-colour", "red")]), Some("header"));
    assert_eq!(taker(&routes, "a.com/", &[("x-colour", "Red")]), None);
    assert_eq!(taker(&routes, "a.com/", &[]), None);
}

#[test]
fn parameters_are_decoded_and_the_first_of_a_name_counts() {
    let routes = routes(vec![("parameter", "*", prefix("/").parameter("a b", "x&y%"))]);
    for query in ["a+b=x%26y%", "other&a%20b=x%26y%25&a+b=z"] {
        assert_eq!(taker(&routes, &format!("a.com/?{query}"), &[]), Some("parameter"), "{query}");
    }
    for query in ["a+b=z&a+b=x%26y%25", "a+b", "", "a=b"] {
        assert_eq!(taker(&routes, &format!("a.com/?{query}"), &[]), None, "{query}");
    }
}

/// Origin: Gateway API, the table of `HTTPPathModifier.replacePrefixMatch`.
#[test]
fn a_prefix_is_replaced_and_the_rest_stays() {
    for (path, prefix, to, expected) in [
        ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
        ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
        ("/foo", "/foo", "/xyz", "/xyz"),
        ("/foo/", "/foo", "/xyz", "/xyz/"),
        ("/foo/bar", "/foo", "", "/bar"),
        ("/foo/", "/foo", "", "/"),
        ("/foo", "/foo", "", "/"),
        ("/foo/", "/foo", "/", "/"),
        ("/foo", "/foo", "/", "/"),
        ("/bar", "/", "/xyz", "/xyz/bar"),
    ] {
        let matched = PathMatch::Prefix(prefix.to_owned());
        assert!(matched.matches(path));
        assert_eq!(PathChange::Prefix(to.to_owned()).apply(&matched, path), expected, "{path} {prefix} {to}");
    }
    let exact = PathMatch::Exact("/foo".to_owned());
    assert_eq!(PathChange::Full("/other".to_owned()).apply(&exact, "/foo"), "/other");
}
