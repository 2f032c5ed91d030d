//! What is different between two snapshots, one line for each thing.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::manifest::{Finding, Severity};
use crate::report::{Row, SocketStates, State};
use crate::standalone::Snapshot;

/// One thing that is different now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Whether a person should look.
    pub severity: Weight,
    /// What is different.
    pub text: String,
}

/// How much a [`Change`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// As it should be.
    Info,
    /// A person should look.
    Warning,
    /// Something cannot be used, or is not served.
    Error,
}

/// What is different in `after`: sockets first, then owners, then what there is to say.
pub fn changes(before: &Snapshot, after: &Snapshot) -> Vec<Change> {
    let mut changes = socket_changes(&before.sockets, &after.sockets);
    changes.extend(row_changes(&before.rows, &after.rows));
    changes.extend(new(&before.findings, &after.findings, |finding| match finding.severity {
        Severity::Error => Weight::Error,
        Severity::Warning => Weight::Warning,
        Severity::Info => Weight::Info,
    }));
    let errors = |snapshot: &Snapshot| -> Vec<Finding> {
        snapshot.findings.iter().filter(|finding| finding.is_error()).cloned().collect()
    };
    changes.extend(gone(&errors(before), &errors(after)));
    changes.extend(new(&before.problems, &after.problems, |_| Weight::Error));
    changes.extend(gone(&before.problems, &after.problems));
    let said = |snapshot: &Snapshot| -> Vec<String> {
        snapshot.warnings.iter().map(|warning| format!("{}: {}", warning.subject, warning.message)).collect()
    };
    changes.extend(new(&said(before), &said(after), |_| Weight::Warning));
    let warnings = after.events.iter().filter(|event| event.warning);
    changes
        .extend(warnings.map(|event| {
            Change::new(Weight::Warning, format!("{}: {}: {}", event.about, event.reason, event.message))
        }));
    changes
}

impl Change {
    fn new(severity: Weight, text: impl Into<String>) -> Self {
        Self { severity, text: text.into() }
    }
}

fn socket_changes(before: &SocketStates, after: &SocketStates) -> Vec<Change> {
    let closed = before.iter().filter(|(port, state)| state.is_ok() && !after.contains_key(*port));
    let closed = closed.map(|(port, _)| Change::new(Weight::Info, format!("{port} is closed")));
    let changed = after.iter().filter(|(port, state)| before.get(*port) != Some(*state));
    let changed = changed.map(|(port, state)| match state {
        Ok(address) => Change::new(Weight::Info, format!("{port} is served on {address}")),
        Err(why) => Change::new(Weight::Error, format!("{port} is not served: {why}")),
    });
    closed.chain(changed).collect()
}

fn row_changes(before: &[Row], after: &[Row]) -> Vec<Change> {
    let by_subject =
        |rows: &[Row]| -> BTreeMap<String, Row> { rows.iter().map(|row| (row.subject(), row.clone())).collect() };
    let (before, after) = (by_subject(before), by_subject(after));
    let gone = before.keys().filter(|subject| !after.contains_key(*subject));
    let gone = gone.map(|subject| Change::new(Weight::Info, format!("{subject} is gone")));
    let changed = after.iter().filter(|(subject, row)| before.get(*subject) != Some(*row));
    gone.chain(changed.map(|(subject, row)| row_change(subject, row))).collect()
}

fn row_change(subject: &str, row: &Row) -> Change {
    let served = row.names.iter().filter_map(|name| Some(format!("{} on {}", name.name, name.address?)));
    let served: Vec<_> = served.collect();
    let (weight, tail) = match row.state {
        State::Ready => (Weight::Info, served.join(", ")),
        State::Pending => (Weight::Info, row.message.clone()),
        State::Refused => (Weight::Error, row.message.clone()),
    };
    let tail = if tail.is_empty() { tail } else { format!(": {tail}") };
    Change::new(weight, format!("{subject} is {} ({}){tail}", row.state, row.reason))
}

fn new<T: PartialEq + fmt::Display>(before: &[T], after: &[T], weight: impl Fn(&T) -> Weight) -> Vec<Change> {
    let new = after.iter().filter(|item| !before.contains(item));
    new.map(|item| Change::new(weight(item), item.to_string())).collect()
}

fn gone<T: PartialEq + fmt::Display>(before: &[T], after: &[T]) -> Vec<Change> {
    let gone = before.iter().filter(|item| !after.contains(item));
    gone.map(|item| Change::new(Weight::Info, format!("no longer: {item}"))).collect()
}

#[cfg(test)]
mod tests {
    use portreeve_table::PortKey;

    use super::*;
    use crate::manifest::{Finding, Place};
    use crate::report::ServedName;

    fn snapshot(state: State, findings: &[Finding]) -> Snapshot {
        let socket = "127.0.0.1:8443".parse().unwrap();
        let row = Row {
            kind: "NebariApp".into(),
            namespace: Some("team".into()),
            name: "hub".into(),
            names: vec![ServedName { name: "hub.test".into(), address: Some(socket) }],
            state,
            reason: "R".into(),
            message: "m".into(),
        };
        Snapshot {
            rows: vec![row],
            findings: findings.to_vec(),
            sockets: [(PortKey { gateway: "a/g".into(), port: 443 }, Ok(socket))].into(),
            ..Snapshot::default()
        }
    }

    fn texts(before: &Snapshot, after: &Snapshot) -> Vec<String> {
        changes(before, after).into_iter().map(|change| change.text).collect()
    }

    #[test]
    fn nothing_is_said_twice() {
        let finding = Finding::error(Place::of_line(&"f.yaml".into(), 3), "broken");
        let (ready, refused) = (snapshot(State::Ready, &[]), snapshot(State::Refused, &[finding]));
        assert_eq!(texts(&ready, &ready), Vec::<String>::new());
        assert_eq!(texts(&ready, &refused), ["NebariApp team/hub is Refused (R): m", "f.yaml:3: error: broken"]);
        assert_eq!(
            texts(&refused, &ready),
            ["NebariApp team/hub is Ready (R): hub.test on 127.0.0.1:8443", "no longer: f.yaml:3: error: broken"]
        );
        assert_eq!(
            texts(&Snapshot::default(), &ready),
            ["a/g:443 is served on 127.0.0.1:8443", "NebariApp team/hub is Ready (R): hub.test on 127.0.0.1:8443"]
        );
        assert_eq!(texts(&ready, &Snapshot::default()), ["a/g:443 is closed", "NebariApp team/hub is gone"]);
    }
}
