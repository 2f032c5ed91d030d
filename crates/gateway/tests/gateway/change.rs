//! Many changes under many open tunnels.

use std::time::Duration;

use portreeve_gateway::Settings;
use portreeve_table::Port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backends::echo;
use crate::bed::{Bed, passthrough, soon, tls_port, to};
use crate::clients::{assert_echo, client_hello, read_line};

const NAME: &str = "a.example.com";

/// Origin: pains row 7. Routes come and go, also those of the tunnels, and so do listeners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_changes_close_none_of_a_thousand_tunnels() {
    let (backend, other) = (echo("backend").await, echo("other").await);
    let drain = Some(Duration::from_mins(5));
    let mut bed = Bed::new(Settings { removed_route_drain: drain, ..Settings::default() });
    let change = |number: usize| -> Port {
        let name = format!("b{number}.example.com");
        match number % 4 {
            0 => tls_port([("*", passthrough([(NAME, to(&[backend]))]))]),
            1 => tls_port([("*", passthrough([(NAME, to(&[other])), (&name, to(&[other]))]))]),
            2 => tls_port([("*", passthrough([(&name, to(&[backend]))]))]),
            _ => tls_port([(&name, passthrough([(&name, to(&[backend]))]))]),
        }
    };
    let address = bed.serve(change(0)).await;
    let hello = client_hello(NAME);
    let mut tunnels = Vec::new();
    for _ in 0..1000 {
        let mut client = soon(TcpStream::connect(address)).await.unwrap();
        client.write_all(&hello).await.unwrap();
        assert_eq!(read_line(&mut client).await, "backend");
        soon(client.read_exact(&mut vec![0; hello.len()])).await.unwrap();
        tunnels.push(client);
    }
    for number in 1..=1000 {
        assert_eq!(bed.serve(change(number)).await, address);
        let place = number % tunnels.len();
        assert_echo(&mut tunnels[place], "still here").await;
    }
    for tunnel in &mut tunnels {
        assert_echo(tunnel, "and in the end").await;
    }
    assert_eq!(bed.gateway.monitor().tunnels().len(), tunnels.len());
}
