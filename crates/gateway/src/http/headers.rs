//! What changes in the headers between client and backend.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use portreeve_table::HeaderChange;

use crate::http::target::Target;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Headers that are about one connection only (RFC 9110, section 7.6.1, and what proxies add by custom).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Says who asked, and how: what the gateway itself knows, in place of whatever else is commonly believed about a client.
/// A balancer in front says who asked by the PROXY protocol.
pub(super) fn set_forwarded(headers: &mut HeaderMap, target: &Target, peer: IpAddr, scheme: &'static str) {
    remove_claims(headers);
    set(headers, FORWARDED_FOR, HeaderValue::from_str(&peer.to_canonical().to_string()).ok());
    set(headers, FORWARDED_PROTO, Some(HeaderValue::from_static(scheme)));
    let host = target.authority.as_ref().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    set(headers, FORWARDED_HOST, host.clone());
    set(headers, HOST, host);
}

/// What only a proxy may say.
fn remove_claims(headers: &mut HeaderMap) {
    // Many backends read `_` in a name as `-`.
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let is_claim = |name: &HeaderName| {
        let starts_with = |claim: &str| {
            let start = name.as_str().as_bytes().get(..claim.len());
            start.is_some_and(|start| start.iter().copied().map(plain).eq(claim.bytes()))
        };
        let is = |claim: &str| name.as_str().len() == claim.len() && starts_with(claim);
        starts_with("x-forwarded-") || is(FORWARDED.as_str()) || is("x-real-ip")
    };
    let claims: Vec<HeaderName> = headers.keys().filter(|name| is_claim(name)).cloned().collect();
    for name in claims {
        headers.remove(name);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

/// Whether the client takes trailers, as gRPC does; this is what `TE` is still for in HTTP/2 (RFC 9113, section 8.2.2).
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// Says so to a backend.
pub(super) fn set_takes_trailers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
}

/// The backend is asked for another host than the client asked for.
pub(super) fn set_host(headers: &mut HeaderMap, hostname: &str) {
    set(headers, HOST, HeaderValue::from_str(hostname).ok());
}

/// HTTP/2 may split cookies over several headers, HTTP/1.1 may not (RFC 9113, section 8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// Removes what is about the connection on which the headers came; returns the protocol of an upgrade, if one is asked
/// for or agreed to.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let tokens = || headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let tokens: Vec<String> =
        tokens().flat_map(|value| value.split(',')).map(|token| token.trim().to_ascii_lowercase()).collect();
    let upgrade = headers.get(UPGRADE).filter(|_| tokens.iter().any(|token| token == UPGRADE.as_str())).cloned();
    // What says how long the body is must say it once (RFC 9112, section 6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    for token in &tokens {
        headers.remove(token.as_str());
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    upgrade
}

/// Whether an upgrade leads to more HTTP, now or inside TLS: its requests would go past the routes. It is not passed on,
/// and the request is served as it is (RFC 9110, section 7.8, lets a server ignore it).
pub(super) fn is_http_or_tls(protocols: &HeaderValue) -> bool {
    let protocols = protocols.as_bytes().to_ascii_lowercase();
    let mut protocols = protocols.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    protocols.any(|protocol| [&b"h2c"[..], b"http", b"tls"].iter().any(|one| protocol.starts_with(one)))
}

/// Asks for, or agrees to, an upgrade on the next connection.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Applies a route's changes. One whose name or value cannot be a header changes nothing.
pub(super) fn change(headers: &mut HeaderMap, changes: &[HeaderChange]) {
    for one in changes {
        match one {
            HeaderChange::Set(name, value) => drop(parse(name, value).map(|(name, value)| headers.insert(name, value))),
            HeaderChange::Add(name, value) => drop(parse(name, value).map(|(name, value)| headers.append(name, value))),
            HeaderChange::Remove(name) => drop(headers.remove(name)),
        }
    }
}

fn parse(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let parsed = name.parse().ok().zip(value.parse().ok());
    if parsed.is_none() {
        tracing::warn!(name, value, "a route sets a header that cannot be one");
    }
    parsed
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<(&str, &str)> {
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    #[test]
    fn what_is_about_one_connection_stays_there() {
        let mut map = headers(&[
            ("connection", "keep-alive, X-Private"),
            ("keep-alive", "timeout=5"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("x-public", "1"),
        ]);
        assert_eq!(remove_hop_by_hop(&mut map), None, "an upgrade must be named by Connection");
        assert_eq!(lines(&map), [("x-public", "1")]);
    }

    #[test]
    fn an_upgrade_is_found_whatever_else_is_named() {
        let mut map = headers(&[("connection", "keep-alive"), ("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(remove_hop_by_hop(&mut map).unwrap(), "websocket");
        assert!(map.is_empty());
    }

    #[test]
    fn the_backend_learns_who_asked() {
        let request = Request::builder().uri("/").header("host", "a.example.com:8443").body(()).unwrap();
        let target = Target::of(&request).unwrap();
        let mut map = headers(&[
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "192.0.2.2"),
            ("x-forwarded-proto", "forged"),
            ("x-forwarded-host", "forged.example.com"),
            ("x-forwarded-port", "1"),
            ("x-forwarded-prefix", "/forged"),
            ("x-real-ip", "192.0.2.9"),
            ("x_forwarded_for", "192.0.2.9"),
            ("x_real-ip", "192.0.2.9"),
            ("forwarded", "for=192.0.2.9"),
        ]);
        set_forwarded(&mut map, &target, "::ffff:192.0.2.3".parse().unwrap(), "https");
        let mut found = lines(&map);
        found.sort_unstable();
        let expected = [
            ("host", "a.example.com:8443"),
            ("x-forwarded-for", "192.0.2.3"),
            ("x-forwarded-host", "a.example.com:8443"),
            ("x-forwarded-proto", "https"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn cookies_become_one_header() {
        let mut map = headers(&[("cookie", "a=1"), ("cookie", "b=2")]);
        join_cookies(&mut map);
        assert_eq!(lines(&map), [("cookie", "a=1; b=2")]);
    }

    #[test]
    fn changes_are_applied_and_impossible_ones_are_not() {
        let mut map = headers(&[("x-set", "old"), ("x-add", "old"), ("x-gone", "old")]);
        let text = |text: &str| text.to_owned();
        let changes = [
            HeaderChange::Set(text("X-Set"), text("new")),
            HeaderChange::Add(text("X-Add"), text("new")),
            HeaderChange::Add(text("x-bad"), text("a\r\nb: c")),
            HeaderChange::Remove(text("X-Gone")),
            HeaderChange::Remove(text("not a name")),
        ];
        change(&mut map, &changes);
        let mut found = lines(&map);
        found.sort_unstable();
        assert_eq!(found, [("x-add", "new"), ("x-add", "old"), ("x-set", "new")]);
    }
}
