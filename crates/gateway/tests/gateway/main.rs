//! The gateway as its clients and backends see it: real sockets on loopback, real TLS.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod admission;
mod backends;
mod bed;
mod change;
mod clients;
mod http;
mod http_features;
mod http_smuggling;
mod identity;
mod lifecycle;
mod passthrough;
mod proxy_protocol;
mod terminate;
mod tunnels;
