//! The `portreeve` binary as a library: the standalone shell, so that the demo and tests can start it in-process.
//!
//! Room rule: flags, wiring and I/O. What a test would want to decide lives in `plan`, `attach` and `table`.

// They panic when nobody reads any more; `output` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod access_log;
mod admission;
pub mod authority;
pub mod changes;
pub mod cli;
mod clock;
mod cluster;
pub mod commands;
pub mod demo;
pub mod difference;
pub mod exit;
pub mod gateway_admin;
mod handover;
pub mod input;
pub mod kinds;
pub mod kubeconfig;
mod live;
pub mod log;
pub mod manifest;
pub mod offline;
mod open_files;
pub mod output;
pub mod pods;
pub mod records;
pub mod report;
pub mod sockets;
pub mod standalone;
pub mod state;
pub mod status;
pub mod text;
pub mod world;

pub use clock::now;
