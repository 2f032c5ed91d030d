//! End to end: real manifests, the real binary, real clients.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of a test may end it")]

mod cli;
mod dask;
mod http;
mod isolation;
mod network_policies;
mod operation;
mod reload;
mod support;
