//! TLS that is not touched.

use std::net::SocketAddr;
use std::time::Duration;

use portreeve_gateway::{Limit, Outcome, Settings};
use portreeve_table::client_hello::InvalidHello;
use portreeve_table::{BackendFault, Backends};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backends::{Scheduler, by_hand, echo};
use crate::bed::{Bed, dead_endpoint, listener_id, name, passthrough, route_id, soon, tls_port, to, to_nobody};
use crate::clients::{
    assert_closed_in_silence, assert_echo, client_hello, peer_certificate, read_line, tls, tls_config,
};
use crate::identity::Identity;

const ONE: &str = "daskgateway-jhub.0123456789abcdef0123456789abcdef";
const OTHER: &str = "daskgateway-jhub.fedcba9876543210fedcba9876543210";

async fn connect(address: SocketAddr) -> TcpStream {
    soon(TcpStream::connect(address)).await.unwrap()
}

/// Origin: dask-gateway, assertions i to iii. The seam of the main job: two schedulers behind one match-all listener.
#[tokio::test]
async fn two_schedulers_share_a_listener_and_keep_their_tls() {
    let identities = [ONE, OTHER].map(|_| Identity::new(&["dask-internal"]));
    let mut schedulers =
        [Scheduler::start("one", &identities[0]).await, Scheduler::start("other", &identities[1]).await];
    let routes = [(ONE, to(&[schedulers[0].address])), (OTHER, to(&[schedulers[1].address]))];
    let (bed, address) = Bed::serving(tls_port([("*", passthrough(routes))])).await;
    for (index, (sni, greeting)) in [(ONE, "one"), (OTHER, "other")].into_iter().enumerate() {
        let identity = &identities[index];
        let mut client = tls(address, sni, tls_config(Some(identity), &[])).await.unwrap();
        assert_eq!(peer_certificate(&client), identity.certificate, "TLS ends at the scheduler");
        assert_eq!(soon(schedulers[index].shown.recv()).await.unwrap(), identity.certificate, "the client is known");
        assert_eq!(read_line(&mut client).await, greeting);
        assert_echo(&mut client, "submit").await;
        let record = bed.records.opened().await;
        assert_eq!(record.server_name, Some(name(sni)));
        assert_eq!(record.listener, Some(listener_id("*")));
        assert_eq!(record.route, Some(route_id(sni)));
        assert_eq!(record.endpoint, Some(schedulers[index].address));
    }
}

/// Origin: dask-gateway, assertion iv; pains row 11. An alert would tell the conformance suite that TLS was spoken.
#[tokio::test]
async fn what_is_nobodys_is_closed_in_silence() {
    let scheduler = echo("one").await;
    let listeners = [
        (ONE, passthrough([(ONE, to(&[scheduler]))])),
        ("*.no-route.example.com", passthrough([("a.no-route.example.com", to(&[scheduler]))])),
        ("no-endpoint.example.com", passthrough([("*", to_nobody(BackendFault::NoEndpoint))])),
        ("unresolved.example.com", passthrough([("*", to_nobody(BackendFault::Unresolved))])),
        ("no-backend.example.com", passthrough([("*", Backends::default())])),
        ("dead.example.com", passthrough([("*", to(&[dead_endpoint()]))])),
    ];
    let (bed, address) = Bed::serving(tls_port(listeners)).await;
    let mut malformed = client_hello(ONE);
    malformed[5 + 4 + 34] = 255;
    for (what, first, outcome) in [
        ("unknown name", client_hello(OTHER), Outcome::UnknownName),
        ("no name", client_hello("192.0.2.7"), Outcome::NoServerName),
        ("no route", client_hello("b.no-route.example.com"), Outcome::NoRoute),
        ("no endpoint", client_hello("no-endpoint.example.com"), Outcome::Backend(BackendFault::NoEndpoint)),
        ("unresolved", client_hello("unresolved.example.com"), Outcome::Backend(BackendFault::Unresolved)),
        ("no backend", client_hello("no-backend.example.com"), Outcome::NoBackend),
        ("dead backend", client_hello("dead.example.com"), Outcome::Unreachable),
        ("not TLS", b"GET / HTTP/1.1\r\n\r\n".to_vec(), Outcome::InvalidHello(InvalidHello::NotTls)),
        ("malformed", malformed, Outcome::InvalidHello(InvalidHello::Malformed)),
    ] {
        let mut client = connect(address).await;
        client.write_all(&first).await.unwrap();
        assert_closed_in_silence(&mut client).await;
        assert_eq!(bed.records.finished().await.outcome, outcome, "{what}");
    }
}

/// Origin: dask-gateway, assertion v.
#[tokio::test]
async fn a_tls_client_sees_the_plain_close_as_no_alert() {
    let (_bed, address) = Bed::serving(tls_port([(ONE, passthrough([]))])).await;
    for sni in [OTHER, "127.0.0.1"] {
        let error = tls(address, sni, tls_config(None, &[])).await.unwrap_err();
        let kind = error.kind();
        assert!(matches!(kind, std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset), "{error}");
    }
}

