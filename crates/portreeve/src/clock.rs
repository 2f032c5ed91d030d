//! The edge at which time comes in.

use jiff::Timestamp;

/// The time, to the second, as Kubernetes writes it.
#[expect(clippy::disallowed_methods, reason = "this is the one place where the binary reads the clock")]
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
