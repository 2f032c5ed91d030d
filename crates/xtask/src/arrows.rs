//! The arrows between crates: which room may use which (ARCHITECTURE.md).

use std::collections::BTreeSet;

use anyhow::{Context, bail};

use crate::run::{cargo, step};

/// What each shipped crate may use of the workspace, and of the libraries that mean I/O or Kubernetes.
///
/// Test kits may use anything and are not listed; a crate that is in neither list is refused.
const ARROWS: &[(&str, &[&str])] = &[
    ("portreeve-names", &[]),
    ("portreeve-table", &["portreeve-names"]),
    ("portreeve-api", &[]),
    ("portreeve-schema", &[]),
    ("portreeve-attach", &["portreeve-names", "portreeve-table"]),
    ("portreeve-plan", &["portreeve-names", "portreeve-api"]),
    ("portreeve-gateway", &["portreeve-names", "portreeve-table"]),
    ("portreeve-controller", &["portreeve-names", "portreeve-api", "portreeve-plan"]),
];

/// May use every crate of the workspace.
const UNLISTED: &[&str] = &["portreeve", "portreeve-programs", "portreeve-testkit", "xtask"];

/// Libraries that only some rooms may use, because they are what the others must not do.
const GUARDED: &[(&str, &[&str])] = &[
    ("tokio", &["portreeve-gateway", "portreeve-controller"]),
    ("hyper", &["portreeve-gateway", "portreeve-controller"]),
    ("notify", &[]),
    ("anyhow", &[]),
    (
        "k8s-openapi",
        &["portreeve-api", "portreeve-attach", "portreeve-controller", "portreeve-plan", "portreeve-schema"],
    ),
    ("kube", &["portreeve-api", "portreeve-controller", "portreeve-plan"]),
    ("gateway-api", &["portreeve-attach", "portreeve-controller", "portreeve-plan"]),
];

/// Fails on the first dependency that is not in the tables above.
pub(crate) fn run() -> anyhow::Result<()> {
    let packages = workspace_packages()?;
    let members: BTreeSet<&str> = packages.iter().map(|(name, _)| name.as_str()).collect();
    for (name, dependencies) in &packages {
        if UNLISTED.contains(&name.as_str()) {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(room, _)| room == name) else {
            bail!("{name} has no row in the table of arrows: add it to crates/xtask/src/arrows.rs and ARCHITECTURE.md");
        };
        for dependency in dependencies {
            check_arrow(name, dependency, allowed, &members)?;
        }
    }
    eprintln!("==> arrows between crates: {} crates are in their rooms", packages.len());
    Ok(())
}

fn check_arrow(name: &str, dependency: &str, allowed: &[&str], members: &BTreeSet<&str>) -> anyhow::Result<()> {
    if members.contains(dependency) && !allowed.contains(&dependency) {
        bail!("{name} must not use {dependency}: see the table of rooms in ARCHITECTURE.md");
    }
    let guard = GUARDED.iter().find(|(library, _)| *library == dependency);
    if guard.is_some_and(|(_, rooms)| !rooms.contains(&name)) {
        bail!("{name} must not use {dependency}: that library belongs to other rooms, see ARCHITECTURE.md");
    }
    Ok(())
}

/// Compiles every room without the others, so that none leans on a feature that another one switched on.
pub(crate) fn compile_each_alone() -> anyhow::Result<()> {
    for (room, _) in ARROWS {
        step(&format!("{room} alone"), &mut cargo(&["check", "--locked", "--quiet", "--package", room]))?;
    }
    Ok(())
}

/// The crates of the workspace with the names of their normal dependencies.
fn workspace_packages() -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .output()
        .context("failed to run cargo metadata")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cargo metadata said: {}", String::from_utf8_lossy(&output.stderr)))?;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap_or_default().to_owned();
    Ok(list(&metadata["packages"])
        .iter()
        .map(|package| {
            let normal = list(&package["dependencies"]).into_iter().filter(|dependency| dependency["kind"].is_null());
            (name(package), normal.map(|dependency| name(&dependency)).collect())
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_refused() {
        let members = BTreeSet::from(["portreeve-plan", "portreeve-attach"]);
        assert!(check_arrow("portreeve-plan", "portreeve-attach", &["portreeve-api"], &members).is_err());
        assert!(check_arrow("portreeve-plan", "serde", &[], &members).is_ok());
        assert!(check_arrow("portreeve-plan", "tokio", &[], &members).is_err());
        assert!(check_arrow("portreeve-gateway", "tokio", &[], &members).is_ok());
    }
}