/// Origin: pains row 5.
#[tokio::test]
async fn a_hello_may_come_byte_by_byte() {
    let (backend, mut connections) = by_hand().await;
    let (_bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&[backend]))]))])).await;
    let hello = client_hello(ONE);
    let mut client = connect(address).await;
    client.set_nodelay(true).unwrap();
    for byte in &hello {
        client.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut backend = soon(connections.recv()).await.unwrap();
    let mut replayed = vec![0; hello.len()];
    soon(backend.read_exact(&mut replayed)).await.unwrap();
    assert_eq!(replayed, hello, "the bytes are the same, and so are those after them");
    client.write_all(b"more").await.unwrap();
    let mut more = [0; 4];
    soon(backend.read_exact(&mut more)).await.unwrap();
    assert_eq!(&more, b"more");
}

/// Origin: pains row 23. The deadline is for the whole hello: a byte now and then does not move it.
#[tokio::test]
async fn a_client_must_say_what_it_wants_in_time() {
    let mut bed = Bed::new(Settings { hello_timeout: Duration::from_millis(50), ..Settings::default() });
    let address = bed.serve(tls_port([("*", passthrough([]))])).await;
    let mut client = connect(address).await;
    let record = tokio::select! {
        record = bed.records.finished() => record,
        () = drip(&mut client) => panic!("the gateway closed without a record"),
    };
    assert_eq!(record.outcome, Outcome::HelloTimeout);
    assert_closed_in_silence(&mut client).await;
}

async fn drip(client: &mut TcpStream) {
    for byte in client_hello(ONE) {
        if client.write_all(&[byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_its_hello_is_noticed() {
    let (bed, address) = Bed::serving(tls_port([("*", passthrough([]))])).await;
    let mut client = connect(address).await;
    client.write_all(&client_hello(ONE)[..40]).await.unwrap();
    drop(client);
    assert_eq!(bed.records.finished().await.outcome, Outcome::HelloCutShort);
}

/// Origin: dask-gateway, assertion vii; pains row 7.
#[tokio::test]
async fn a_new_table_serves_the_next_connection_and_leaves_open_tunnels_alone() {
    let (old, new) = (echo("old").await, echo("new").await);
    let (mut bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&[old]))]))])).await;
    let mut before = connect(address).await;
    before.write_all(&client_hello(ONE)).await.unwrap();
    assert_eq!(read_line(&mut before).await, "old");
    skip_hello(&mut before).await;
    let old_table = bed.table.clone();

    assert_eq!(bed.serve(tls_port([("*", passthrough([(ONE, to(&[new]))]))])).await, address);
    let mut after = connect(address).await;
    after.write_all(&client_hello(ONE)).await.unwrap();
    assert_eq!(read_line(&mut after).await, "new");
    assert_echo(&mut before, "still here").await;
    assert!(old_table.upgrade().is_none(), "an open tunnel keeps no table alive");

    bed.serve(tls_port([("*", passthrough([]))])).await;
    let mut refused = connect(address).await;
    refused.write_all(&client_hello(ONE)).await.unwrap();
    assert_closed_in_silence(&mut refused).await;
    assert_echo(&mut before, "and still").await;
}

/// Origin: pains row 7; gateway-api-bench "routechange". No connection may fail because a table came in between.
#[tokio::test]
async fn no_connection_suffers_from_a_change() {
    let backend = echo("one").await;
    let port = || tls_port([("*", passthrough([(ONE, to(&[backend]))]))]);
    let (mut bed, address) = Bed::serving(port()).await;
    let clients = async {
        for _ in 0..200 {
            let mut client = connect(address).await;
            client.write_all(&client_hello(ONE)).await.unwrap();
            assert_eq!(read_line(&mut client).await, "one");
        }
    };
    let mut clients = std::pin::pin!(clients);
    let mut changes = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut clients => break,
            _ = bed.serve(port()) => changes += 1,
        }
        tokio::task::yield_now().await;
    }
    assert!(changes > 50, "{changes} changes");
}

/// Hears the echo of the hello that the echo server took for its first words.
async fn skip_hello(client: &mut TcpStream) {
    let mut heard = vec![0; client_hello(ONE).len()];
    soon(client.read_exact(&mut heard)).await.unwrap();
}

/// Origin: pains row 25.
#[tokio::test]
async fn each_direction_ends_by_itself() {
    let (backend, mut connections) = by_hand().await;
    let (bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&[backend]))]))])).await;
    let hello = client_hello(ONE);
    for client_first in [true, false] {
        let mut client = connect(address).await;
        client.write_all(&hello).await.unwrap();
        let mut backend = soon(connections.recv()).await.unwrap();
        let mut replayed = vec![0; hello.len()];
        soon(backend.read_exact(&mut replayed)).await.unwrap();
        let (first, second) = if client_first { (&mut client, &mut backend) } else { (&mut backend, &mut client) };
        say_last(first, "all I had to say").await;
        assert_eq!(hear_last(second).await, "all I had to say");
        say_last(second, "and so had I").await;
        assert_eq!(hear_last(first).await, "and so had I");
        let record = bed.records.finished().await;
        assert_eq!(record.outcome, Outcome::Served);
        let said = u64::try_from(hello.len()).unwrap();
        let expected = if client_first { (said + 16, 12) } else { (said + 12, 16) };
        assert_eq!((record.traffic.received, record.traffic.sent), expected);
    }
}

