//! Clients and backends. They speak no TLS: a proxy that passes it on sees nothing of it but the ClientHello, which is real.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use portreeve_testkit::tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How many clients connect at once while connections are counted.
const CONNECTING: usize = 64;
/// How many of the idle tunnels are opened at once.
const OPENING: usize = 200;
/// What one read or write takes.
const BLOCK: usize = 256 * 1024;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Clients of one address that ask for one name.
#[derive(Clone, Debug)]
pub(super) struct Clients {
    to: SocketAddr,
    hello: Arc<Vec<u8>>,
}

/// Bytes that streams have moved.
#[derive(Clone, Debug)]
pub(super) struct Moved {
    /// By all together.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of the slowest stream's bytes to those of the fastest.
    pub(super) fairness: f64,
}

/// Starts the two backends: one that answers each client with one byte and waits until it goes, and one that sends to each
/// client as long as it reads.
pub(super) fn backends() -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let (answers, streams) = (listen()?, listen()?);
    let addresses = (answers.local_addr()?, streams.local_addr()?);
    tokio::spawn(accept(answers, async |mut stream: TcpStream| {
        let _ = stream.write_all(b"k").await;
        let _ = stream.read(&mut [0; 1]).await;
    }));
    tokio::spawn(accept(streams, async |mut stream: TcpStream| {
        let block = vec![0; BLOCK];
        while stream.write_all(&block).await.is_ok() {}
    }));
    Ok(addresses)
}

fn listen() -> anyhow::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(4096).context("failed to listen")
}

/// Serves each connection once its ClientHello has come.
async fn accept<F: Future<Output = ()> + Send>(
    listener: TcpListener,
    serve: impl Fn(TcpStream) -> F + Copy + Send + Sync + 'static,
) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let mut hello = [0; 4096];
            if stream.read(&mut hello).await.is_ok_and(|read| read > 0) {
                serve(stream).await;
            }
        });
    }
}

impl Clients {
    pub(super) fn new(to: SocketAddr, name: &'static str) -> anyhow::Result<Self> {
        Ok(Self { to, hello: Arc::new(tls::client_hello(name)?) })
    }

    /// A connection that has been answered.
    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let connecting = async {
            let mut stream = TcpStream::connect(self.to).await?;
            stream.set_nodelay(true)?;
            stream.write_all(&self.hello).await?;
            ensure!(stream.read(&mut [0; 1]).await? == 1, "closed without an answer");
            Ok(stream)
        };
        timeout(PATIENCE, connecting).await.context("no answer in time")?
    }

    /// How many connections a second are answered and closed when clients connect as fast as they can.
    pub(super) async fn connections_per_second(&self, during: Duration) -> anyhow::Result<f64> {
        let (start, count) = (Instant::now(), AtomicUsize::new(0));
        let connect = async || -> anyhow::Result<()> {
            while start.elapsed() < during {
                drop(self.connect().await?);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        try_join_all((0..CONNECTING).map(|_| connect())).await?;
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        Ok(count.into_inner() as f64 / start.elapsed().as_secs_f64())
    }

    /// How long each connection took from the time at which it was due until it was answered, at a fixed rate; sorted.
    pub(super) async fn latencies(&self, rate: u32, during: Duration) -> anyhow::Result<Vec<Duration>> {
        let (start, total) = (Instant::now(), during.as_secs() * u64::from(rate));
        let mut connections = JoinSet::new();
        for number in 0..total {
            let due = start + Duration::from_secs(number) / rate;
            sleep_until(due).await;
            let clients = self.clone();
            connections.spawn(async move {
                let begun = Instant::now();
                clients.connect().await.map(|_| begun.elapsed())
            });
        }
        let mut latencies: Vec<_> = connections.join_all().await.into_iter().collect::<Result<_, _>>()?;
        latencies.sort_unstable();
        Ok(latencies)
    }

    /// What so many streams move side by side.
    pub(super) async fn stream(&self, streams: usize, during: Duration) -> anyhow::Result<Moved> {
        let counts: Arc<Vec<AtomicU64>> = Arc::new((0..streams).map(|_| AtomicU64::new(0)).collect());
        let mut readers = JoinSet::new();
        for number in 0..streams {
            let (mut stream, counts) = (self.connect().await?, counts.clone());
            readers.spawn(async move {
                let mut block = vec![0; BLOCK];
                while let Ok(read @ 1..) = stream.read(&mut block).await {
                    counts[number].fetch_add(read as u64, Ordering::Relaxed);
                }
            });
        }
        // All are under way, and none has an advance.
        sleep(Duration::from_millis(500)).await;
        counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        let start = Instant::now();
        sleep(during).await;
        let moved: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let seconds = start.elapsed().as_secs_f64();
        readers.shutdown().await;
        let (slowest, fastest) = (moved.iter().min().copied().unwrap_or(0), moved.iter().max().copied().unwrap_or(0));
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        Ok(Moved { bytes: moved.iter().sum(), seconds, fairness: slowest as f64 / fastest.max(1) as f64 })
    }

    /// So many connections that have been answered and stay open, with nothing on them.
    pub(super) async fn idle(&self, count: usize) -> anyhow::Result<Vec<TcpStream>> {
        let mut open = Vec::with_capacity(count);
        while open.len() < count {
            let some = OPENING.min(count - open.len());
            open.extend(try_join_all((0..some).map(|_| self.connect())).await?);
        }
        Ok(open)
    }
}
