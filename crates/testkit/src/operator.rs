//! A running `portreeve controller`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::bed::Bed;
use crate::clients;
use crate::network::Host;
use crate::objects::eventually;
use crate::part::Running;

/// How long the operator may take to start or to stop on a machine that also compiles.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where it serves `/healthz` and `/readyz`, and where `/metrics`, in its host.
const PROBES: u16 = 8081;
const METRICS: u16 = 8080;

/// The real binary as an operator of a bed, in a host that is called after it; killed when it is dropped.
#[derive(Debug)]
pub struct Operator {
    host: Host,
    running: Running,
    log: PathBuf,
}

impl Operator {
    /// Starts `program controller` with the rights of a kubeconfig. No two that run in one bed may have the same name; one of
    /// a name that ran before appends to its log.
    pub fn start(bed: &Bed, name: &str, program: &Path, kubeconfig: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::start_with(bed, name, program, |command| {
            command.arg("controller").arg("--kubeconfig").arg(kubeconfig).arg("--metrics-secure=false");
            command.arg(format!("--health-probe-bind-address=:{PROBES}"));
            command.arg(format!("--metrics-bind-address=:{METRICS}"));
            command.args(arguments)
        })
    }

    /// Starts `program` as `with` says. It must serve its probes at port 8081.
    pub fn start_with(
        bed: &Bed,
        name: &str,
        program: &Path,
        with: impl FnOnce(&mut Command) -> &mut Command,
    ) -> anyhow::Result<Self> {
        let host = bed.host(name)?;
        let log = bed.folder().join(format!("{name}.log"));
        let mut command = host.command(program);
        with(&mut command);
        Ok(Self { running: Running::start_logged(command, &log)?, host, log })
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.running.id()
    }

    /// What it answers when it is asked whether it is ready.
    pub async fn readyz(&self) -> anyhow::Result<clients::Answer> {
        clients::http_get(self.at(PROBES), "operator", "/readyz").await
    }

    /// Waits until it says that it is ready.
    pub async fn wait_ready(&mut self) -> anyhow::Result<()> {
        let ready = eventually("the operator is ready", PATIENCE, async || {
            if let Some(status) = self.running.ended()? {
                anyhow::bail!("it ended with {status}");
            }
            let answer = self.readyz().await?;
            ensure!(answer.status == 200, "/readyz says {}: {}", answer.status, answer.body);
            Ok(())
        });
        ready.await.with_context(|| format!("it printed:\n{}", self.log()))
    }

    /// Fails when it does not run, or does not say that it lives.
    pub async fn ensure_alive(&mut self) -> anyhow::Result<()> {
        let ended = self.running.ended()?;
        ensure!(ended.is_none(), "the operator ended with {ended:?} and printed:\n{}", self.log());
        let answer = clients::http_get(self.at(PROBES), "operator", "/healthz").await?;
        ensure!(answer.status == 200, "/healthz says {}: {}", answer.status, answer.body);
        Ok(())
    }

    /// The lines of its `/metrics` without comments.
    pub async fn metrics(&self) -> anyhow::Result<Vec<String>> {
        let answer = clients::http_get(self.at(METRICS), "operator", "/metrics").await?;
        ensure!(answer.status == 200, "/metrics says {}: {}", answer.status, answer.body);
        Ok(answer.body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
    }

    /// How many writes it has sent, whatever became of them.
    pub async fn writes(&self) -> anyhow::Result<u64> {
        let lines = self.metrics().await?;
        let counts = lines.iter().filter(|line| line.starts_with("portreeve_writes_total"));
        let counts = counts.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<u64>());
        Ok(counts.collect::<Result<Vec<_>, _>>()?.into_iter().sum())
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Stops it from running without closing its connections, as if its machine hung.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.running.pause()
    }

    /// Lets it run again.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.running.resume()
    }

    /// Asks it to end and waits until it has.
    ///
    /// # Errors
    ///
    /// When its exit status is not 0, or it takes too long.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.running.terminate()?;
        let ended = eventually("the operator ends", PATIENCE, async || self.running.ended()?.context("it still runs"));
        let status = ended.await.with_context(|| format!("it printed:\n{}", self.log()))?;
        ensure!(status.success(), "the operator ended with {status} and printed:\n{}", self.log());
        Ok(())
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.host.address(), port))
    }
}
