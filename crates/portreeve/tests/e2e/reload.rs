//! A directory that changes under a running gateway.

use std::sync::Arc;
use std::time::Duration;

use portreeve::demo::{CLUSTERS, Identity};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::support::Up;

/// Opens TLS to `name` on the Dask port, as a client that trusts exactly `identity`.
async fn open(up: &Up, name: &str, identity: &Identity) -> std::io::Result<TlsStream<TcpStream>> {
    let config = identity.mutual_client().unwrap();
    let stream = TcpStream::connect(up.platform(8786)).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

/// facts/pains row 7, facts/dask-gateway (viii): a change touches new connections only.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_tunnel_survives_every_change() {
    let mut up = Up::start().await;
    let identity = Identity::self_signed("dask-internal", &["dask-internal"]).unwrap();
    let backend = serve_echo(&identity).await;
    std::fs::write(up.manifest("long.yaml"), LONG_CLUSTER.replace("PORT", &backend.to_string())).unwrap();
    let start = std::time::Instant::now();
    let mut tunnel = loop {
        match open(&up, "daskgateway-dask.long", &identity).await {
            Ok(tunnel) => break tunnel,
            Err(error) => assert!(start.elapsed() < crate::support::DEADLINE, "{error}\n{}", up.log()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    echo(&mut tunnel, b"before").await;

    // Its route goes, its listener goes, other apps come and go.
    std::fs::remove_file(up.manifest("long.yaml")).unwrap();
    let mut gone = false;
    while !gone {
        gone = open(&up, "daskgateway-dask.long", &identity).await.is_err();
        assert!(start.elapsed() < 2 * crate::support::DEADLINE, "the route is still served:\n{}", up.log());
    }
    echo(&mut tunnel, b"after the route").await;
    // Without the latecomer, who waits for the port.
    std::fs::remove_file(up.manifest("latecomer.yaml")).unwrap();
    std::fs::remove_file(up.manifest("dask.yaml")).unwrap();
    let socket = up.platform(8786);
    up.wait_until("the port of the deleted app is closed", || std::net::TcpStream::connect(socket).is_err());
    echo(&mut tunnel, b"after the listener").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_loses_nothing_and_says_where() {
    let mut up = Up::start().await;
    let path = up.manifest("dask.yaml");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("port: 8786\n        sniHostnames", "port: 87860\n        sniHostnames"))
        .unwrap();
    let log = up.folder.path().join("log");
    let line = good.lines().position(|line| line.trim() == "port: 8786").unwrap() + 1;
    up.wait_until("the fault is reported", || {
        let log = std::fs::read_to_string(&log).unwrap();
        log.contains(&format!("dask.yaml:{line}")) && log.contains("spec.routing.tcp[0].listener.port")
    });
    let name = format!("daskgateway-dask.{}", CLUSTERS[0]);
    let identity = up.backends.schedulers[0].clone();
    assert!(open(&up, &name, &identity).await.is_ok(), "the last good state is no longer served:\n{}", up.log());

    std::fs::write(&path, good.replace(CLUSTERS[1], "mended")).unwrap();
    let start = std::time::Instant::now();
    while open(&up, "daskgateway-dask.mended", &up.backends.schedulers[1].clone()).await.is_err() {
        // The Service `dask-mended` has no endpoint, so the name stays closed; the old one must close too.
        if open(&up, &format!("daskgateway-dask.{}", CLUSTERS[1]), &up.backends.schedulers[1].clone()).await.is_err() {
            return;
        }
        assert!(start.elapsed() < crate::support::DEADLINE, "the mended file is not read:\n{}", up.log());
    }
}

async fn echo(tunnel: &mut TlsStream<TcpStream>, message: &[u8]) {
    tunnel.write_all(message).await.unwrap();
    let mut answer = vec![0; message.len()];
    tunnel.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, message);
}

/// A TLS server that sends everything back, for as long as the client wants.
async fn serve_echo(identity: &Identity) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(identity.mutual_server(&identity.certificate).unwrap()));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    // The client ends it when it has seen enough.
                    let _ = tokio::io::copy(&mut reader, &mut writer).await;
                }
            });
        }
    });
    port
}

const LONG_CLUSTER: &str = r#"
apiVersion: v1
kind: Service
metadata: { name: dask-long, namespace: dask }
spec: { clusterIP: None, ports: [{ name: scheduler, port: 8786 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: dask-long-1, namespace: dask, labels: { kubernetes.io/service-name: dask-long } }
addressType: IPv4
endpoints: [{ addresses: ["127.0.0.1"] }]
ports: [{ name: scheduler, port: PORT }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: { name: dask-long, namespace: dask }
spec:
  parentRefs:
    - { group: gateway.networking.k8s.io, kind: ListenerSet, name: dask-gateway-listeners, sectionName: tcp-scheduler }
  hostnames: [daskgateway-dask.long]
  rules: [{ backendRefs: [{ name: dask-long, port: 8786 }] }]
"#;
