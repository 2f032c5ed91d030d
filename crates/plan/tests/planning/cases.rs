//! Golden cases: `cases/<name>/in.yaml` becomes `cases/<name>/out.yaml`. `UPDATE_CASES=1` rewrites what came out.
//!
//! Every case asserts the laws of the design, in [`check`].

use std::path::Path;

use crate::support::{Cluster, first_plan, news, outcome, settle};
use portreeve_plan::plan;
use serde_json::{Map, Value, json};

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let only = std::env::var("CASE").ok();
    let mut wrong = Vec::new();
    for name in
        names.iter().filter_map(|name| name.to_str()).filter(|name| only.as_deref().is_none_or(|only| only == *name))
    {
        println!("case {name}");
        let output = folder.join(name).join("out.yaml");
        let now = check(&std::fs::read_to_string(folder.join(name).join("in.yaml")).unwrap());
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(&output, now).unwrap();
        } else if std::fs::read_to_string(&output).unwrap_or_default() != now {
            println!("--- {name} is now:\n{now}");
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "other than in cases/<name>/out.yaml: {wrong:?}; UPDATE_CASES=1 rewrites them");
}

/// Plans a case, carries the plan out, lets the gateway answer, and plans until nothing is left to do. On the way the
/// laws of the design are asserted.
fn check(input: &str) -> String {
    let mut cluster = Cluster::read(input);
    let mut report = Map::new();
    let first = plan(&cluster.world());
    report.insert("first".to_owned(), first_plan(&first, cluster.settings.full));
    settle(&mut cluster);
    let planned = outcome(&cluster);
    if !cluster.settings.silent {
        for _ in 0..3 {
            cluster.answer();
            settle(&mut cluster);
        }
        let served = news(&planned, &outcome(&cluster));
        if served != json!({}) {
            report.insert("served".to_owned(), served);
        }
    }
    report.insert("planned".to_owned(), planned);
    let mut text = serde_saphyr::to_string(&Value::from(report)).unwrap();
    text.truncate(text.trim_end().len());
    text + "\n"
}
