//! The gateway as its clients and backends see it: real sockets on loopback, real TLS.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod backends;
mod bed;
mod clients;
mod http;
mod identity;
mod lifecycle;
mod passthrough;
mod terminate;
