//! `cargo xtask crds`: the definitions of our own kinds as files to install.

use std::fs;

use anyhow::{Context, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use crate::run::root;

/// Where the files are, below the workspace's root.
const FOLDER: &str = "charts/portreeve/files/crds";

/// Writes one file for each kind; with `check`, fails on the first that is not what would be written.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    for crd in portreeve_api::crds() {
        let name = format!("{FOLDER}/{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
        let path = root().join(&name);
        let text = render(&crd)?;
        if !check {
            fs::create_dir_all(root().join(FOLDER)).with_context(|| format!("failed to make {FOLDER}"))?;
            fs::write(&path, text).with_context(|| format!("failed to write {name}"))?;
            eprintln!("==> wrote {name}");
        } else if fs::read_to_string(&path).unwrap_or_default() != text {
            bail!("{name} is not what the types say: run `cargo xtask crds` and commit the result");
        }
    }
    Ok(())
}

fn render(crd: &CustomResourceDefinition) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(crd)?;
    shorten_numbers(&mut value);
    Ok(format!("# Written by `cargo xtask crds` from crates/api; do not edit.\n{}", serde_saphyr::to_string(&value)?))
}

/// Bounds are floating-point numbers in the types; `65535` reads better than `65535.0`.
fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(shorten_numbers),
        Value::Array(items) => items.iter_mut().for_each(shorten_numbers),
        Value::Number(number) if number.is_f64() => {
            if let Ok(whole) = number.to_string().trim_end_matches(".0").parse::<i64>() {
                *value = json!(whole);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_the_types_say() {
        run(true).unwrap();
    }

    #[test]
    fn a_file_reads_back_as_the_definition() {
        for crd in portreeve_api::crds() {
            let read: CustomResourceDefinition = serde_saphyr::from_str(&render(&crd).unwrap()).unwrap();
            assert_eq!(read, crd);
        }
    }
}
