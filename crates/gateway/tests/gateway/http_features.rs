//! HTTP/2 backends, and what rules change on the way.

use std::net::SocketAddr;
use std::time::Duration;

use ::http::StatusCode;
use http_body_util::BodyExt;
use portreeve_gateway::Outcome;
use portreeve_table::{BackendOptions, HttpFilters, PathChange, Redirect};
use tokio::net::TcpStream;

use crate::backends::{by_hand, h2c, http};
use crate::bed::{Bed, filtered_routes, http_port, http_routes, soon, terminate_http, tls_port, to, to_with};
use crate::clients::{ask, http2, request, tls, tls_config};
use crate::identity::Identity;

const HTTP2: BackendOptions =
    BackendOptions { balance: portreeve_table::Balance::Even, proxy_protocol: None, http2: true };

async fn serving(filters: HttpFilters, backend: SocketAddr) -> (Bed, SocketAddr) {
    Bed::serving(http_port([("*", filtered_routes([("/from", filters, to(&[backend]))]))])).await
}

/// gRPC: HTTP/2 on both sides, `TE: trailers` there, trailers back, and the client's own authority.
#[tokio::test]
async fn grpc_passes_both_ways() {
    let identity = Identity::new(&["a.example.com"]);
    let routes = http_routes([("/", to_with(HTTP2, &[h2c("grpc").await]))]);
    let (_bed, address) = Bed::serving(tls_port([("*", terminate_http(&identity, routes))])).await;
    let stream = tls(address, "a.example.com", tls_config(None, &["h2"])).await.unwrap();
    let mut connection = http2(stream).await;
    for _ in 0..3 {
        let mut request = request("ignored", "https://a.example.com/pkg.Service/Method");
        request.headers_mut().remove("host");
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        let response = soon(connection.send_request(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = soon(response.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        let seen = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        assert!(seen.contains("GET http://a.example.com/pkg.Service/Method"), "{seen}");
        assert!(seen.lines().any(|line| line == "te: trailers"), "{seen}");
    }
}

#[tokio::test]
async fn http1_clients_are_served_by_http2_backends_and_one_that_came_back() {
    let (backend, mut connections) = by_hand().await;
    let alive = h2c("alive").await;
    let routes = http_routes([("/", to_with(HTTP2, &[alive]))]);
    let (mut bed, address) = Bed::serving(http_port([("*", routes)])).await;
    let answer = ask(address, request("a.example.com", "/x")).await;
    assert!(answer.body.starts_with("alive\nGET http://a.example.com/x"), "{}", answer.body);
    // A backend that hangs up is an error, and the next connection is another one.
    bed.serve(http_port([("*", http_routes([("/", to_with(HTTP2, &[backend]))]))])).await;
    let hang_up = tokio::spawn(async move { drop(soon(connections.recv()).await) });
    assert_eq!(ask(address, request("a.example.com", "/x")).await.status, StatusCode::BAD_GATEWAY);
    hang_up.await.unwrap();
    bed.serve(http_port([("*", http_routes([("/", to_with(HTTP2, &[alive]))]))])).await;
    assert_eq!(ask(address, request("a.example.com", "/x")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_backend_is_asked_for_another_host_and_path() {
    let filters = HttpFilters {
        hostname: Some("internal.example.com".to_owned()),
        path: Some(PathChange::Prefix("/to".to_owned())),
        ..HttpFilters::default()
    };
    let (bed, address) = serving(filters, http("app").await).await;
    let answer = ask(address, request("a.example.com", "/from/here?q=1")).await;
    assert!(answer.body.starts_with("app\nGET /to/here?q=1\n"), "{}", answer.body);
    assert!(
        answer.saw("host: internal.example.com") && answer.saw("x-forwarded-host: a.example.com"),
        "{}",
        answer.body
    );
    assert_eq!(
        bed.records.finished().await.request.unwrap().path,
        "/from/here",
        "the log says what the client asked for"
    );
}

#[tokio::test]
async fn a_redirect_may_change_the_path() {
    let redirect = Redirect {
        scheme: None,
        hostname: Some("b.example.com".to_owned()),
        port: Some(80),
        path: Some(PathChange::Prefix("/to".to_owned())),
        status: 308,
    };
    let filters = HttpFilters { redirect: Some(redirect), ..HttpFilters::default() };
    let (_bed, address) = serving(filters, http("app").await).await;
    let answer = ask(address, request("a.example.com", "/from/here?q=1")).await;
    assert_eq!(answer.headers["location"], "http://b.example.com/to/here?q=1");
}

#[tokio::test]
async fn a_backend_that_takes_too_long_is_given_up() {
    let (backend, mut connections) = by_hand().await;
    let filters = HttpFilters { timeout: Some(Duration::from_millis(200)), ..HttpFilters::default() };
    let (bed, address) = serving(filters, backend).await;
    let answer = ask(address, request("a.example.com", "/from")).await;
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(bed.records.finished().await.outcome, Outcome::BackendTimeout);
    let mut backend: TcpStream = soon(connections.recv()).await.unwrap();
    let mut heard = Vec::new();
    soon(tokio::io::AsyncReadExt::read_to_end(&mut backend, &mut heard)).await.unwrap();
    assert!(heard.starts_with(b"GET /from"), "and its connection is closed");
}
