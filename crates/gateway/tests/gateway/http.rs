//! HTTP without TLS: what is routed, changed, refused and upgraded.

use std::net::SocketAddr;
use std::time::Duration;

use ::http::{Method, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use portreeve_gateway::{Outcome, Settings};
use portreeve_table::{BackendFault, Backends, HeaderChange, HttpFilters, Redirect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backends::{by_hand, http};
use crate::bed::{
    Bed, dead_endpoint, filtered_routes, http_port, http_routes, listener_id, name, route_id, soon, to, to_nobody,
};
use crate::clients::{Answer, ask, assert_echo, http1, http2, read_line, request};

const HOST: &str = "a.example.com";

async fn connect(address: SocketAddr) -> TcpStream {
    soon(TcpStream::connect(address)).await.unwrap()
}

#[tokio::test]
async fn a_request_finds_its_listener_and_route() {
    let backends = [http("app").await, http("api").await, http("other").await];
    let listeners = [
        (HOST, http_routes([("/", to(&backends[..1])), ("/api", to(&backends[1..2]))])),
        ("*", http_routes([("/", to(&backends[2..]))])),
    ];
    let (bed, address) = Bed::serving(http_port(listeners)).await;
    for (host, path, backend, listener, route) in [
        ("A.example.com:8080", "/x?y=z", "app", HOST, "/"),
        (HOST, "/api/x", "api", HOST, "/api"),
        ("b.example.com", "/api", "other", "*", "/"),
        ("192.0.2.7", "/", "other", "*", "/"),
    ] {
        let answer = ask(address, request(host, path)).await;
        assert_eq!(answer.body.lines().next(), Some(backend), "{host}{path}");
        assert!(answer.saw(&format!("GET {path}")) && answer.saw(&format!("host: {host}")), "{answer:?}");
        assert!(answer.saw("x-forwarded-for: 127.0.0.1") && answer.saw("x-forwarded-proto: http"), "{answer:?}");
        let record = bed.records.finished().await;
        assert_eq!(record.listener, Some(listener_id(listener)));
        assert_eq!(record.route, Some(route_id(route)));
        assert_eq!(record.backend.as_deref(), Some("tenant/service:8786"));
        assert_eq!(record.outcome, Outcome::Served);
        assert_eq!(record.traffic.sent, u64::try_from(answer.body.len()).unwrap());
        let request = record.request.unwrap();
        assert_eq!(request.status, Some(StatusCode::OK));
        assert_eq!(request.host, (host != "192.0.2.7").then(|| name(host.trim_end_matches(":8080"))));
    }
}

/// Origin: the same law as conformance `GatewayHTTPListenerIsolation`.
#[tokio::test]
async fn every_refusal_has_its_status_and_names_nobody() {
    let app = to(&[http("app").await]);
    let listeners = [
        (
            HOST,
            http_routes([
                ("/app", app),
                ("/no-backend", Backends::default()),
                ("/unresolved", to_nobody(BackendFault::Unresolved)),
                ("/no-endpoint", to_nobody(BackendFault::NoEndpoint)),
                ("/dead", to(&[dead_endpoint()])),
            ]),
        ),
        ("*.example.com", http_routes([("/wide", to(&[http("wide").await]))])),
    ];
    let (bed, address) = Bed::serving(http_port(listeners)).await;
    for (host, path, status, outcome) in [
        ("example.org", "/app", 404, Outcome::UnknownName),
        (HOST, "/other", 404, Outcome::NoRoute),
        (HOST, "/wide", 404, Outcome::NoRoute),
        (HOST, "/app/../wide", 400, Outcome::BadRequest),
        (HOST, "/no-backend", 500, Outcome::NoBackend),
        (HOST, "/unresolved", 500, Outcome::Backend(BackendFault::Unresolved)),
        (HOST, "/no-endpoint", 503, Outcome::Backend(BackendFault::NoEndpoint)),
        (HOST, "/dead", 503, Outcome::Unreachable),
    ] {
        let answer = ask(address, request(host, path)).await;
        assert_eq!(answer.status, status, "{host}{path}");
        assert!(answer.body.starts_with("portreeve: ") && answer.body.lines().count() == 1, "{}", answer.body);
        assert!(!answer.body.contains("tenant") && !answer.body.contains("example"), "{}", answer.body);
        let record = bed.records.finished().await;
        assert_eq!(record.outcome, outcome);
        assert_eq!(record.request.unwrap().status.unwrap(), status);
    }
    let mut head = request(HOST, "/other");
    *head.method_mut() = Method::HEAD;
    assert_eq!(ask(address, head).await.status, 404);
    assert_eq!(bed.records.finished().await.outcome, Outcome::NoRoute, "also when the words are not sent");
}

#[tokio::test]
async fn a_backend_that_breaks_off_is_a_bad_gateway() {
    let (backend, mut connections) = by_hand().await;
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[backend]))]))])).await;
    let breaking = async {
        let mut connection = soon(connections.recv()).await.unwrap();
        connection.read_u8().await.unwrap();
    };
    let (answer, ()) = tokio::join!(ask(address, request(HOST, "/")), breaking);
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    assert_eq!(bed.records.finished().await.outcome, Outcome::BackendFailed);
}

