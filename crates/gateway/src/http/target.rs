//! What a request asks for.

use http::header::{HOST, HeaderMap, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{Method, Request, Version};
use percent_encoding::percent_decode_str;
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
        let loses_its_coding = has_unknown_coding(request.headers());
        if request.method() == Method::CONNECT || loses_its_coding || leaves_its_path(request.uri().path()) {
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
        Some(authority) if !is_host_and_port(&authority) => Err(Outcome::BadRequest),
        authority => Ok(authority),
    }
}

/// Whether this is nothing but a host and perhaps a port; `Authority` also takes user names and any text for a port.
fn is_host_and_port(authority: &Authority) -> bool {
    match authority.as_str().strip_prefix(authority.host()) {
        Some("" | ":") => true,
        Some(port) => port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()),
        None => false,
    }
}

/// Whether the body has a transfer coding other than `chunked`, which ends here: the backend would get coded bytes and
/// not hear of it (RFC 9112, section 6.1).
fn has_unknown_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let first_is_known = codings.next().is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    !first_is_known || codings.next().is_some()
}

/// Whether a path has `.` or `..` segments, also in disguise.
///
/// A backend that resolves them would serve another path than the one that was routed, and protected. Clients resolve
/// them before they ask (RFC 3986, section 5.2.4), so nobody else is hurt. Some backends take `\` for `/`, and some
/// (servlets) leave out what follows `;`.
fn leaves_its_path(path: &str) -> bool {
    if !path.contains("/.") && !path.contains(['%', '\\']) {
        return false;
    }
    let mut plain = path.to_ascii_lowercase();
    for (disguise, meant) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("\\", "/"), ("%3b", ";")] {
        plain = plain.replace(disguise, meant);
    }
    plain.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// The path that a backend may take this one for, if that is another: one that decodes it, merges slashes, or leaves out what
/// follows `;`.
pub(super) fn plain_path(path: &str) -> Option<String> {
    if !path.contains(['%', '\\', ';']) && !path.contains("//") {
        return None;
    }
    let mut decoded = path.to_owned();
    // Some decode what was decoded.
    for _ in 0..MAX_DISGUISES {
        let once = percent_decode_str(&decoded).decode_utf8_lossy().into_owned();
        if once == decoded {
            break;
        }
        decoded = once;
    }
    let decoded = decoded.replace('\\', "/");
    let mut segments: Vec<&str> = Vec::new();
    for segment in decoded.split('/').map(|segment| segment.split(';').next().unwrap_or_default()) {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    Some(format!("/{}", segments.join("/")))
}

/// How often a path is decoded at most.
const MAX_DISGUISES: usize = 3;

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
    fn a_path_is_plain_as_backends_may_take_it() {
        assert_eq!(plain_path("/admin/x"), None);
        for path in ["//admin", "/%61dmin", "/;x/admin", "/%2fadmin", "/a/%252e%252e/admin", "/\\admin", "/%5Cadmin;y"]
        {
            assert_eq!(plain_path(path).as_deref(), Some("/admin"), "{path}");
        }
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
        for hosts in
            [&two[..], &["user@a.example.com"], &["a b"], &["a.example.com/x"], &["a.com:x"], &["a.com:65536"], &[]]
        {
            assert_eq!(host(Version::HTTP_11, "/", hosts), Err(Outcome::BadRequest), "{hosts:?}");
        }
    }

    #[test]
    fn a_path_that_leaves_itself_is_refused() {
        for path in [
            "/a/../b",
            "/a/..",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/a/./b",
            "/a/..%2fb",
            "/a%2F..%2fb",
            "/a/..;/b",
            "/a/..%3Bx=1/b",
            "/a/..%5cb",
            "/a\\..\\b",
        ] {
            assert_eq!(host(Version::HTTP_11, path, &["a.com"]), Err(Outcome::BadRequest), "{path}");
        }
        for path in ["/a/...", "/.well-known/x", "/a/..b", "/a%20b", "/a?x=/../", "/a.b/c.", "/a;x=1/b", "*"] {
            assert!(host(Version::HTTP_11, path, &["a.com"]).is_ok(), "{path}");
        }
    }

    /// Origin: `Transfer-Encoding: gzip, chunked` reached the backend as `chunked`.
    #[test]
    fn a_body_keeps_its_coding_or_is_refused() {
        let of = |codings: &[&str]| {
            let mut request = request(Version::HTTP_11, "/", &["a.com"]);
            for coding in codings {
                request.headers_mut().append(TRANSFER_ENCODING, coding.parse().unwrap());
            }
            Target::of(&request).is_ok()
        };
        assert!(of(&[]) && of(&["chunked"]) && of(&["Chunked"]));
        assert!(!of(&["gzip, chunked"]) && !of(&["identity", "chunked"]) && !of(&["chunked", "chunked"]));
    }
}
