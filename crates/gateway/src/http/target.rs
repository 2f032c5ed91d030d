//! What a request asks for.

use http::header::HOST;
use http::uri::Authority;
use http::{Method, Request, Version};
use portreeve_names::Hostname;

use crate::observe::Outcome;

/// The host that a request is for.
pub(super) struct Target {
    /// As the client wrote it, with the port; goes to the backend unchanged (Gateway API, `HTTPRouteSpec.hostnames`).
    pub(super) authority: Option<Authority>,
    /// Without the port; `None` if it is no name, such as an address.
    pub(super) host: Option<Hostname>,
}

impl Target {
    /// Reads the host, and refuses what would mean one thing here and another at the backend.
    pub(super) fn of<B>(request: &Request<B>) -> Result<Self, Outcome> {
        if request.method() == Method::CONNECT || leaves_its_path(request.uri().path()) {
            return Err(Outcome::BadRequest);
        }
        let authority = authority(request)?;
        let host = authority.as_ref().and_then(|authority| Hostname::parse(authority.host()).ok());
        Ok(Self { authority, host })
    }
}

/// RFC 9112, section 3.2: exactly one `Host` in HTTP/1.1, and what the request line or `:authority` says comes first.
fn authority<B>(request: &Request<B>) -> Result<Option<Authority>, Outcome> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let authority = match (request.uri().authority(), hosts.next(), hosts.next()) {
        (Some(authority), _, None) => Some(authority.clone()),
        (None, None, None) if request.version() == Version::HTTP_10 => None,
        (_, _, Some(_)) | (None, None, None) => return Err(Outcome::BadRequest),
        (None, Some(host), None) if host.is_empty() => None,
        (None, Some(host), None) => Some(Authority::try_from(host.as_bytes()).map_err(|_| Outcome::BadRequest)?),
    };
    match authority {
        Some(authority) if authority.as_str().contains('@') => Err(Outcome::BadRequest),
        authority => Ok(authority),
    }
}

/// Whether a path has `.` or `..` segments, also in disguise.
///
/// A backend that resolves them would serve another path than the one that was routed, and protected. Clients resolve
/// them before they ask (RFC 3986, section 5.2.4), so nobody else is hurt.
fn leaves_its_path(path: &str) -> bool {
    if !path.contains("/.") && !path.contains('%') {
        return false;
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/");
    plain.split('/').any(|segment| segment == "." || segment == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, uri: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).unwrap()
    }

    fn host(version: Version, uri: &str, hosts: &[&str]) -> Result<Option<String>, Outcome> {
        Target::of(&request(version, uri, hosts)).map(|target| target.host.map(String::from))
    }

    #[test]
    fn the_host_is_read_without_case_and_port() {
        let name = Ok(Some("a.example.com".to_owned()));
        assert_eq!(host(Version::HTTP_11, "/", &["A.Example.Com.:8443"]), name);
        assert_eq!(host(Version::HTTP_11, "http://a.example.com/", &["b.example.com"]), name);
        assert_eq!(host(Version::HTTP_2, "https://a.example.com:8443/", &[]), name);
        assert_eq!(host(Version::HTTP_10, "/", &["a.example.com"]), name);
    }

    #[test]
    fn an_address_is_no_name() {
        for text in ["192.0.2.7", "192.0.2.7:80", "[2001:db8::7]:80", ""] {
            assert_eq!(host(Version::HTTP_11, "/", &[text]), Ok(None), "{text}");
        }
        assert_eq!(host(Version::HTTP_10, "/", &[]), Ok(None));
    }

    #[test]
    fn a_host_that_can_be_read_in_two_ways_is_refused() {
        let two = ["a.example.com", "b.example.com"];
        for hosts in [&two[..], &["user@a.example.com"], &["a b"], &["a.example.com/x"], &[]] {
            assert_eq!(host(Version::HTTP_11, "/", hosts), Err(Outcome::BadRequest), "{hosts:?}");
        }
    }

    #[test]
    fn a_path_that_leaves_itself_is_refused() {
        for path in ["/a/../b", "/a/..", "/a/%2e%2E/b", "/a/.%2e", "/a/./b", "/a/..%2fb", "/a%2F..%2fb"] {
            assert_eq!(host(Version::HTTP_11, path, &["a.com"]), Err(Outcome::BadRequest), "{path}");
        }
        for path in ["/a/...", "/.well-known/x", "/a/..b", "/a%20b", "/a?x=/../", "/a.b/c.", "*"] {
            assert!(host(Version::HTTP_11, path, &["a.com"]).is_ok(), "{path}");
        }
    }
}
