//! How tunnels choose their endpoints, are seen, and end.

use std::net::SocketAddr;
use std::time::Duration;

use portreeve_gateway::{Outcome, Settings, Traffic};
use portreeve_table::{BackendOptions, Balance, Port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backends::{echo, http};
use crate::bed::{Bed, http_port, http_routes, idle_port, passthrough, soon, tls_port, to, to_with};
use crate::clients::{assert_closed_in_silence, assert_echo, client_hello, read_line};

const NAME: &str = "a.example.com";
const SHORT: Duration = Duration::from_millis(300);

fn tunnel_to(backend: SocketAddr) -> Port {
    tls_port([("*", passthrough([(NAME, to(&[backend]))]))])
}

/// Opens a tunnel to an echo server; returns it and the server's name.
async fn open(address: SocketAddr) -> (TcpStream, String) {
    let mut client = soon(TcpStream::connect(address)).await.unwrap();
    let hello = client_hello(NAME);
    client.write_all(&hello).await.unwrap();
    let name = read_line(&mut client).await;
    soon(client.read_exact(&mut vec![0; hello.len()])).await.unwrap();
    (client, name)
}

#[tokio::test]
async fn an_idle_tunnel_is_closed_where_the_listener_says_so() {
    let backend = echo("backend").await;
    let (bed, address) = Bed::serving(idle_port(SHORT, passthrough([(NAME, to(&[backend]))]))).await;
    let (mut client, _) = open(address).await;
    for _ in 0..4 {
        tokio::time::sleep(SHORT / 2).await;
        assert_echo(&mut client, "busy").await;
    }
    assert_closed_in_silence(&mut client).await;
    let record = bed.records.finished().await;
    assert_eq!(record.outcome, Outcome::IdleTimeout);
    assert!(record.traffic.received > 16, "what was carried is known");
}

/// Origin: pains row 8.
#[tokio::test]
async fn a_tunnel_may_be_idle_for_as_long_as_it_likes_otherwise() {
    let (_bed, address) = Bed::serving(tunnel_to(echo("backend").await)).await;
    let (mut client, _) = open(address).await;
    tokio::time::sleep(SHORT * 3).await;
    assert_echo(&mut client, "still here").await;
}

/// Each new connection goes where the fewest are, whoever had the last turn.
#[tokio::test]
async fn the_least_loaded_endpoint_is_chosen() {
    let endpoints = [echo("a").await, echo("b").await, echo("c").await];
    let options = BackendOptions { balance: Balance::LeastConnections, ..BackendOptions::default() };
    let (bed, address) = Bed::serving(tls_port([("*", passthrough([(NAME, to_with(options, &endpoints))]))])).await;
    let mut clients = Vec::new();
    for _ in 0..9 {
        clients.push(open(address).await);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(clients.iter().filter(|(_, server)| server == name).count(), 3, "{name}");
    }
    let gone = clients.extract_if(.., |(_, server)| server == "b").count();
    for _ in 0..gone {
        bed.records.finished().await;
    }
    for _ in 0..gone {
        let (client, server) = open(address).await;
        assert_eq!(server, "b");
        clients.push((client, server));
    }
}

#[tokio::test]
async fn a_tunnel_without_its_route_has_a_time_to_end() {
    let backend = echo("backend").await;
    let mut bed = Bed::new(Settings { removed_route_drain: Some(SHORT), ..Settings::default() });
    let address = bed.serve(tunnel_to(backend)).await;
    let (mut client, _) = open(address).await;
    bed.serve(tls_port([("*", passthrough([]))])).await;
    assert_echo(&mut client, "not at once").await;
    bed.serve(tunnel_to(backend)).await;
    tokio::time::sleep(SHORT * 2).await;
    assert_echo(&mut client, "the route came back").await;
    bed.serve(tls_port([("*", passthrough([("b.example.com", to(&[backend]))]))])).await;
    assert_closed_in_silence(&mut client).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::RouteRemoved);
}

#[tokio::test]
async fn an_upgraded_request_without_its_route_has_a_time_to_end() {
    let backend = http("backend").await;
    let mut bed = Bed::new(Settings { removed_route_drain: Some(SHORT), ..Settings::default() });
    let address = bed.serve(http_port([("*", http_routes([("/", to(&[backend]))]))])).await;
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: a.example.com\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    client.write_all(request).await.unwrap();
    while read_line(&mut client).await != "upgraded" {}
    bed.serve(http_port([("*", http_routes([("/", to(&[backend])), ("/new", to(&[backend]))]))])).await;
    tokio::time::sleep(SHORT * 2).await;
    assert_echo(&mut client, "its route is still there").await;
    bed.serve(http_port([("*", http_routes([("/new", to(&[backend]))]))])).await;
    assert_closed_in_silence(&mut client).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::RouteRemoved);
}

#[tokio::test]
async fn open_tunnels_can_be_seen_with_what_they_carry() {
    let backend = echo("backend").await;
    let (bed, address) = Bed::serving(tunnel_to(backend)).await;
    let monitor = bed.gateway.monitor();
    assert!(monitor.tunnels().is_empty());
    let (mut client, _) = open(address).await;
    assert_echo(&mut client, "0123456789").await;
    let [tunnel] = &monitor.tunnels()[..] else { panic!("{:?}", monitor.tunnels()) };
    let hello = u64::try_from(client_hello(NAME).len()).unwrap();
    assert_eq!(tunnel.traffic, Traffic { received: hello + 10, sent: hello + 18 });
    assert_eq!((tunnel.peer, tunnel.endpoint), (client.local_addr().unwrap(), Some(backend)));
    assert_eq!(monitor.connections().open, 1);
    drop(client);
    bed.records.finished().await;
    assert!(monitor.tunnels().is_empty());
}
