//! Those who run a gateway can see what it does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portreeve::status::Status;

use crate::support::{Up, portreeve, run, text};

/// An address that is free now; nobody else asks for it by chance.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_tells_how_it_stands() {
    let admin = free_address();
    let mut up = Up::start_with(&["--admin-address", &admin.to_string()]).await;
    up.wait_until("it can be asked", || TcpStream::connect(admin).is_ok());
    assert_eq!(get(admin, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(get(admin, "/readyz").0, 200);
    let silent = TcpStream::connect(up.platform(8786)).unwrap();
    let status = || serde_json::from_str::<Status>(&get(admin, "/status").1).unwrap();
    up.wait_until("the silent client is counted", || status().waiting == 1);
    let dask = status().listeners.into_iter().find(|listener| listener.port == 8786).unwrap();
    assert_eq!((dask.address, dask.mode.as_str()), (Some(up.platform(8786)), "TLS passthrough"));
    assert!(dask.routes.iter().any(|route| route.hosts.starts_with("daskgateway-")), "{dask:?}");
    drop(silent);
    up.wait_until("it has left", || status().connections == 0);
    let (code, metrics) = get(admin, "/metrics");
    assert_eq!(code, 200);
    let line = r#"portreeve_gateway_finished_total{kind="connection",outcome="HelloCutShort"}"#;
    assert!(metrics.lines().any(|one| one.starts_with(line)), "{metrics}");
    assert!(metrics.contains("portreeve_gateway_connections 0\n"), "{metrics}");

    let top = run(portreeve().args(["top", "--once", "--address", &admin.to_string()]));
    assert!(top.status.success() && text(&top).contains("8786"), "{}", text(&top));
    assert!(text(&top).starts_with("0 connections, 0 of them waiting, 0 tunnels"), "{}", text(&top));
    let nobody = run(portreeve().args(["top", "--once", "--address", &free_address().to_string()]));
    assert!(!nobody.status.success() && text(&nobody).contains("--admin-address"), "{}", text(&nobody));
}

/// Origin: pains row 7. Clients that connect all the time see no refusal, and what is open has its time.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_takes_over_without_a_refusal() {
    let admin = free_address();
    let mut up = Up::start_with(&["--admin-address", &admin.to_string(), "--drain", "3"]).await;
    up.wait_until("it can be asked", || TcpStream::connect(admin).is_ok());
    let socket = up.platform(80);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut answered = 0;
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(get(socket, "/").0, 404, "no listener has the host 'admin'");
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    let mut open = TcpStream::connect(socket).unwrap();
    let mut old = up.take_over();
    up.wait_until("the other one has taken over", || old.try_wait().unwrap().is_some());
    assert!(old.wait().unwrap().success(), "{}", up.log());
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().unwrap() > 10);
    }
    assert_eq!(get(socket, "/").0, 404);
    assert_eq!(get(admin, "/readyz").0, 200, "the admin address went along");
    assert!(up.is_running() && up.log().contains("another process has taken over"), "{}", up.log());
    // One that had asked for nothing was closed when the old process ended.
    assert_eq!(open.read(&mut [0; 1]).unwrap_or(0), 0);
}
