//! Apps behind HTTPS: `curl` over HTTP/1.1 and HTTP/2, and a WebSocket client.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{Up, run, text};

/// Fetches a URL through `socket`; prints the body, the status and the HTTP version.
fn curl(up: &Up, socket: SocketAddr, url: &str, arguments: &[&str]) -> String {
    let target = format!("::{}:{}", socket.ip(), socket.port());
    let output = run(Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "10",
            "--write-out",
            "status=%{http_code} version=%{http_version}",
        ])
        .args(["--connect-to", &target, "--cacert"])
        .arg(up.ca())
        .args(arguments)
        .arg(url));
    text(&output)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_answers_over_http1_and_http2_with_its_own_certificate() {
    let up = Up::start().await;
    let first = curl(&up, up.platform(443), "https://hub.example.test/lab?x=1", &["--http1.1"]);
    assert!(first.contains("hub: /lab") && first.contains("status=200 version=1.1"), "{first}\n{}", up.log());
    let second = curl(&up, up.platform(443), "https://dask.example.test/api/v1", &["--http2"]);
    assert!(second.contains("api-dask-gateway: /api/v1") && second.contains("status=200 version=2"), "{second}");

    let names = certificate_names(&up, "hub.example.test");
    assert!(names.contains("DNS:hub.example.test") && !names.contains('*'), "not the app's own: {names}");
    let names = certificate_names(&up, "unclaimed.example.test");
    assert!(names.contains("DNS:*.example.test"), "not the Gateway's shared one: {names}");
}

/// The names in the certificate that `openssl` sees for a server name.
fn certificate_names(up: &Up, server_name: &str) -> String {
    let shown = run(Command::new("openssl").args([
        "s_client",
        "-connect",
        &up.platform(443).to_string(),
        "-servername",
        server_name,
    ]));
    let file = up.folder.path().join("shown.pem");
    std::fs::write(&file, shown.stdout).unwrap();
    text(&run(Command::new("openssl").args(["x509", "-noout", "-ext", "subjectAltName", "-in"]).arg(file)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_without_a_route_is_404() {
    let up = Up::start().await;
    let printed = curl(&up, up.platform(443), "https://dask.example.test/apis", &[]);
    assert!(printed.contains("status=404"), "a prefix ends at a whole path element: {printed}");
}

/// facts/pains row 6: one connection, two hosts. Each listener has a certificate of its own, so the second is misdirected.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_another_listener_is_misdirected() {
    let up = Up::start().await;
    let printed =
        curl(&up, up.platform(443), "https://hub.example.test/api/v1", &["--header", "Host: dask.example.test"]);
    assert!(printed.contains("status=421"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_goes_through() {
    let mut up = Up::start().await;
    let backend = serve_websocket().await;
    let manifest = WEBSOCKET_APP.replace("PORT", &backend.port().to_string());
    std::fs::write(up.manifest("chat.yaml"), manifest).unwrap();
    let (socket, target) = (up.platform(443), format!("::{}:{}", up.platform(443).ip(), up.platform(443).port()));
    let ca = up.ca();
    up.wait_until("the new app is served", || {
        let mut command = Command::new("curl");
        command.args(["--silent", "--max-time", "5", "--output", "/dev/null", "--write-out", "%{http_code}"]);
        command.args(["--connect-to", &target, "--cacert"]).arg(&ca).arg("https://chat.example.test/");
        // Until then the Gateway's shared listener answers 404; a WebSocket server breaks off a plain request.
        text(&run(&mut command)) == "502"
    });

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(up.ca()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("chat.example.test").unwrap(), TcpStream::connect(socket).await.unwrap())
        .await
        .unwrap();
    let (mut client, _) = tokio_tungstenite::client_async("wss://chat.example.test/", stream).await.unwrap();
    client.send(Message::text("are you there?")).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text("are you there?"));
}

/// An app whose backend is given by an EndpointSlice in the directory.
const WEBSOCKET_APP: &str = r#"
apiVersion: v1
kind: Namespace
metadata: { name: chat, labels: { nebari.dev/managed: "true" } }
---
apiVersion: reconcilers.nebari.dev/v1
kind: NebariApp
metadata: { name: chat, namespace: chat }
spec:
  hostname: chat.example.test
  service: { name: chat, port: 80 }
  routing: {}
---
apiVersion: v1
kind: Service
metadata: { name: chat, namespace: chat }
spec: { ports: [{ name: http, port: 80 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: chat-1, namespace: chat, labels: { kubernetes.io/service-name: chat } }
addressType: IPv4
endpoints: [{ addresses: ["127.0.0.1"] }]
ports: [{ name: http, port: PORT }]
"#;

async fn serve_websocket() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                // A plain request, as curl makes one, is no WebSocket and ends here.
                let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() && socket.send(message).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}
