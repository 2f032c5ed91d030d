//! One line for each connection or request, written off the byte path.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use portreeve_gateway::{AccessRecord, Observer};
use serde_json::{Value, json};

use crate::cli::LogFormat;

/// How many lines may wait for a slow terminal or disk; the next ones are counted instead.
const MAX_WAITING: usize = 4096;

/// How long a program that ends waits for its last lines.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// Writes lines to standard output in the order in which they are given, without keeping their givers waiting.
#[derive(Debug)]
pub struct Lines {
    sender: SyncSender<Item>,
    /// How many lines did not fit since the last one that did.
    missed: AtomicU64,
}

/// What the writer is given.
enum Item {
    Line(String),
    /// Everything before this is written.
    Mark(SyncSender<()>),
}

impl Lines {
    /// Starts the writer, a thread that ends with the value.
    pub fn start() -> io::Result<Self> {
        let (sender, items) = sync_channel(MAX_WAITING);
        thread::Builder::new().name("portreeve-output".to_owned()).spawn(move || {
            for item in items {
                // Output that nobody reads any more is no reason to stop serving, nor is a mark that nobody awaits.
                let _ = match item {
                    Item::Line(line) => writeln!(io::stdout().lock(), "{line}").is_ok(),
                    Item::Mark(reached) => reached.send(()).is_ok(),
                };
            }
        })?;
        Ok(Self { sender, missed: AtomicU64::new(0) })
    }

    /// Writes a line, or counts it where the writer cannot keep up.
    pub fn write(&self, line: String) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        let line = if missed == 0 { line } else { format!("{line} (and {missed} lines that could not be written)") };
        if self.sender.try_send(Item::Line(line)).is_err() {
            self.missed.fetch_add(missed + 1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, for a second at most.
    pub fn flush(&self) {
        let (reached, mark) = sync_channel(1);
        if self.sender.try_send(Item::Mark(reached)).is_ok() {
            // A reader that is slower than this has to do without.
            let _ = mark.recv_timeout(FLUSH_TIME);
        }
    }
}

/// Writes an access line for whatever ends.
#[derive(Debug)]
pub struct AccessLog {
    /// Where to.
    pub lines: Arc<Lines>,
    /// How.
    pub format: LogFormat,
}

impl Observer for AccessLog {
    fn finished(&self, record: &AccessRecord) {
        self.lines.write(match self.format {
            LogFormat::Text => text(record),
            LogFormat::Json => json(record).to_string(),
        });
    }
}

fn text(record: &AccessRecord) -> String {
    let mut line = format!("{} {} {}", crate::now(), record.port, record.peer);
    // Writing to a string cannot fail.
    if let Some(name) = &record.server_name {
        let _ = write!(line, " sni={name}");
    }
    if let Some(request) = &record.request {
        let host = request.host.as_ref().map(ToString::to_string).unwrap_or_default();
        let status = request.status.map_or_else(|| "-".to_owned(), |status| status.as_u16().to_string());
        let _ = write!(line, " \"{} {host}{}\" {status}", request.method, request.path);
    }
    if let Some(backend) = &record.backend {
        let _ = write!(line, " -> {backend}");
    }
    if let Some(endpoint) = &record.endpoint {
        let _ = write!(line, " ({endpoint})");
    }
    let traffic = record.traffic;
    let _ = write!(
        line,
        " {} in={} out={} {}ms",
        record.outcome,
        traffic.received,
        traffic.sent,
        record.duration.as_millis()
    );
    line
}

fn json(record: &AccessRecord) -> Value {
    let request = record.request.as_ref();
    json!({
        "type": "access",
        "time": crate::now(),
        "gateway": *record.port.gateway,
        "port": record.port.port,
        "peer": record.peer,
        "serverName": record.server_name.as_ref().map(ToString::to_string),
        "host": request.and_then(|request| request.host.as_ref()).map(ToString::to_string),
        "method": request.map(|request| request.method.as_str()),
        "path": request.map(|request| &request.path),
        "status": request.and_then(|request| request.status).map(|status| status.as_u16()),
        "listener": record.listener.as_ref().map(ToString::to_string),
        "route": record.route.as_ref().map(ToString::to_string),
        "backend": record.backend.as_deref(),
        "endpoint": record.endpoint,
        "outcome": record.outcome.reason(),
        "received": record.traffic.received,
        "sent": record.traffic.sent,
        "durationMs": u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode};
    use portreeve_gateway::{Outcome, RequestRecord, Traffic};
    use portreeve_names::Hostname;
    use portreeve_table::PortKey;

    use super::*;

    fn record() -> AccessRecord {
        AccessRecord {
            port: PortKey { gateway: "a/g".into(), port: 443 },
            peer: "127.0.0.1:5".parse().unwrap(),
            server_name: Some(Hostname::parse("hub.test").unwrap()),
            request: Some(RequestRecord {
                host: Some(Hostname::parse("hub.test").unwrap()),
                method: Method::GET,
                path: "/lab".into(),
                status: Some(StatusCode::OK),
            }),
            listener: None,
            route: None,
            backend: Some("team/hub:80".into()),
            endpoint: Some("127.0.0.1:3000".parse().unwrap()),
            outcome: Outcome::Served,
            traffic: Traffic { received: 1, sent: 2 },
            duration: Duration::from_millis(3),
        }
    }

    #[test]
    fn lines_say_who_asked_what_and_who_answered() {
        let expected = r#"a/g:443 127.0.0.1:5 sni=hub.test "GET hub.test/lab" 200 -> team/hub:80 (127.0.0.1:3000) Served in=1 out=2 3ms"#;
        assert!(text(&record()).ends_with(expected), "{}", text(&record()));
        let json = json(&record());
        assert_eq!(
            (&json["status"], &json["outcome"], &json["durationMs"]),
            (&json!(200), &json!("Served"), &json!(3))
        );
        let silent = AccessRecord { server_name: None, request: None, backend: None, endpoint: None, ..record() };
        assert!(text(&silent).ends_with("a/g:443 127.0.0.1:5 Served in=1 out=2 3ms"), "{}", text(&silent));
    }
}
