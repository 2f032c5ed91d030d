//! Chromium, driven from outside (Chrome `DevTools` protocol). Its network is a host of the bed; names of apps lead to the gateway.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use portreeve_testkit::{Bed, Host, Running, eventually};
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::Platform;

/// Where it listens, in its host.
const DEVTOOLS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9222);
/// How long a page may take on a machine that also compiles.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running Chromium with a profile of its own; ended when it is dropped.
pub(crate) struct Chromium {
    host: Host,
    _running: Running,
}

/// One of its tabs.
pub(crate) struct Tab {
    socket: WebSocketStream<tokio::net::TcpStream>,
    last: u64,
}

impl Chromium {
    pub(crate) async fn start(platform: &Platform) -> anyhow::Result<Self> {
        let bed: &Bed = &platform.bed;
        let host = bed.host("chromium")?;
        let mut command = host.command("chromium");
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--ignore-certificate-errors", "--disable-background-networking", "--disable-component-update"]);
        command.arg(format!("--user-data-dir={}", bed.folder().join("chromium").display()));
        command.arg(format!("--host-resolver-rules=MAP *.example.test {}", bed.gateway_address(443)?));
        command.arg(format!("--remote-debugging-port={}", DEVTOOLS.port()));
        command.env("HOME", bed.folder());
        // It misses much of a desktop, and says so.
        let log = std::fs::File::create(bed.folder().join("chromium.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let chromium = Self { _running: host.spawn(command)?, host };
        eventually("Chromium answers", PATIENCE, async || chromium.ask("GET", "/json/version").await).await?;
        Ok(chromium)
    }

    /// Opens a tab. All tabs have the same cookies.
    pub(crate) async fn tab(&self) -> anyhow::Result<Tab> {
        let tab = self.ask("PUT", "/json/new?about:blank").await?;
        let url = tab["webSocketDebuggerUrl"].as_str().context("the tab has an address")?;
        let (socket, _) = tokio_tungstenite::client_async(url, self.connect()?).await?;
        Ok(Tab { socket, last: 0 })
    }

    fn connect(&self) -> anyhow::Result<tokio::net::TcpStream> {
        let stream = self.host.enter(|| TcpStream::connect(DEVTOOLS))??;
        stream.set_nonblocking(true)?;
        Ok(tokio::net::TcpStream::from_std(stream)?)
    }

    async fn ask(&self, method: &str, path: &str) -> anyhow::Result<Value> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(self.connect()?)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", DEVTOOLS.to_string());
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let body = answer.into_body().collect().await?.to_bytes();
        connection.abort();
        serde_json::from_slice(&body).with_context(|| String::from_utf8_lossy(&body).into_owned())
    }
}

impl Tab {
    /// Goes to a URL, as if somebody had typed it.
    pub(crate) async fn go(&mut self, url: &str) -> anyhow::Result<()> {
        let gone = self.call("Page.navigate", json!({"url": url})).await?;
        ensure!(gone["errorText"].is_null(), "{url}: {gone}");
        Ok(())
    }

    /// Waits until the page has a text.
    pub(crate) async fn wait_for_text(&mut self, text: &str) -> anyhow::Result<()> {
        self.wait_for(&format!("document.body.innerText.includes({})", json!(text))).await
    }

    /// Waits for Keycloak's form, and signs in by it.
    pub(crate) async fn sign_in(&mut self, user: &str) -> anyhow::Result<()> {
        self.wait_for("document.querySelector('#kc-form-login') !== null").await?;
        let user = json!(user);
        let script = format!(
            "document.querySelector('#username').value = {user}; document.querySelector('#password').value = {user}; \
             document.querySelector('#kc-form-login').submit()"
        );
        self.evaluate(&script).await.map(drop)
    }

    /// Waits until an expression is true on a page that is loaded.
    pub(crate) async fn wait_for(&mut self, expression: &str) -> anyhow::Result<()> {
        let expression = format!("document.readyState === 'complete' && {expression}");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            // A page that is being left answers with an error.
            let seen = self.evaluate(&expression).await.unwrap_or_default();
            if seen == true {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                let page = self.evaluate("location.href + ' ' + document.body.innerText").await?;
                anyhow::bail!("not {expression} at {page}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What an expression is on the page.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let outcome = self.call("Runtime.evaluate", parameters).await?;
        ensure!(outcome["exceptionDetails"].is_null(), "{expression}: {outcome}");
        Ok(outcome["result"]["value"].clone())
    }

    async fn call(&mut self, method: &str, parameters: Value) -> anyhow::Result<Value> {
        self.last += 1;
        let call = json!({"id": self.last, "method": method, "params": parameters});
        self.socket.send(Message::text(call.to_string())).await?;
        let answer = async {
            loop {
                let message = self.socket.next().await.context("Chromium has closed the tab")??;
                let Message::Text(text) = message else { continue };
                let answer: Value = serde_json::from_str(&text)?;
                if answer["id"] == self.last {
                    ensure!(answer["error"].is_null(), "{method}: {answer}");
                    return Ok(answer["result"].clone());
                }
            }
        };
        tokio::time::timeout(PATIENCE, answer).await.with_context(|| format!("{method} is not answered"))?
    }
}
