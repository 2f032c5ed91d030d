//! PROXY protocol headers from those who are trusted, and to backends that want them.

use std::net::SocketAddr;
use std::time::Duration;

use portreeve_gateway::{Limit, Outcome, Settings};
use portreeve_table::client_hello::InvalidHello;
use portreeve_table::proxy_protocol::{InvalidProxyHeader, ProxyHeader, ProxyVersion};
use portreeve_table::{BackendOptions, Port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backends::{by_hand, echo, http};
use crate::bed::{Bed, http_port, http_routes, passthrough, soon, tls_port, to, to_with};
use crate::clients::{Answer, assert_closed_in_silence, client_hello, http1, read_line, request};

const NAME: &str = "a.example.com";
const V1: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.7 1234 443\r\n";

fn tunnel_to(backend: SocketAddr) -> Port {
    tls_port([("*", passthrough([(NAME, to(&[backend]))]))])
}

/// A gateway that believes these.
async fn trusting(block: &str, settings: Settings, port: Port) -> (Bed, SocketAddr) {
    let mut bed = Bed::new(settings);
    bed.proxies = vec![block.parse().unwrap()];
    let address = bed.serve(port).await;
    (bed, address)
}

fn client() -> SocketAddr {
    "192.0.2.1:1234".parse().unwrap()
}

/// Origin: pains row 12. Header and hello may come in any pieces.
#[tokio::test]
async fn a_trusted_proxy_says_who_the_client_is() {
    let (bed, address) = trusting("127.0.0.0/8", Settings::default(), tunnel_to(echo("backend").await)).await;
    let header = ProxyHeader { addresses: Some((client(), "198.51.100.7:443".parse().unwrap())), tlvs: Vec::new() };
    for header in [V1.to_vec(), header.encode(ProxyVersion::V2)] {
        let mut at_once = TcpStream::connect(address).await.unwrap();
        at_once.write_all(&[&header[..], &client_hello(NAME)].concat()).await.unwrap();
        assert_eq!(read_line(&mut at_once).await, "backend");
        assert_eq!(bed.records.opened().await.peer, client());
        let mut dripping = TcpStream::connect(address).await.unwrap();
        dripping.set_nodelay(true).unwrap();
        for byte in [&header[..], &client_hello(NAME)].concat() {
            dripping.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(read_line(&mut dripping).await, "backend");
        assert_eq!(bed.records.opened().await.peer, client());
    }
}

#[tokio::test]
async fn a_trusted_proxy_that_says_nothing_of_it_is_not_served() {
    let (bed, address) = trusting("127.0.0.1", Settings::default(), tunnel_to(echo("backend").await)).await;
    for (first, fault) in [
        (client_hello(NAME), InvalidProxyHeader::Missing),
        (b"PROXY TCP4 nonsense\r\n".to_vec(), InvalidProxyHeader::Malformed),
    ] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&first).await.unwrap();
        assert_closed_in_silence(&mut client).await;
        assert_eq!(bed.records.finished().await.outcome, Outcome::InvalidProxyHeader(fault));
    }
}

/// Whoever is not trusted is served as before, and cannot say that it is somebody else.
#[tokio::test]
async fn nobody_else_is_believed() {
    let (bed, address) = trusting("192.0.2.0/24", Settings::default(), tunnel_to(echo("backend").await)).await;
    let mut honest = TcpStream::connect(address).await.unwrap();
    honest.write_all(&client_hello(NAME)).await.unwrap();
    assert_eq!(read_line(&mut honest).await, "backend");
    assert_eq!(bed.records.opened().await.peer, honest.local_addr().unwrap());
    let mut forger = TcpStream::connect(address).await.unwrap();
    forger.write_all(&[V1, &client_hello(NAME)].concat()).await.unwrap();
    assert_closed_in_silence(&mut forger).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::InvalidHello(InvalidHello::NotTls));
}

