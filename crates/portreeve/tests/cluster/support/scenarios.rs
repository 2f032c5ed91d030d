//! Several scenarios in one bed, side by side.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt, StreamExt, stream};

/// How many run at once. They mostly wait.
const SIDE_BY_SIDE: usize = 8;

/// With a word in this variable only the scenarios run that have it in their names.
const ONLY: &str = "PORTREEVE_SCENARIOS";

/// How much of the operator's log a failure shows.
const LAST_LINES: usize = 80;

/// A scenario with its name. It uses namespaces, host names and ports of its own.
pub(crate) type Scenario<'s> = (&'static str, LocalBoxFuture<'s, anyhow::Result<()>>);

/// Runs scenarios side by side, each to its end, and says how long each took, also while the test runs.
///
/// # Panics
///
/// Says at the end which have failed, and why, and what the operator's `log` said last.
pub(crate) async fn side_by_side(scenarios: Vec<Scenario<'_>>, log: impl Fn() -> String) {
    let only = std::env::var(ONLY).unwrap_or_default();
    let wanted = scenarios.into_iter().filter(|(name, _)| name.contains(&only));
    let mut outcomes = stream::iter(wanted).map(timed).buffer_unordered(SIDE_BY_SIDE);
    let mut failures = Vec::new();
    while let Some((name, failure)) = outcomes.next().await {
        failures.extend(failure.map(|failure| format!("--- {name} ---\n{failure}\n")));
    }
    let log = if failures.is_empty() { String::new() } else { log() };
    let last = log.lines().skip(log.lines().count().saturating_sub(LAST_LINES)).collect::<Vec<_>>().join("\n");
    assert!(
        failures.is_empty(),
        "{}\n{} scenarios failed; the operator printed last:\n{last}",
        failures.join("\n"),
        failures.len()
    );
}

/// Says something while the test runs; what is printed with `eprintln!` is shown only of tests that fail.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "      {text}");
}

async fn timed((name, scenario): Scenario<'_>) -> (&'static str, Option<String>) {
    let start = Instant::now();
    let failure = match AssertUnwindSafe(scenario).catch_unwind().await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panicked) => {
            let text = panicked.downcast_ref::<String>().map(String::as_str);
            Some(text.or(panicked.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned())
        }
    };
    let outcome = if failure.is_some() { "FAILED" } else { "ok" };
    say(&format!("{:6.1} s  {name}: {outcome}", start.elapsed().as_secs_f64()));
    (name, failure)
}