/// Origin: a chunk without a size, and a client that left within its body, were laid at the backend's door (502).
#[tokio::test]
async fn a_body_that_breaks_off_is_the_clients_fault() {
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[http("app").await]))]))])).await;
    for (body, outcome) in [("x\r\n", Outcome::BadRequest), ("5\r\nab", Outcome::Aborted)] {
        let mut client = connect(address).await;
        let head = "POST / HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.write_all([head, body].concat().as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        soon(client.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert_eq!(bed.records.finished().await.outcome, outcome, "{body}");
    }
}

/// A request that was not sent yet can go elsewhere, with its body.
#[tokio::test]
async fn the_next_endpoint_is_tried_when_one_is_dead() {
    let alive = http("alive").await;
    let endpoints = [dead_endpoint(), dead_endpoint(), alive];
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&endpoints))]))])).await;
    for _ in 0..4 {
        let mut asked = request(HOST, "/");
        (*asked.method_mut(), *asked.body_mut()) = (Method::POST, Full::from("the body"));
        let answer = ask(address, asked).await;
        assert!(answer.saw("alive") && answer.saw("POST /") && answer.saw("the body"), "{answer:?}");
        let record = bed.records.finished().await;
        assert_eq!((record.endpoint, record.traffic.received), (Some(alive), 8));
    }
}

#[tokio::test]
async fn filters_change_what_passes() {
    let text = |text: &str| text.to_owned();
    let filters = HttpFilters {
        request_headers: vec![
            HeaderChange::Set(text("x-set"), text("set")),
            HeaderChange::Add(text("x-add"), text("added")),
            HeaderChange::Remove(text("x-gone")),
        ],
        response_headers: vec![HeaderChange::Set(text("x-backend"), text("hidden"))],
        ..HttpFilters::default()
    };
    let routes = filtered_routes([("/", filters, to(&[http("app").await]))]);
    let (_bed, address) = Bed::serving(http_port([("*", routes)])).await;
    let mut asked = request(HOST, "/");
    for name in ["x-set", "x-add", "x-gone"] {
        asked.headers_mut().insert(name, "client".parse().unwrap());
    }
    let answer = ask(address, asked).await;
    assert!(answer.saw("x-set: set") && answer.saw("x-add: client") && answer.saw("x-add: added"), "{answer:?}");
    assert!(!answer.body.contains("x-gone"), "{answer:?}");
    assert_eq!(answer.headers["x-backend"], "hidden");
}

#[tokio::test]
async fn a_redirect_answers_without_a_backend() {
    let redirect = Redirect { scheme: Some("https".to_owned()), hostname: None, port: None, path: None, status: 301 };
    let filters = HttpFilters { redirect: Some(redirect), ..HttpFilters::default() };
    let (bed, address) = Bed::serving(http_port([("*", filtered_routes([("/", filters, Backends::default())]))])).await;
    let answer = ask(address, request("a.example.com:8080", "/x?y=z")).await;
    assert_eq!(answer.status, StatusCode::MOVED_PERMANENTLY);
    assert_eq!(answer.headers["location"], "https://a.example.com/x?y=z");
    assert_eq!(bed.records.finished().await.outcome, Outcome::Served);
}

/// Prior knowledge, as gRPC clients and curl's `--http2-prior-knowledge` do it.
#[tokio::test]
async fn http2_works_without_tls() {
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[http("app").await]))]))])).await;
    let mut sender = http2(connect(address).await).await;
    let mut asked = request("ignored", "http://a.example.com/x");
    asked.headers_mut().remove("host");
    let answer = Answer::of(soon(sender.send_request(asked)).await.unwrap()).await;
    assert!(answer.saw("host: a.example.com"), "{answer:?}");
    assert_eq!(bed.records.finished().await.outcome, Outcome::Served);
}

#[tokio::test]
async fn a_connection_serves_request_after_request_by_the_table_of_the_moment() {
    let (old, new) = (to(&[http("old").await]), to(&[http("new").await]));
    let (mut bed, address) = Bed::serving(http_port([("*", http_routes([("/", old)]))])).await;
    let mut sender = http1(connect(address).await).await;
    let mut next = async |expected: &str| {
        soon(sender.ready()).await.unwrap();
        let answer = Answer::of(soon(sender.send_request(request(HOST, "/"))).await.unwrap()).await;
        assert_eq!(answer.body.lines().next(), Some(expected));
    };
    next("old").await;
    next("old").await;
    bed.serve(http_port([("*", http_routes([("/", new)]))])).await;
    next("new").await;
}

/// Long polls are many and long: they must not keep every table that there has been in memory.
#[tokio::test]
async fn a_waiting_request_keeps_no_table_alive() {
    let (backend, mut connections) = by_hand().await;
    let port = || http_port([("*", http_routes([("/", to(&[backend]))]))]);
    let (mut bed, address) = Bed::serving(port()).await;
    let old_table = bed.table.clone();
    let polling = tokio::spawn(ask(address, request(HOST, "/")));
    let mut backend = soon(connections.recv()).await.unwrap();
    bed.serve(port()).await;
    assert!(old_table.upgrade().is_none());
    backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnews").await.unwrap();
    assert_eq!(soon(polling).await.unwrap().body, "news");
}

