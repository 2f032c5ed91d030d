//! `cargo xtask soak`: what takes too long for a test, or has too many objects.

mod tenants;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use kube::Client;
use portreeve_controller::kind::KindName;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::load::{Apps, Gateway, Owners, Platform, build_operator, create_all, create_through, delete, usage, writes};
use crate::run::{cargo, step};
use crate::{bed, runtime};

/// How long all owners may take until they are Ready.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long nothing may be written for, at the end of a scenario that is about something else.
const PEACE: Duration = Duration::from_secs(20);
/// What trails behind a change, as events do.
const TRAIL: Duration = Duration::from_secs(5);

/// What runs, with its name. It starts what it needs, and fails when something is not as it must be.
type Scenario = (&'static str, fn(Soak) -> LocalBoxFuture<'static, anyhow::Result<()>>);

/// What scenarios are given.
#[derive(Clone)]
pub(crate) struct Soak {
    /// The operator's binary.
    pub(crate) operator: PathBuf,
    /// How long a watch is held open.
    pub(crate) watch: Duration,
}

const SCENARIOS: &[Scenario] = &[
    ("settled_apps_are_not_written", |soak| settled(soak.operator).boxed_local()),
    ("the_api_server_is_away_for_a_minute", |soak| away(soak.operator).boxed_local()),
    ("many_apps_come_and_go", |soak| come_and_go(soak.operator).boxed_local()),
    ("tenants_over_four_gateways", |soak| tenants::many(soak).boxed_local()),
    ("random_cases_of_the_properties", |_| spawn_blocking(random_cases).map(|ended| ended?).boxed_local()),
    ("a_watch_stays_open_while_tenants_come_and_go", |soak| tenants::watch(soak).boxed_local()),
];

/// Runs the scenarios that have `only` in their names, one after the other, each to its end.
pub(crate) fn run(only: &str, watch: Duration) -> anyhow::Result<()> {
    let wanted: Vec<_> = SCENARIOS.iter().filter(|(name, _)| name.contains(only)).collect();
    if wanted.is_empty() {
        let names: Vec<_> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        bail!("no scenario has {only} in its name: there are {}", names.join(", "));
    }
    bed::run(&[])?;
    let soak = Soak { operator: build_operator()?, watch };
    let mut failed = Vec::new();
    for (name, scenario) in wanted {
        let start = Instant::now();
        eprintln!("==> {name}");
        let outcome = runtime()?.block_on(scenario(soak.clone()));
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(()) => eprintln!("    {name}: ok, {seconds} s"),
            Err(error) => {
                eprintln!("    {name}: FAILED after {seconds} s: {error:?}");
                failed.push(*name);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// The properties of all crates, each with many cases that no test has tried.
fn random_cases() -> anyhow::Result<()> {
    let mut tests = cargo(&["test", "--workspace", "--locked", "--lib", "--test", "planning", "--test", "properties"]);
    step("properties", tests.env("PROPTEST_CASES", "4096"))
}

/// Two minutes with 500 apps, without a write by anybody.
async fn settled(operator: PathBuf) -> anyhow::Result<()> {
    let ground = Ground::with_apps(&operator, 500).await?;
    ground.ensure_peace(Duration::from_mins(2)).await
}

/// Apps are made before, while and after the API server is away for a minute.
async fn away(operator: PathBuf) -> anyhow::Result<()> {
    let mut ground = Ground::with_apps(&operator, 500).await?;
    let client = ground.platform.bed.client();
    let more = Apps::new(500..800)?;
    create_all(&client, more.namespaces()).await?;
    create_all(&client, more.surroundings()).await?;
    let load = tokio::spawn(async move { create_through(&client, more.objects(), PATIENCE).await });
    // Some of them are there, and the operator is at work.
    sleep(Duration::from_millis(500)).await;
    ground.platform.bed.stop_api_server();
    ground.say("the API server is gone");
    for _ in 0..12 {
        sleep(Duration::from_secs(5)).await;
        ground.platform.operator.ensure_alive().await?;
    }
    ground.platform.bed.start_api_server().await?;
    let back = Instant::now();
    ground.say("the API server is back");
    load.await??;
    ground.wait_ready(800).await?;
    ground.say(&format!("all apps are Ready {:.1} s after it came back", back.elapsed().as_secs_f64()));
    ground.ensure_peace(PEACE).await
}

/// 2,000 apps, of which a tenth goes and comes again three times; what the operator needs does not grow with that.
async fn come_and_go(operator: PathBuf) -> anyhow::Result<()> {
    let ground = Ground::with_apps(&operator, 2_000).await?;
    let client = ground.platform.bed.client();
    let first = usage(ground.platform.operator.process())?.resident;
    for round in 1..=3 {
        for number in 0..200 {
            let (namespace, name) = Apps::name(number);
            delete(&client, "reconcilers.nebari.dev/v1", "NebariApp", &namespace, &name).await?;
        }
        ground.owners.wait("200 apps are gone", PATIENCE, |standing| standing.count() == 1_800).await?;
        create_all(&client, Apps::new(0..200)?.objects()).await?;
        ground.wait_ready(2_000).await?;
        ground.say(&format!("round {round}: 200 apps have gone and come"));
    }
    let resident = usage(ground.platform.operator.process())?.resident;
    ground.say(&format!("{first:.1} MB are resident before, {resident:.1} MB after"));
    ensure!(resident < first * 1.3, "the operator has grown from {first:.1} MB to {resident:.1} MB");
    ground.ensure_peace(PEACE).await
}

/// A cluster with the operator and a stub as gateway, and what its owners say.
struct Ground {
    owners: Owners,
    platform: Platform,
    start: Instant,
}

impl Ground {
    /// So many apps are Ready.
    async fn with_apps(operator: &Path, count: usize) -> anyhow::Result<Self> {
        let start = Instant::now();
        let platform = Platform::start(Gateway::Stub, operator).await?;
        let client = platform.bed.client();
        let apps = Apps::new(0..count)?;
        create_all(&client, apps.namespaces()).await?;
        create_all(&client, apps.surroundings()).await?;
        let owners = Owners::follow(client.clone(), KindName::NebariApp);
        create_all(&client, apps.objects()).await?;
        let ground = Self { owners, platform, start };
        ground.wait_ready(count).await?;
        ground.say(&format!("{count} apps are Ready"));
        Ok(ground)
    }

    async fn wait_ready(&self, count: usize) -> anyhow::Result<()> {
        self.owners.wait("all are Ready", PATIENCE, |standing| standing.ready() == count).await
    }

    async fn ensure_peace(&self, time: Duration) -> anyhow::Result<()> {
        ensure_peace(&self.platform.bed.client(), time).await?;
        self.say(&format!("{} s without a write", time.as_secs()));
        Ok(())
    }

    fn say(&self, text: &str) {
        eprintln!("    {:5.1} s  {text}", self.start.elapsed().as_secs_f64());
    }
}

/// Fails when anybody writes anything within `time`.
async fn ensure_peace(client: &Client, time: Duration) -> anyhow::Result<()> {
    sleep(TRAIL).await;
    let before = writes(client).await?;
    sleep(time).await;
    let written = &writes(client).await? - &before;
    ensure!(written.total() == 0, "in {} s there were writes: {written:?}", time.as_secs());
    Ok(())
}
