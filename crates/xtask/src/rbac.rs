//! `cargo xtask rbac`: what the cluster shell may do, as the rules of the chart's roles.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, bail};
use portreeve_controller::lease::{NEBARI_LEASE, TENANTS_LEASE};
use portreeve_controller::{Duties, Rule, cluster_rules, helm_rules, lease_rules, metrics_rules};

use crate::run::root;

/// Where the files are, below the workspace's root.
const FOLDER: &str = "charts/portreeve/files/rbac";

/// Writes one file for each role; with `check`, fails on the first that is not what would be written.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    for (name, rules) in roles() {
        let file = format!("{FOLDER}/{name}.yaml");
        let path = root().join(&file);
        let text = render(&rules);
        if !check {
            fs::create_dir_all(root().join(FOLDER)).with_context(|| format!("failed to make {FOLDER}"))?;
            fs::write(&path, text).with_context(|| format!("failed to write {file}"))?;
            eprintln!("==> wrote {file}");
        } else if fs::read_to_string(&path).unwrap_or_default() != text {
            bail!("{file} is not what the code needs: run `cargo xtask rbac` and commit the result");
        }
    }
    Ok(())
}

fn roles() -> Vec<(&'static str, Vec<Rule>)> {
    let migration = Duties { migration: true, ..Duties::default() };
    let tenants = Duties { tenants: true, ..Duties::default() };
    vec![
        ("cluster", cluster_rules(Duties::default())),
        ("cluster-migration", cluster_rules(migration)),
        ("cluster-tenants", cluster_rules(tenants)),
        ("cluster-migration-tenants", cluster_rules(Duties { tenants: true, migration: true })),
        ("metrics", metrics_rules()),
        ("leases", lease_rules(&[NEBARI_LEASE.to_owned()])),
        ("leases-tenants", lease_rules(&[TENANTS_LEASE.to_owned()])),
        ("helm", helm_rules()),
    ]
}

/// As a list of rules, which the chart puts under `rules:`.
fn render(rules: &[Rule]) -> String {
    let mut text = "# Written by `cargo xtask rbac` from crates/controller; do not edit.\n".to_owned();
    for rule in rules {
        let names =
            if rule.names.is_empty() { String::new() } else { format!("  resourceNames: {}\n", list(&rule.names)) };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "- apiGroups: [\"{}\"]\n  resources: {}\n{names}  verbs: {}\n",
            rule.group,
            list(&rule.resources),
            list(&rule.verbs),
        );
    }
    text
}

fn list(items: &[impl AsRef<str>]) -> String {
    format!("[{}]", items.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_the_code_needs() {
        run(true).unwrap();
    }
}