/// Bodies are streamed: the backend hears the first part before the client has said the second, and the other way round.
#[tokio::test]
async fn bodies_are_passed_on_as_they_come() {
    let (backend, mut connections) = by_hand().await;
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[backend]))]))])).await;
    let mut client = connect(address).await;
    client.write_all(b"POST / HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 6\r\n\r\none").await.unwrap();
    let mut backend = soon(connections.recv()).await.unwrap();
    hear_until(&mut backend, "one").await;
    client.write_all(b"two").await.unwrap();
    hear_until(&mut backend, "two").await;
    backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nthree").await.unwrap();
    hear_until(&mut client, "three").await;
    backend.write_all(b"four!").await.unwrap();
    hear_until(&mut client, "four!").await;
    let record = bed.records.finished().await;
    assert_eq!((record.outcome, record.traffic.received, record.traffic.sent), (Outcome::Served, 6, 10));
}

async fn hear_until(stream: &mut TcpStream, end: &str) {
    let mut heard = Vec::new();
    while !heard.ends_with(end.as_bytes()) {
        heard.push(soon(stream.read_u8()).await.unwrap());
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_not_served() {
    let (backend, mut connections) = by_hand().await;
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[backend]))]))])).await;
    for (who, outcome) in [("backend", Outcome::BackendFailed), ("client", Outcome::Aborted)] {
        let mut client = connect(address).await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n").await.unwrap();
        let mut backend = soon(connections.recv()).await.unwrap();
        backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await.unwrap();
        hear_until(&mut client, "some").await;
        if who == "backend" {
            drop(backend);
            assert_eq!(bed.records.finished().await.outcome, outcome, "{who}");
        } else {
            drop(client);
            assert_eq!(bed.records.finished().await.outcome, outcome, "{who}");
        }
    }
}

/// Origin: pains row 8. A WebSocket is a tunnel like any other once it is open.
#[tokio::test]
async fn an_upgrade_becomes_a_tunnel() {
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[http("app").await]))]))])).await;
    let mut asked = request(HOST, "/socket");
    asked.headers_mut().insert("connection", "keep-alive, Upgrade".parse().unwrap());
    asked.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    let mut sender = http1(connect(address).await).await;
    let response = soon(sender.send_request(asked)).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "websocket");
    let mut socket = TokioIo::new(soon(hyper::upgrade::on(response)).await.unwrap());
    assert_eq!(read_line(&mut socket).await, "upgraded");
    assert_eq!(bed.records.opened().await.route, Some(route_id("/")));
    assert_echo(&mut socket, "frame").await;
    socket.shutdown().await.unwrap();
    let mut rest = String::new();
    soon(socket.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, "bye");
    let record = bed.records.finished().await;
    assert_eq!((record.outcome, record.traffic.received, record.traffic.sent), (Outcome::Served, 5, 17));
    assert_eq!(record.request.unwrap().status, Some(StatusCode::SWITCHING_PROTOCOLS));
}

/// A request that is smuggled past the routes in an upgrade to HTTP/2 would reach whatever the backend has.
#[tokio::test]
async fn an_upgrade_to_more_http_is_not_passed_on() {
    let (_bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[http("app").await]))]))])).await;
    for protocol in ["h2c", "HTTP/2.0", "websocket, H2C", "TLS/1.0"] {
        let mut asked = request(HOST, "/");
        asked.headers_mut().insert("connection", "Upgrade, HTTP2-Settings".parse().unwrap());
        asked.headers_mut().insert("upgrade", protocol.parse().unwrap());
        asked.headers_mut().insert("http2-settings", "AAMAAABkAAQAAP__".parse().unwrap());
        let answer = ask(address, asked).await;
        assert_eq!(answer.status, StatusCode::OK, "{protocol}");
        assert!(!answer.body.contains("upgrade") && !answer.body.contains("http2-settings"), "{answer:?}");
    }
}

#[tokio::test]
async fn an_upgrade_that_nobody_asked_for_is_refused() {
    let (backend, mut connections) = by_hand().await;
    let (_bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[backend]))]))])).await;
    let switching = async {
        let mut backend = soon(connections.recv()).await.unwrap();
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n";
        backend.write_all(head).await.unwrap();
        backend
    };
    let (answer, _backend) = tokio::join!(ask(address, request(HOST, "/")), switching);
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
}

/// Origin: pains row 23.
#[tokio::test]
async fn a_client_must_come_to_the_point() {
    let short = Duration::from_millis(50);
    let mut bed = Bed::new(Settings { hello_timeout: short, request_head_timeout: short, ..Settings::default() });
    let address = bed.serve(http_port([("*", http_routes([]))])).await;
    for beginning in ["", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost: a.example.com\r\n"] {
        let mut client = connect(address).await;
        client.write_all(beginning.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        soon(client.read_to_end(&mut heard)).await.unwrap();
        assert!(!heard.starts_with(b"HTTP/1.1 200"), "{beginning}");
    }
}