/// The deadline is one for header and hello.
#[tokio::test]
async fn header_and_hello_have_one_deadline() {
    let limit = Duration::from_millis(200);
    let settings = Settings { hello_timeout: limit, ..Settings::default() };
    let (bed, address) = trusting("127.0.0.1", settings, tunnel_to(echo("backend").await)).await;
    for first in [&b""[..], &V1[..10], V1] {
        let started = std::time::Instant::now();
        let mut client = TcpStream::connect(address).await.unwrap();
        tokio::time::sleep(limit / 2).await;
        client.write_all(first).await.unwrap();
        assert_closed_in_silence(&mut client).await;
        assert_eq!(bed.records.finished().await.outcome, Outcome::HelloTimeout);
        assert!(started.elapsed() < limit * 2, "{:?}", started.elapsed());
    }
}

#[tokio::test]
async fn limits_are_those_of_the_clients_and_not_of_their_proxy() {
    let settings = Settings { max_connections_per_peer: 1, ..Settings::default() };
    let (bed, address) = trusting("127.0.0.1", settings, tunnel_to(echo("backend").await)).await;
    let connect = async |header: &[u8]| {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&[header, &client_hello(NAME)].concat()).await.unwrap();
        client
    };
    let mut first = connect(V1).await;
    assert_eq!(read_line(&mut first).await, "backend");
    let mut other = connect(b"PROXY TCP4 192.0.2.2 198.51.100.7 1234 443\r\n").await;
    assert_eq!(read_line(&mut other).await, "backend");
    assert_closed_in_silence(&mut connect(V1).await).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::Shed(Limit::PeerConnections));
}

#[tokio::test]
async fn http_requests_are_the_clients_too() {
    let port = http_port([("*", http_routes([("/", to(&[http("backend").await]))]))]);
    let (bed, address) = trusting("127.0.0.1", Settings::default(), port).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(V1).await.unwrap();
    let mut connection = http1(stream).await;
    let answer = Answer::of(soon(connection.send_request(request(NAME, "/"))).await.unwrap()).await;
    assert!(answer.saw("x-forwarded-for: 192.0.2.1"), "{}", answer.body);
    assert_eq!(bed.records.finished().await.peer, client());
}

/// Of a client that came directly the backend hears its address and where it connected to.
#[tokio::test]
async fn a_backend_that_wants_it_hears_who_the_client_is() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let (backend, mut connections) = by_hand().await;
        let options = BackendOptions { proxy_protocol: Some(version), ..BackendOptions::default() };
        let (_bed, address) =
            Bed::serving(tls_port([("*", passthrough([(NAME, to_with(options, &[backend]))]))])).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&client_hello(NAME)).await.unwrap();
        let header = ProxyHeader { addresses: Some((client.local_addr().unwrap(), address)), tlvs: Vec::new() };
        let expected = [header.encode(version), client_hello(NAME)].concat();
        let mut heard = vec![0; expected.len()];
        soon(soon(connections.recv()).await.unwrap().read_exact(&mut heard)).await.unwrap();
        assert!(heard.starts_with(&header.encode(version)), "{}", heard.escape_ascii());
    }
}

/// Origin: pains row 11: what a cloud's load balancer says of the client's network arrives.
#[tokio::test]
async fn what_a_proxy_said_is_passed_on_with_its_extensions() {
    let (backend, mut connections) = by_hand().await;
    let options = BackendOptions { proxy_protocol: Some(ProxyVersion::V2), ..BackendOptions::default() };
    let port = tls_port([("*", passthrough([(NAME, to_with(options, &[backend]))]))]);
    let (_bed, address) = trusting("127.0.0.1", Settings::default(), port).await;
    let header = ProxyHeader {
        addresses: Some((client(), "198.51.100.7:443".parse().unwrap())),
        tlvs: vec![0xea, 0, 3, b'v', b'p', b'c'],
    }
    .encode(ProxyVersion::V2);
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&[&header[..], &client_hello(NAME)].concat()).await.unwrap();
    let mut heard = vec![0; header.len() + 3];
    soon(soon(connections.recv()).await.unwrap().read_exact(&mut heard)).await.unwrap();
    assert_eq!(heard, [&header[..], &[22, 3, 1]].concat());
}
