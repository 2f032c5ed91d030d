//! A gateway whose process has no file descriptor left. A process of its own, as that limit is one of the process.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use portreeve_gateway::{AccessRecord, Gateway, Observer, Settings};
use portreeve_names::HostPattern;
use portreeve_table::{
    Backend, BackendOptions, Backends, HostMap, ListenerId, Port, PortKey, RouteId, Table, TcpRoute, TlsListener,
    TlsService,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// Names `a.ex.com`; by hand, as small as it may be.
const HELLO: &[u8] = b"\x16\x03\x01\x00@\x01\x00\x00<\x03\x03________________________________\
    \x00\x00\x02\x13\x01\x01\x00\x00\x11\x00\x00\x00\x0d\x00\x0b\x00\x00\x08a\x2eex\x2ecom";

struct Silent;

impl Observer for Silent {
    fn finished(&self, _: &AccessRecord) {}
}

/// Origin: table of figures, "out of file descriptors": open tunnels go on, whoever comes waits, and is served by itself once
/// there are descriptors again.
#[tokio::test]
async fn without_descriptors_tunnels_go_on_and_accepting_resumes() {
    let backend = echo().await;
    let mut gateway = Gateway::new(Settings::default(), Arc::new(Silent));
    let (table, port) = table(backend);
    let addresses = BTreeMap::from([(port.clone(), "127.0.0.1:0".parse().unwrap())]);
    let bound = gateway.apply(Arc::new(table), &addresses).await;
    let address = *bound[&port].as_ref().unwrap();

    let mut tunnel = TcpStream::connect(address).await.unwrap();
    tunnel.write_all(HELLO).await.unwrap();
    assert_heard(&mut tunnel, HELLO).await;
    let late: Vec<_> = (0..20).map(|_| TcpSocket::new_v4().unwrap()).collect();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(400), ..limit }).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }

    let mut waiting = Vec::new();
    for socket in late {
        let mut client = timeout(Duration::from_secs(5), socket.connect(address)).await.unwrap().unwrap();
        client.write_all(HELLO).await.unwrap();
        waiting.push(client);
    }
    sleep(Duration::from_millis(500)).await;
    tunnel.write_all(b"still here").await.unwrap();
    assert_heard(&mut tunnel, b"still here").await;

    drop(taken);
    for client in &mut waiting {
        assert_heard(client, HELLO).await;
    }
    tunnel.write_all(b"and after").await.unwrap();
    assert_heard(&mut tunnel, b"and after").await;
}

async fn assert_heard(stream: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    timeout(Duration::from_secs(10), stream.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, expected);
}

/// Says back what it hears; has as much patience with descriptors as the gateway.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((mut stream, _)) => drop(tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    tokio::io::copy(&mut reader, &mut writer).await.ok();
                })),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    });
    address
}

fn table(backend: SocketAddr) -> (Table, PortKey) {
    let endpoints = Ok([backend].into());
    let entry = Backend { service: "team/echo:1".into(), weight: 1, endpoints, options: BackendOptions::default() };
    let route = TcpRoute { id: RouteId("TLSRoute/team/echo".into()), backends: Backends { entries: vec![entry] } };
    let mut routes = HostMap::default();
    routes.insert_first(HostPattern::Any, route);
    let service = TlsService::Passthrough(routes);
    let listener = TlsListener { id: ListenerId("Gateway/team/gateway/tls".into()), service, idle_timeout: None };
    let mut listeners = HostMap::default();
    listeners.insert_first(HostPattern::Any, listener);
    let port = PortKey { gateway: "team/gateway".into(), port: 443 };
    (Table { ports: BTreeMap::from([(port.clone(), Port::Tls(listeners))]), ..Table::default() }, port)
}
