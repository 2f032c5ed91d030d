//! What the demo prints.

use std::net::SocketAddr;

use portreeve_gateway::AccessRecord;
use serde_json::Value;

use super::client::Answer;
use super::scenario::{Expect, Step};
use crate::standalone::Snapshot;
use crate::text::Style;

/// One line of the report, and whether all was as it must be.
pub(super) struct Line {
    asked: String,
    taken_by: String,
    answer: String,
    proof: String,
    pub(super) right: bool,
}

/// Something that must be refused in a status, and what the status says.
pub(super) struct Refusal {
    subject: String,
    expected: &'static str,
    reason: String,
    message: String,
}

impl Line {
    /// Judges what came of `step`.
    pub(super) fn of(step: &Step, socket: SocketAddr, record: Option<&AccessRecord>, answer: &Answer) -> Self {
        let (proof, right) = judge(&step.expect, answer);
        Self { asked: asked(step, socket), taken_by: taken_by(record), answer: said(answer), proof, right }
    }
}

impl Refusal {
    /// Whether the status says what it must.
    pub(super) fn is_right(&self) -> bool {
        self.reason == self.expected
    }
}

/// The table of all lines, fitted to the terminal.
pub(super) fn lines(lines: &[Line], style: Style) -> String {
    let mut table = style.table(&["", "asked", "taken by listener, route", "answer", "what it proves"]);
    for line in lines {
        table.add_row([style.mark(line.right), &line.asked, &line.taken_by, &line.answer, &line.proof]);
    }
    table.to_string()
}

/// What the quickstart claims in vain.
pub(super) fn refusals(snapshot: &Snapshot) -> Vec<Refusal> {
    let condition = |kind: &str, namespace: &str, name: &str, path: &str, kind_of_condition: &str| {
        let object = snapshot.object(kind, namespace, name).unwrap_or(&Value::Null);
        let conditions = object.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind_of_condition).unwrap_or_default()
    };
    let own = "/status/conditions";
    [
        ("NebariApp", "latecomer", "port-grabber", own, "TCPRoutingReady", "PortConflict"),
        ("NebariApp", "latecomer", "name-grabber", own, "TLSReady", "HostnameConflict"),
        (
            "HTTPRoute",
            "kubespaces-tenant-blue",
            "theft-x-default-x-blue",
            "/status/parents/0/conditions",
            "Accepted",
            "NoMatchingListenerHostname",
        ),
    ]
    .map(|(kind, namespace, name, path, kind_of_condition, expected)| {
        let condition = condition(kind, namespace, name, path, kind_of_condition);
        let text = |field: &str| condition[field].as_str().unwrap_or("(no such condition)").to_owned();
        let subject = format!("{kind}\n{namespace}/{name}");
        Refusal { subject, expected, reason: text("reason"), message: text("message") }
    })
    .into()
}

/// The table of all refusals, fitted to the terminal.
pub(super) fn refusal_table(refusals: &[Refusal], style: Style) -> String {
    let mut table = style.table(&["", "who", "reason", "message"]);
    for refusal in refusals {
        table.add_row([style.mark(refusal.is_right()), &refusal.subject, &refusal.reason, &refusal.message]);
    }
    table.to_string()
}

fn taken_by(record: Option<&AccessRecord>) -> String {
    let Some(record) = record else { return "(not reported)".to_owned() };
    let listener = record.listener.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let route = record.route.as_ref().map_or_else(|| format!("none: {}", record.outcome), ToString::to_string);
    format!("{listener}\n{route}")
}

fn asked(step: &Step, socket: SocketAddr) -> String {
    let name = step.name.as_deref().unwrap_or("(no server name)");
    let version = if step.http2 { " over HTTP/2" } else { "" };
    match step.path {
        Some(path) => format!("{socket}\nhttps://{name}{path}{version}"),
        None => format!("{socket}\n{name}"),
    }
}

fn said(answer: &Answer) -> String {
    match answer {
        Answer::Answered { status: Some(status), body, .. } => format!("{status}\n{body}"),
        Answer::Answered { status: None, body, .. } => body.clone(),
        Answer::Closed => "closed".to_owned(),
        Answer::Broken(reason) => format!("broken: {reason}"),
    }
}

/// What the answer proves, and whether that is what must be proved.
fn judge(expect: &Expect, answer: &Answer) -> (String, bool) {
    match (expect, answer) {
        (Expect::EndToEnd { server, says }, Answer::Answered { certificate, body, .. }) => {
            let same = *certificate == server.certificate;
            let greeted = body == says;
            (end_to_end(same, greeted).to_owned(), same && greeted)
        }
        (Expect::Terminated { says }, Answer::Answered { status: Some(200), body, .. }) => {
            ("TLS ends at the gateway, with this host's certificate".to_owned(), body == says)
        }
        (Expect::NotFound, Answer::Answered { status: Some(404), .. }) => {
            ("no route for this: refused by the gateway itself".to_owned(), true)
        }
        (Expect::Closed, Answer::Closed) => ("closed without a byte, not even a TLS alert".to_owned(), true),
        _ => ("not what must come of it".to_owned(), false),
    }
}

fn end_to_end(same_certificate: bool, client_arrived: bool) -> &'static str {
    match (same_certificate, client_arrived) {
        (true, true) => "TLS not terminated: certificate byte-identical to the backend's, client certificate arrived",
        (true, false) => "certificate byte-identical, but the client certificate did not arrive",
        (false, _) => "ANOTHER certificate than the backend's",
    }
}