async fn say_last(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

async fn hear_last(stream: &mut TcpStream) -> String {
    let mut heard = String::new();
    soon(stream.read_to_string(&mut heard)).await.unwrap();
    heard
}

/// A side that does not read makes the other wait, and nothing is lost.
#[tokio::test]
async fn bulk_arrives_whole_on_a_slow_reader() {
    const LEN: usize = 16 * 1024 * 1024;
    let (backend, mut connections) = by_hand().await;
    let (_bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&[backend]))]))])).await;
    let hello = client_hello(ONE);
    let bulk: Vec<u8> = (0..LEN).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let mut client = connect(address).await;
    client.write_all(&hello).await.unwrap();
    let mut backend = soon(connections.recv()).await.unwrap();
    let writing = async {
        client.write_all(&bulk).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let reading = async {
        let (mut heard, mut buffer) = (Vec::new(), [0; 1000]);
        while let len @ 1.. = backend.read(&mut buffer).await.unwrap() {
            heard.extend_from_slice(&buffer[..len]);
        }
        heard
    };
    let ((), heard) = soon(async { tokio::join!(writing, reading) }).await;
    assert!(heard[hello.len()..] == bulk, "{} of {LEN} bytes", heard.len() - hello.len());
}

#[tokio::test]
async fn the_next_endpoint_is_tried_when_one_is_dead() {
    let alive = echo("alive").await;
    let endpoints = [dead_endpoint(), dead_endpoint(), alive];
    let (bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&endpoints))]))])).await;
    for _ in 0..6 {
        let mut client = connect(address).await;
        client.write_all(&client_hello(ONE)).await.unwrap();
        assert_eq!(read_line(&mut client).await, "alive");
        assert_eq!(bed.records.opened().await.endpoint, Some(alive));
    }
}

#[tokio::test]
async fn every_endpoint_gets_its_share() {
    let endpoints = [echo("a").await, echo("b").await, echo("c").await];
    let (_bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&endpoints))]))])).await;
    let mut greetings = Vec::new();
    for _ in 0..12 {
        let mut client = connect(address).await;
        client.write_all(&client_hello(ONE)).await.unwrap();
        greetings.push(read_line(&mut client).await);
    }
    for name in ["a", "b", "c"] {
        let share = greetings.iter().filter(|greeting| *greeting == name).count();
        assert!((3..=5).contains(&share), "{greetings:?}");
    }
}

/// Origin: the same law as in HTTP listener isolation: the routes of a wider listener do not count.
#[tokio::test]
async fn the_most_specific_listener_takes_the_name_alone() {
    let (wide, narrow) = (echo("wide").await, echo("narrow").await);
    let listeners = [
        ("*", passthrough([("*.example.com", to(&[wide]))])),
        ("*.example.com", passthrough([("a.example.com", to(&[narrow]))])),
    ];
    let (bed, address) = Bed::serving(tls_port(listeners)).await;
    let mut client = connect(address).await;
    client.write_all(&client_hello("A.example.com")).await.unwrap();
    assert_eq!(read_line(&mut client).await, "narrow");
    let mut client = connect(address).await;
    client.write_all(&client_hello("b.example.com")).await.unwrap();
    assert_closed_in_silence(&mut client).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::NoRoute);
}

#[tokio::test]
async fn connections_over_the_limit_are_shed_and_the_rest_goes_on() {
    let backend = echo("one").await;
    let mut bed = Bed::new(Settings { max_connections: 1, ..Settings::default() });
    let address = bed.serve(tls_port([("*", passthrough([(ONE, to(&[backend]))]))])).await;
    let mut first = connect(address).await;
    first.write_all(&client_hello(ONE)).await.unwrap();
    assert_eq!(read_line(&mut first).await, "one");
    skip_hello(&mut first).await;
    assert_closed_in_silence(&mut connect(address).await).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::Shed(Limit::Connections));
    assert_echo(&mut first, "unharmed").await;
    first.shutdown().await.unwrap();
    assert_eq!(bed.records.finished().await.outcome, Outcome::Served);
    let mut next = connect(address).await;
    next.write_all(&client_hello(ONE)).await.unwrap();
    assert_eq!(read_line(&mut next).await, "one", "the place is free again");
}

/// Origin: pains row 24. Nothing may stay behind.
#[tokio::test]
async fn a_reset_on_one_side_ends_the_other() {
    let (backend, mut connections) = by_hand().await;
    let (bed, address) = Bed::serving(tls_port([("*", passthrough([(ONE, to(&[backend]))]))])).await;
    let mut client = connect(address).await;
    client.write_all(&client_hello(ONE)).await.unwrap();
    let backend = soon(connections.recv()).await.unwrap();
    soon(backend.readable()).await.unwrap();
    drop(backend);
    assert_closed_in_silence(&mut client).await;
    drop(client);
    assert_eq!(bed.records.finished().await.outcome, Outcome::Aborted);
}
