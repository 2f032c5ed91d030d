//! Who may come in, and who is refused so that the others are served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use portreeve_gateway::{Limit, Outcome, Settings};
use portreeve_table::Port;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::backends::echo;
use crate::bed::{Bed, passthrough, soon, tls_port, to};
use crate::clients::{assert_closed_in_silence, assert_echo, client_hello, read_line};

const NAME: &str = "a.example.com";

fn tunnel_to(backend: SocketAddr) -> Port {
    tls_port([("*", passthrough([(NAME, to(&[backend]))]))])
}

/// Connects from another loopback address.
async fn connect_from(last: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0)).unwrap();
    soon(socket.connect(address)).await.unwrap()
}

async fn assert_served(mut client: TcpStream) -> TcpStream {
    client.write_all(&client_hello(NAME)).await.unwrap();
    assert_eq!(read_line(&mut client).await, "backend");
    client
}

/// Origin: pains row 23.
#[tokio::test]
async fn a_peer_that_says_nothing_keeps_nobody_else_out() {
    let settings = Settings { max_waiting: 3, max_waiting_per_peer: 2, ..Settings::default() };
    let mut bed = Bed::new(settings);
    let address = bed.serve(tunnel_to(echo("backend").await)).await;
    let silent = [connect_from(2, address).await, connect_from(2, address).await];
    assert_closed_in_silence(&mut connect_from(2, address).await).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::Shed(Limit::PeerWaiting));
    let _tunnel = assert_served(connect_from(3, address).await).await;
    let _last_place = connect_from(4, address).await;
    assert_closed_in_silence(&mut connect_from(5, address).await).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::Shed(Limit::Waiting));
    let [first, second] = silent;
    drop(first);
    assert_eq!(bed.records.finished().await.outcome, Outcome::HelloCutShort);
    assert_served(second).await;
}

#[tokio::test]
async fn a_peer_has_its_share_of_tunnels_and_no_more() {
    let mut bed = Bed::new(Settings { max_connections_per_peer: 1, ..Settings::default() });
    let address = bed.serve(tunnel_to(echo("backend").await)).await;
    let first = assert_served(connect_from(2, address).await).await;
    assert_closed_in_silence(&mut connect_from(2, address).await).await;
    assert_eq!(bed.records.finished().await.outcome, Outcome::Shed(Limit::PeerConnections));
    assert_served(connect_from(3, address).await).await;
    drop(first);
    while bed.records.finished().await.peer.ip() != IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)) {}
    assert_served(connect_from(2, address).await).await;
}

/// Origin: pains row 23. Ten thousand that say nothing, and some that say a byte now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_half_open_connections_leave_new_clients_served() {
    allow_files();
    let settings = Settings { hello_timeout: Duration::from_mins(5), ..Settings::with_connections(30_000) };
    let mut bed = Bed::new(settings);
    let address = bed.serve(tunnel_to(echo("backend").await)).await;
    let mut tunnel = assert_served(TcpStream::connect(address).await.unwrap()).await;
    soon(tunnel.read_exact(&mut vec![0; client_hello(NAME).len()])).await.unwrap();
    let crowd = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "admission::the_crowd", "--ignored"])
        .env(CROWD_ADDRESS, address.to_string())
        .spawn();
    let mut crowd = Crowd(crowd.unwrap());
    let monitor = bed.gateway.monitor();
    let gathered = async {
        while monitor.connections().waiting < CROWD {
            assert!(crowd.0.try_wait().unwrap().is_none(), "the crowd has left early");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(gathered).await;
    let started = Instant::now();
    for _ in 0..100 {
        assert_served(TcpStream::connect(address).await.unwrap()).await;
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_echo(&mut tunnel, "unharmed").await;
    assert!(monitor.connections().waiting >= CROWD, "the crowd is still there");
}

/// Leaves with the test.
struct Crowd(Child);

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

const CROWD: usize = 10_000;
const CROWD_ADDRESS: &str = "PORTREEVE_CROWD_ADDRESS";

/// Not a test by itself: the clients of the one before, in a process of their own, as both ends of each connection would
/// be more files than a process usually may have.
#[tokio::test]
#[ignore = "is started by another test"]
async fn the_crowd() {
    let address: SocketAddr = std::env::var(CROWD_ADDRESS).unwrap().parse().unwrap();
    allow_files();
    let mut clients = Vec::new();
    for number in 0..CROWD {
        clients.push(connect_from(2 + u8::try_from(number % 5).unwrap(), address).await);
    }
    let mut hello = client_hello(NAME).into_iter();
    loop {
        let byte = hello.next().unwrap();
        for client in clients.iter_mut().step_by(50) {
            client.write_all(&[byte]).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    assert!(limit.maximum.is_none_or(|files| files >= 18_000), "this test needs 18,000 files: {limit:?}");
}
