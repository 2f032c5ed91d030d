//! Documents that follow from the code are as the code says.

#![expect(clippy::unwrap_used, reason = "a helper of a test may end it")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use portreeve::cli::RawArgs;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// docs/cli.md is what `--help` prints; `UPDATE_DOCS=1` writes it.
#[test]
fn the_cli_reference_is_current() {
    let mut text = String::from(
        "# Commands\n\nWhat `portreeve --help` and the help of each command print. Written by \
         `UPDATE_DOCS=1 cargo test -p portreeve --test docs`.\n",
    );
    let mut command = RawArgs::command().term_width(100);
    command.build();
    write_help(&mut text, "portreeve", &command);
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        let title = format!("portreeve {}", subcommand.get_name());
        write_help(&mut text, &title, subcommand);
    }
    let path = repository().join("docs/cli.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/cli.md is stale: run UPDATE_DOCS=1 cargo test -p portreeve --test docs");
}

fn write_help(text: &mut String, title: &str, command: &clap::Command) {
    // What the environment of whoever runs the test says is not part of the reference.
    let mut command = command.clone().mut_args(|argument| argument.hide_env_values(true));
    let help = command.render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(text, "\n## {title}\n\n```text\n{}\n```\n", lines.join("\n")).unwrap();
}

/// Every reason that a golden case of the planner shows for an app or a tenant is explained.
#[test]
fn every_reason_is_explained() {
    let explained = std::fs::read_to_string(repository().join("docs/conditions.md")).unwrap();
    let mut reasons = BTreeSet::new();
    for case in std::fs::read_dir(repository().join("crates/plan/cases")).unwrap() {
        let output = std::fs::read_to_string(case.unwrap().path().join("out.yaml")).unwrap();
        reasons.extend(conditions(&output));
    }
    assert!(reasons.len() > 20, "the cases show only {reasons:?}");
    let missing: Vec<_> = reasons.iter().filter(|reason| !explained.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/conditions.md does not explain {missing:?}");
}

/// The reasons in the lines `Type: "Status Reason: message"` of a case.
fn conditions(output: &str) -> impl Iterator<Item = String> + '_ {
    output.lines().filter_map(|line| {
        let (_, value) = line.split_once(": ")?;
        let (status, rest) = value.trim_start_matches('"').split_once(' ')?;
        let (reason, _) = rest.split_once(':')?;
        let is_word = reason.chars().all(char::is_alphanumeric);
        (["True", "False", "Unknown"].contains(&status) && is_word).then(|| reason.to_owned())
    })
}
