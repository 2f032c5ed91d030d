//! Ports that come and go, and the end.

use std::net::SocketAddr;
use std::time::Duration;

use portreeve_gateway::{BindError, Outcome, Settings};
use portreeve_table::{BackendFault, Port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::backends::{by_hand, echo};
use crate::bed::{ANY_PORT, Bed, http_port, http_routes, passthrough, soon, terminate_http, tls_port, to, to_nobody};
use crate::clients::{
    Answer, assert_closed_in_silence, assert_echo, client_hello, http1, http2, read_line, request, tls, tls_config,
};
use crate::identity::Identity;

const NAME: &str = "a.example.com";
const LONG: Duration = Duration::from_mins(1);

fn tunnel_to(backend: SocketAddr) -> Port {
    tls_port([("*", passthrough([(NAME, to(&[backend]))]))])
}

/// Opens a tunnel to an echo server and gets past the greeting.
async fn open_tunnel(address: SocketAddr) -> TcpStream {
    let mut client = soon(TcpStream::connect(address)).await.unwrap();
    let hello = client_hello(NAME);
    client.write_all(&hello).await.unwrap();
    assert_eq!(read_line(&mut client).await, "backend");
    soon(client.read_exact(&mut vec![0; hello.len()])).await.unwrap();
    client
}

#[tokio::test]
async fn a_port_in_use_says_so_and_keeps_no_other_from_serving() {
    let holder = TcpListener::bind(ANY_PORT).await.unwrap();
    let taken = holder.local_addr().unwrap();
    let backend = echo("backend").await;
    let mut bed = Bed::new(Settings::default());
    let bound = bed.apply([(1, tunnel_to(backend), taken), (2, tunnel_to(backend), ANY_PORT)]).await;
    let error = bound[&1].as_ref().unwrap_err();
    assert!(matches!(error, BindError::InUse(address) if *address == taken), "{error}");
    assert!(error.to_string().starts_with(&taken.to_string()), "{error}");
    open_tunnel(*bound[&2].as_ref().unwrap()).await;

    drop(holder);
    let bound = bed.apply([(1, tunnel_to(backend), taken), (2, tunnel_to(backend), ANY_PORT)]).await;
    assert_eq!(bound[&1].as_ref().unwrap(), &taken, "it is tried again");
    open_tunnel(taken).await;
}

#[tokio::test]
async fn an_address_that_is_not_here_says_so() {
    let mut bed = Bed::new(Settings::default());
    let bound = bed.apply([(1, tls_port([]), "192.0.2.7:0".parse().unwrap())]).await;
    assert!(matches!(bound[&1], Err(BindError::NoSuchAddress(_))), "{bound:?}");
}

#[tokio::test]
async fn a_port_that_leaves_is_closed_and_its_tunnels_stay() {
    let backend = echo("backend").await;
    let mut bed = Bed::new(Settings::default());
    let bound = bed.apply([(1, tunnel_to(backend), ANY_PORT), (2, tunnel_to(backend), ANY_PORT)]).await;
    let (leaving, staying) = (*bound[&1].as_ref().unwrap(), *bound[&2].as_ref().unwrap());
    let mut tunnel = open_tunnel(leaving).await;

    let bound = bed.apply([(2, tunnel_to(backend), ANY_PORT)]).await;
    assert_eq!(bound.len(), 1);
    assert_eq!(bound[&2].as_ref().unwrap(), &staying, "the same socket");
    assert_eq!(TcpStream::connect(leaving).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    assert_echo(&mut tunnel, "still here").await;

    let bound = bed.apply([(3, tunnel_to(backend), leaving)]).await;
    assert_eq!(bound[&3].as_ref().unwrap(), &leaving, "the address is free for another port at once");
    open_tunnel(leaving).await;
    assert_echo(&mut tunnel, "and still").await;
}

#[tokio::test]
async fn two_ports_may_swap_their_addresses() {
    let backend = echo("backend").await;
    let mut bed = Bed::new(Settings::default());
    let bound = bed.apply([(1, tunnel_to(backend), ANY_PORT), (2, tls_port([]), ANY_PORT)]).await;
    let (one, two) = (*bound[&1].as_ref().unwrap(), *bound[&2].as_ref().unwrap());
    let bound = bed.apply([(1, tunnel_to(backend), two), (2, tls_port([]), one)]).await;
    assert_eq!((bound[&1].as_ref().unwrap(), bound[&2].as_ref().unwrap()), (&two, &one));
    open_tunnel(two).await;
}

#[tokio::test]
async fn a_shutdown_waits_for_tunnels_that_end_in_time() {
    let (bed, address) = Bed::serving(tunnel_to(echo("backend").await)).await;
    let mut tunnel = open_tunnel(address).await;
    let shutdown = tokio::spawn(bed.gateway.shutdown(LONG));
    soon(refused(address)).await;
    assert_echo(&mut tunnel, "one more thing").await;
    tunnel.shutdown().await.unwrap();
    assert_eq!(soon(shutdown).await.unwrap(), 0);
    assert_eq!(bed.records.finished().await.outcome, Outcome::Served);
}

/// The gateway stops to accept soon after a shutdown has begun.
async fn refused(address: SocketAddr) {
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_shutdown_cuts_tunnels_at_its_deadline() {
    let (bed, address) = Bed::serving(tunnel_to(echo("backend").await)).await;
    let mut tunnel = open_tunnel(address).await;
    assert_eq!(soon(bed.gateway.shutdown(Duration::from_millis(20))).await, 1);
    let record = bed.records.finished().await;
    assert_eq!(record.outcome, Outcome::Aborted);
    assert!(record.traffic.received > 0, "what was carried is known");
    assert_closed_in_silence(&mut tunnel).await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_clients_that_want_nothing() {
    let mut bed = Bed::new(Settings { hello_timeout: LONG, ..Settings::default() });
    let address = bed.serve(tunnel_to(echo("backend").await)).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut tunnel = open_tunnel(address).await;
    tunnel.shutdown().await.unwrap();
    bed.records.finished().await;
    assert_eq!(soon(bed.gateway.shutdown(LONG)).await, 0);
    assert_closed_in_silence(&mut silent).await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_http_clients_that_ask_nothing() {
    let identity = Identity::new(&[NAME]);
    let routes = || http_routes([("/", to_nobody(BackendFault::NoEndpoint))]);
    let mut bed = Bed::new(Settings { hello_timeout: LONG, request_head_timeout: LONG, ..Settings::default() });
    let ports = [
        (80, http_port([("*", routes())]), ANY_PORT),
        (443, tls_port([("*", terminate_http(&identity, routes()))]), ANY_PORT),
    ];
    let bound = bed.apply(ports).await;
    let (plain, secure) = (*bound[&80].as_ref().unwrap(), *bound[&443].as_ref().unwrap());

    let _silent = TcpStream::connect(plain).await.unwrap();
    let _silent_in_tls = tls(secure, NAME, tls_config(None, &["http/1.1"])).await.unwrap();
    let _silent_http2 = http2(tls(secure, NAME, tls_config(None, &["h2"])).await.unwrap()).await;
    let mut idle = http1(TcpStream::connect(plain).await.unwrap()).await;
    Answer::of(soon(idle.send_request(request(NAME, "/"))).await.unwrap()).await;
    let mut idle_http2 = http2(TcpStream::connect(plain).await.unwrap()).await;
    Answer::of(soon(idle_http2.send_request(request(NAME, "http://a.example.com/"))).await.unwrap()).await;
    assert_eq!(soon(bed.gateway.shutdown(LONG)).await, 0);
}

#[tokio::test]
async fn a_shutdown_lets_requests_in_flight_finish() {
    let (backend, mut connections) = by_hand().await;
    let (bed, address) = Bed::serving(http_port([("*", http_routes([("/", to(&[backend]))]))])).await;
    let mut http1 = TcpStream::connect(address).await.unwrap();
    http1.write_all(b"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n").await.unwrap();
    let mut backends = vec![soon(connections.recv()).await.unwrap()];
    let mut sender = http2(TcpStream::connect(address).await.unwrap()).await;
    let in_flight = sender.send_request(request("ignored", "http://a.example.com/"));
    backends.push(soon(connections.recv()).await.unwrap());

    let shutdown = tokio::spawn(bed.gateway.shutdown(LONG));
    soon(refused(address)).await;
    for mut backend in backends {
        backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await.unwrap();
    }
    let mut answer = String::new();
    soon(http1.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.ends_with("done") && answer.contains("connection: close"), "{answer}");
    assert_eq!(soon(in_flight).await.unwrap().status(), 200);
    assert_eq!(soon(shutdown).await.unwrap(), 0);
    assert!(soon(sender.send_request(request("ignored", "http://a.example.com/"))).await.is_err());
}

#[tokio::test]
async fn a_gateway_that_is_dropped_leaves_nothing_open() {
    let (bed, address) = Bed::serving(tunnel_to(echo("backend").await)).await;
    let mut tunnel = open_tunnel(address).await;
    drop(bed.gateway);
    assert_closed_in_silence(&mut tunnel).await;
    soon(refused(address)).await;
}

/// Nobody is refused while one gateway takes the place of another: both have the same sockets for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_takes_the_place_of_another_without_a_refusal() {
    let backend = echo("backend").await;
    let (bed, address) = Bed::serving(tunnel_to(backend)).await;
    let mut before = open_tunnel(address).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let mut served = 0;
                while !stop.is_cancelled() {
                    open_tunnel(address).await;
                    served += 1;
                }
                served
            })
        })
        .collect();
    let mut next = Bed::new(Settings::default());
    next.gateway.adopt(bed.gateway.duplicate_listeners().unwrap());
    let bound = next.apply([(443, tunnel_to(backend), address)]).await;
    assert_eq!(bound[&443].as_ref().unwrap(), &address);
    assert_echo(&mut before, "both serve").await;
    let old = tokio::spawn(bed.gateway.shutdown(LONG));
    for _ in 0..50 {
        open_tunnel(address).await;
    }
    assert_echo(&mut before, "still here").await;
    before.shutdown().await.unwrap();
    assert_eq!(soon(old).await.unwrap(), 0);
    stop.cancel();
    for client in clients {
        assert!(soon(client).await.unwrap() > 0);
    }
}
