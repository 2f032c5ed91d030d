//! Golden cases `cases/<name>/in.yaml -> out.yaml`; `UPDATE_CASES=1` writes the outcomes anew.
//!
//! Besides its outcome every case checks the laws: the order of the objects does not matter, a status that has been
//! written is not written again, every condition knows its generation, and nobody learns of a stranger's objects.

#![allow(clippy::unwrap_used, clippy::unwrap_in_result, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::Path;

use support::input::Case;
use support::{laws, render};

#[test]
fn cases_come_out_as_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let wrong: Vec<_> = names.iter().filter_map(|name| check(&root.join(name)).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs one case against its outcome and the laws.
fn check(folder: &Path) -> Result<(), String> {
    let input = fs::read_to_string(folder.join("in.yaml")).unwrap();
    let case = Case::parse(&input).map_err(|error| format!("{}: {error}", folder.display()))?;
    let outcome = render::outcome(&case);
    laws::check(&case).map_err(|broken| format!("{}: {broken}", folder.display()))?;
    let expected = folder.join("out.yaml");
    if std::env::var_os("UPDATE_CASES").is_some() {
        fs::write(&expected, &outcome).unwrap();
    }
    let expected = fs::read_to_string(expected).unwrap_or_default();
    if outcome == expected { Ok(()) } else { Err(difference(folder, &expected, &outcome)) }
}

fn difference(folder: &Path, expected: &str, outcome: &str) -> String {
    let first = expected.lines().zip(outcome.lines()).position(|(left, right)| left != right);
    let line = first.unwrap_or_else(|| expected.lines().count().min(outcome.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    let (wanted, got) = (at(expected), at(outcome));
    format!("{}/out.yaml:{}\n  expected: {wanted}\n  got:      {got}", folder.display(), line + 1)
}
