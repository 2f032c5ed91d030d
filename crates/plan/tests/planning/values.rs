//! The values of virtual clusters against the schema of the chart that takes them.
//!
//! The schema belongs to others and is not in this repository. It is read from the file that `PORTREEVE_VCLUSTER_SCHEMA`
//! names, else from `../shared/facts` beside the workspace; without either the comparison is skipped, and says so.

use std::path::{Path, PathBuf};

use portreeve_plan::{Plan, ReleaseAction, plan};
use serde_json::{Value, json};

use crate::support::Cluster;

#[test]
fn the_values_of_every_case_are_as_the_chart_wants_them() {
    let Some(file) = schema_file() else {
        eprintln!("skipped: the schema of the chart is not there; name it in PORTREEVE_VCLUSTER_SCHEMA");
        return;
    };
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults = |values: &Value| validator.iter_errors(values).map(|error| error.to_string()).collect::<Vec<_>>();
    let mut seen = 0;
    for case in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap() {
        let case = case.unwrap().path();
        let world = Cluster::read(&std::fs::read_to_string(case.join("in.yaml")).unwrap()).world();
        for values in values(&plan(&world)) {
            assert_eq!(faults(&values), [""; 0], "{}: {values}", case.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} cases have values");
    assert_eq!(faults(&json!({"sync": {"fromHost": {"gateway": {}}}})).len(), 1, "nothing is checked");
}

/// Those of all releases, whoever installs them.
fn values(plan: &Plan) -> Vec<Value> {
    let installs = plan.releases.iter().filter_map(|step| match &step.action {
        ReleaseAction::Install { values, .. } => Some(values.clone()),
        ReleaseAction::Uninstall => None,
    });
    let applies = plan.apply.iter().filter_map(|apply| match apply.object.kind.as_str() {
        "HelmRelease" => apply.body["spec"].get("values").cloned(),
        "ConfigMap" => Some(serde_saphyr::from_str(apply.body["data"]["values.yaml"].as_str()?).unwrap()),
        _ => None,
    });
    installs.chain(applies).collect()
}

fn schema_file() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/facts/vcluster-values.schema.json");
    let file = std::env::var_os("PORTREEVE_VCLUSTER_SCHEMA").map_or_else(beside, PathBuf::from);
    file.is_file().then_some(file)
}
