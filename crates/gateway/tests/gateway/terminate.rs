//! TLS that ends here.

use std::sync::Arc;

use ::http::StatusCode;
use portreeve_gateway::Outcome;
use rustls::client::Tls13ClientSessionValue;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, NamedGroup};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::backends::{Scheduler, echo, http};
use crate::bed::{
    Bed, http_routes, listener_id, passthrough, route_id, soon, terminate_http, terminate_tcp, tls_port, to,
};
use crate::clients::{
    Answer, assert_echo, http1, http2, peer_certificate, read_line, request, server_name, tls, tls_config, tls_shared,
};
use crate::identity::Identity;

#[tokio::test]
async fn the_certificate_is_that_of_the_most_specific_listener() {
    let identities = ["any.example.com", "*.example.com", "a.example.com"].map(|name| Identity::new(&[name]));
    let backend = http("app").await;
    let listener = |index: usize| terminate_http(&identities[index], http_routes([("/", to(&[backend]))]));
    let listeners = [("*", listener(0)), ("*.example.com", listener(1)), ("a.example.com", listener(2))];
    let (_bed, address) = Bed::serving(tls_port(listeners)).await;
    for (sni, index) in [("a.example.com", 2), ("b.example.com", 1), ("example.org", 0), ("127.0.0.1", 0)] {
        let client = tls(address, sni, tls_config(None, &[])).await.unwrap();
        assert_eq!(peer_certificate(&client), identities[index].certificate, "{sni}");
    }
}

/// Origin: pains row 7. The next handshake has the new certificate, and what is open goes on.
#[tokio::test]
async fn a_changed_certificate_serves_the_next_handshake() {
    let (old, new) = (Identity::new(&["a.example.com"]), Identity::new(&["a.example.com"]));
    let backend = echo("backend").await;
    let port = |identity| tls_port([("*", terminate_tcp(identity, [("*", to(&[backend]))]))]);
    let (mut bed, address) = Bed::serving(port(&old)).await;
    let mut before = tls(address, "a.example.com", tls_config(None, &[])).await.unwrap();
    assert_eq!(peer_certificate(&before), old.certificate);
    assert_eq!(read_line(&mut before).await, "backend");
    bed.serve(port(&new)).await;
    let after = tls(address, "a.example.com", tls_config(None, &[])).await.unwrap();
    assert_eq!(peer_certificate(&after), new.certificate);
    assert_echo(&mut before, "still here").await;
}

#[tokio::test]
async fn http_of_both_versions_is_inside() {
    let identity = Identity::new(&["a.example.com"]);
    let routes = http_routes([("/", to(&[http("app").await]))]);
    let (bed, address) = Bed::serving(tls_port([("a.example.com", terminate_http(&identity, routes))])).await;

    let client = tls(address, "a.example.com", tls_config(None, &["http/1.1"])).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let response = soon(http1(client).await.send_request(request("a.example.com", "/one"))).await.unwrap();
    let answer = Answer::of(response).await;
    assert!(answer.saw("GET /one") && answer.saw("x-forwarded-proto: https"), "{answer:?}");

    let client = tls(address, "a.example.com", tls_config(None, &["h2", "http/1.1"])).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut sender = http2(client).await;
    let mut asked = request("ignored", "https://a.example.com/two");
    asked.headers_mut().remove("host");
    asked.headers_mut().append("cookie", "a=1".parse().unwrap());
    asked.headers_mut().append("cookie", "b=2".parse().unwrap());
    let answer = Answer::of(soon(sender.send_request(asked)).await.unwrap()).await;
    for line in ["GET /two", "host: a.example.com", "cookie: a=1; b=2", "x-forwarded-host: a.example.com"] {
        assert!(answer.saw(line), "{line}: {answer:?}");
    }
    for version in ["one", "two"] {
        let record = bed.records.finished().await;
        assert_eq!(record.outcome, Outcome::Served, "{version}");
        assert_eq!(record.listener, Some(listener_id("a.example.com")));
        assert_eq!(record.route, Some(route_id("/")));
        assert_eq!(record.request.unwrap().path, format!("/{version}"));
    }
}

/// Origin: pains row 2. One port, and a scheduler's own TLS beside a certificate for all other names.
#[tokio::test]
async fn https_and_passthrough_share_a_port() {
    let (ours, theirs) = (Identity::new(&["*.example.com"]), Identity::new(&["dask-internal"]));
    let scheduler = Scheduler::start("scheduler", &theirs).await;
    let listeners = [
        ("*.example.com", terminate_http(&ours, http_routes([("/", to(&[http("app").await]))]))),
        ("dask.example.com", passthrough([("dask.example.com", to(&[scheduler.address]))])),
    ];
    let (_bed, address) = Bed::serving(tls_port(listeners)).await;
    let app = tls(address, "app.example.com", tls_config(None, &[])).await.unwrap();
    assert_eq!(peer_certificate(&app), ours.certificate);
    let mut dask = tls(address, "dask.example.com", tls_config(Some(&theirs), &[])).await.unwrap();
    assert_eq!(peer_certificate(&dask), theirs.certificate);
    assert_eq!(read_line(&mut dask).await, "scheduler");
}

