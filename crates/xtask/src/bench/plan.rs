//! `cargo xtask bench plan`: the planner alone.

use serde_json::{Value, json};

use super::{keep, output, versions};
use crate::run::cargo;

/// Runs the bench of the planner, prints a table and keeps the results.
pub(super) fn run() -> anyhow::Result<()> {
    eprintln!("==> build and run the bench of the planner");
    let printed = output(&mut cargo(&["bench", "--package", "portreeve-plan", "--bench", "plan", "--locked"]))?;
    let worlds: Vec<Value> = printed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    println!("{:>6}  {:<8} {:>10} {:>12} {:>10}", "apps", "plan", "time", "allocations", "peak");
    for world in &worlds {
        for plan in ["first", "settled"] {
            let cost = &world[plan];
            let peak = cost["peakBytes"].as_f64().unwrap_or_default() / 1e6;
            let time = cost["milliseconds"].as_f64().unwrap_or_default();
            println!(
                "{:>6}  {plan:<8} {time:>7.1} ms {:>12} {peak:>7.1} MB",
                world["apps"].to_string(),
                cost["allocations"].to_string()
            );
        }
    }
    keep("plan", &json!({ "versions": versions()?, "worlds": worlds }))
}
