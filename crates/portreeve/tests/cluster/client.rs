//! A client that connects again and again, and keeps account of what it got.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use portreeve_testkit::{Host, tls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// How long one request may take on a machine that also compiles.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ten times a second.
const PERIOD: Duration = Duration::from_millis(100);

/// Where a client connects, whom it asks for, and whom it trusts.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) from: Host,
    pub(crate) to: SocketAddr,
    pub(crate) name: String,
    pub(crate) trusts: ClientConfig,
}

/// What a steady client got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) good: usize,
    /// When, since the client started, and what.
    pub(crate) bad: Vec<(Duration, String)>,
}

/// A client that makes ten new connections a second, each with one request, until it is dropped or ended.
pub(crate) struct Steady {
    account: Arc<Mutex<Account>>,
    task: JoinHandle<()>,
}

/// A client that trusts this authority.
pub(crate) fn trusting(authority: &[u8]) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate.context("the authority is PEM")?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Target {
    /// One new connection with one request; returns the body of the answer 200.
    pub(crate) async fn get(&self) -> anyhow::Result<String> {
        let connection = self.from.connect(self.to).await?;
        let stream = tls::handshake(self.trusts.clone(), &self.name, connection).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = hyper::Request::get("/").header("host", &self.name).body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        connection.abort();
        ensure!(status == 200, "{status}");
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Connects ten times a second from now on.
    pub(crate) fn steadily(&self) -> Steady {
        let account = Arc::<Mutex<Account>>::default();
        let task = tokio::spawn(connect_steadily(self.clone(), account.clone()));
        Steady { account, task }
    }
}

async fn connect_steadily(target: Target, account: Arc<Mutex<Account>>) {
    let start = Instant::now();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Requests that hang hold up no later ones, and end with the client.
    let mut requests = JoinSet::new();
    loop {
        ticks.tick().await;
        while requests.try_join_next().is_some() {}
        let (target, account) = (target.clone(), account.clone());
        requests.spawn(async move {
            let at = start.elapsed();
            let result = timeout(PATIENCE, target.get()).await.context("no answer").flatten();
            let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(_) => account.good += 1,
                Err(error) => account.bad.push((at, format!("{error:#}"))),
            }
        });
    }
}

impl Steady {
    /// What it got so far.
    pub(crate) fn account(&self) -> Account {
        self.account.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets what it got so far.
    pub(crate) fn forget(&self) {
        *self.account.lock().unwrap_or_else(PoisonError::into_inner) = Account::default();
    }

    /// Fails unless every one of at least this many requests was answered.
    pub(crate) fn assert_served(&self, at_least: usize) {
        let Account { good, bad } = self.account();
        let mut text = String::new();
        for (at, what) in bad.iter().take(20) {
            let _ = writeln!(text, "{:.1} s: {what}", at.as_secs_f64());
        }
        assert!(bad.is_empty(), "{} of {} requests failed:\n{text}", bad.len(), good + bad.len());
        assert!(good >= at_least, "only {good} requests were made");
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        self.task.abort();
    }
}