/// Origin: conformance `TLSRouteTerminateSimpleSameNamespace`, `TLSRouteMixedTerminationSameNamespace`.
#[tokio::test]
async fn what_is_inside_goes_on_as_plain_bytes() {
    let identity = Identity::new(&["tls.example.com"]);
    let service = terminate_tcp(&identity, [("tls.example.com", to(&[echo("plain").await]))]);
    let (bed, address) = Bed::serving(tls_port([("tls.example.com", service)])).await;
    let mut client = tls(address, "tls.example.com", tls_config(None, &[])).await.unwrap();
    assert_eq!(peer_certificate(&client), identity.certificate);
    assert_eq!(read_line(&mut client).await, "plain");
    assert_echo(&mut client, "hello").await;
    client.shutdown().await.unwrap();
    assert_eq!(hear_rest(&mut client).await, "bye", "the client may be done first, also inside TLS");
    let record = bed.records.finished().await;
    assert_eq!((record.outcome, record.traffic.received, record.traffic.sent), (Outcome::Served, 5, 14));
}

async fn hear_rest(stream: &mut tokio_rustls::client::TlsStream<TcpStream>) -> String {
    let mut heard = String::new();
    soon(tokio::io::AsyncReadExt::read_to_string(stream, &mut heard)).await.unwrap();
    heard
}

#[tokio::test]
async fn a_failed_handshake_is_recorded() {
    let identity = Identity::new(&["a.example.com"]);
    let service = terminate_http(&identity, http_routes([]));
    let (bed, address) = Bed::serving(tls_port([("a.example.com", service)])).await;
    let error = tls(address, "a.example.com", tls_config(None, &["no-such-protocol"])).await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "where TLS ends, an alert is right: {error}");
    let record = bed.records.finished().await;
    assert_eq!((record.outcome, record.listener), (Outcome::HandshakeFailed, Some(listener_id("a.example.com"))));
}

// === Misdirected requests: GEP-3567, pains row 6 ===

#[tokio::test]
async fn a_request_for_another_listener_is_misdirected() {
    let identity = Identity::new(&["*.example.com"]);
    let backend = to(&[http("app").await]);
    let web = || terminate_http(&identity, http_routes([("/", backend.clone())]));
    let listeners = [
        ("*.example.com", web()),
        ("b.example.com", web()),
        ("pass.example.com", passthrough([("*", backend.clone())])),
    ];
    let (bed, address) = Bed::serving(tls_port(listeners)).await;
    let client = tls(address, "a.example.com", tls_config(None, &["h2"])).await.unwrap();
    let mut sender = http2(client).await;
    for (host, status, outcome) in [
        ("a.example.com", StatusCode::OK, Outcome::Served),
        ("c.example.com", StatusCode::OK, Outcome::Served),
        ("b.example.com", StatusCode::MISDIRECTED_REQUEST, Outcome::Misdirected),
        ("pass.example.com", StatusCode::MISDIRECTED_REQUEST, Outcome::Misdirected),
        ("example.org", StatusCode::NOT_FOUND, Outcome::UnknownName),
    ] {
        let mut asked = request("ignored", &format!("https://{host}/"));
        asked.headers_mut().remove("host");
        let answer = Answer::of(soon(sender.send_request(asked)).await.unwrap()).await;
        assert_eq!(answer.status, status, "{host}");
        assert_eq!(bed.records.finished().await.outcome, outcome, "{host}");
    }
}

// === Sessions ===

/// A client that offers its one remembered session to every server, as an attacker may.
#[derive(Debug)]
struct OneMemory(ClientSessionMemoryCache);

impl OneMemory {
    fn client() -> Arc<ClientConfig> {
        let mut config = tls_config(None, &[]);
        config.resumption = Resumption::store(Arc::new(Self(ClientSessionMemoryCache::new(8))));
        Arc::new(config)
    }

    fn name() -> ServerName<'static> {
        server_name("always-the-same")
    }
}

impl ClientSessionStore for OneMemory {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(Self::name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&Self::name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(Self::name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&Self::name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&Self::name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(Self::name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&Self::name())
    }
}

/// How the handshake went; the tickets for the next one have arrived when this returns.
async fn handshake(address: std::net::SocketAddr, sni: &str, client: &Arc<ClientConfig>) -> HandshakeKind {
    let mut stream = tls_shared(address, sni, client).await.unwrap();
    assert_eq!(read_line(&mut stream).await, "plain");
    stream.get_ref().1.handshake_kind().unwrap()
}

#[tokio::test]
async fn a_session_is_resumed_on_its_own_listener_only() {
    let (one, other) = (Identity::new(&["one.example.com"]), Identity::new(&["other.example.com"]));
    let backend = to(&[echo("plain").await]);
    let listener = |identity: &Identity| terminate_tcp(identity, [("*", backend.clone())]);
    let port = |one: &Identity| tls_port([("one.example.com", listener(one)), ("other.example.com", listener(&other))]);
    let (mut bed, address) = Bed::serving(port(&one)).await;
    let client = OneMemory::client();
    assert_eq!(handshake(address, "one.example.com", &client).await, HandshakeKind::Full);
    assert_eq!(handshake(address, "one.example.com", &client).await, HandshakeKind::Resumed);
    assert_eq!(handshake(address, "other.example.com", &client).await, HandshakeKind::Full, "another listener");

    let client = OneMemory::client();
    assert_eq!(handshake(address, "one.example.com", &client).await, HandshakeKind::Full);
    bed.serve(port(&one)).await;
    assert_eq!(handshake(address, "one.example.com", &client).await, HandshakeKind::Resumed, "the same certificate");
    bed.serve(port(&Identity::new(&["one.example.com"]))).await;
    assert_eq!(handshake(address, "one.example.com", &client).await, HandshakeKind::Full, "a new certificate");
}
