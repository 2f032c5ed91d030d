//! A client that has not signed in and tries all the time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use portreeve_testkit::tls;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A hundred times a second.
const PERIOD: Duration = Duration::from_millis(10);
/// How often a connection is opened that is not used until later.
const KEPT_EVERY: usize = 200;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

type Connection = SendRequest<Empty<Bytes>>;

/// Requests a path of a name a hundred times a second until it is dropped: on new connections, on one that is kept as long
/// as the gateway lets it, and later on those that were opened long before.
pub(crate) struct Intruder {
    account: Arc<Mutex<Account>>,
    kept: Arc<Mutex<Vec<Connection>>>,
    name: String,
    path: &'static str,
    task: JoinHandle<()>,
}

/// What it has got.
#[derive(Debug, Default)]
struct Account {
    /// How often each status was answered.
    answers: BTreeMap<u16, usize>,
    /// Answers that the app gave.
    leaks: Vec<String>,
}

impl Intruder {
    /// Begins. What the app answers has `Welcome to` in it.
    pub(crate) fn start(to: SocketAddr, name: &str, path: &'static str) -> Self {
        let (account, kept) = (Arc::<Mutex<Account>>::default(), Arc::default());
        let task = tokio::spawn(intrude(to, name.to_owned(), path, account.clone(), Arc::clone(&kept)));
        Self { account, kept, name: name.to_owned(), path, task }
    }

    /// Uses the connections that were opened on the way.
    pub(crate) async fn use_old_connections(&self) -> usize {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        let mut used = 0;
        for mut connection in kept {
            used += usize::from(ask(&mut connection, &self.name, self.path, &self.account, "an old connection").await);
        }
        used
    }

    /// How often a status was answered in this phase.
    pub(crate) fn count(&self, status: u16) -> usize {
        self.account().answers.get(&status).copied().unwrap_or_default()
    }

    /// Fails if one byte of the app has come.
    pub(crate) fn assert_kept_out(&self) {
        let account = self.account();
        assert!(account.leaks.is_empty(), "{} got {:#?} among {:?}", self.name, account.leaks, account.answers);
    }

    /// Forgets what it has got so far, when that is no matter any more.
    pub(crate) fn forget(&self) {
        *self.account() = Account::default();
    }

    /// Ends a phase: fails if one byte of the app came in it, and counts anew from here.
    pub(crate) fn next_phase(&self) {
        self.assert_kept_out();
        self.forget();
    }

    /// What it has got in this phase, for people.
    pub(crate) fn summary(&self) -> String {
        format!("{}: {:?}", self.name, self.account().answers)
    }

    fn account(&self) -> std::sync::MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn intrude(
    to: SocketAddr,
    name: String,
    path: &'static str,
    account: Arc<Mutex<Account>>,
    kept: Arc<Mutex<Vec<Connection>>>,
) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut requests = JoinSet::new();
    let lasting = Arc::new(tokio::sync::Mutex::new(None::<Connection>));
    for tick in 0_usize.. {
        ticks.tick().await;
        while requests.try_join_next().is_some() {}
        let (name, account, kept, lasting) = (name.clone(), account.clone(), kept.clone(), lasting.clone());
        requests.spawn(async move {
            if tick % KEPT_EVERY == 0 {
                if let Some(connection) = connect(to, &name).await {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
                }
            } else if tick % 2 == 0 {
                let mut lasting = lasting.lock().await;
                if lasting.as_ref().is_none_or(SendRequest::is_closed) {
                    *lasting = connect(to, &name).await;
                }
                if let Some(connection) = &mut *lasting {
                    ask(connection, &name, path, &account, "a lasting connection").await;
                }
            } else if let Some(mut connection) = connect(to, &name).await {
                ask(&mut connection, &name, path, &account, "a new connection").await;
            }
        });
    }
}

async fn connect(to: SocketAddr, name: &str) -> Option<Connection> {
    let connect = async {
        let stream = TcpStream::connect(to).await?;
        let stream = tls::handshake(tls::any_certificate()?, name, stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        anyhow::Ok(sender)
    };
    timeout(PATIENCE, connect).await.ok()?.ok()
}

/// False when there was no answer: the connection has ended.
async fn ask(connection: &mut Connection, name: &str, path: &str, account: &Mutex<Account>, how: &str) -> bool {
    let exchange = async {
        let request = Request::get(path).header("host", name).body(Empty::<Bytes>::new())?;
        connection.ready().await?;
        let answer = connection.send_request(request).await?;
        let status = answer.status().as_u16();
        anyhow::Ok((status, answer.into_body().collect().await?.to_bytes()))
    };
    let Ok(Ok((status, body))) = timeout(PATIENCE, exchange).await else { return false };
    let body = String::from_utf8_lossy(&body);
    let mut account = account.lock().unwrap_or_else(PoisonError::into_inner);
    *account.answers.entry(status).or_default() += 1;
    if status == 200 || body.contains("Welcome to") {
        account.leaks.push(format!("{status} on {how}: {body}"));
    }
    true
}
