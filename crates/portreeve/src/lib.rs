//! The `portreeve` binary as a library: the standalone shell, so that the demo and tests can start it in-process.
//!
//! Room rule: flags, wiring and I/O. What a test would want to decide lives in `plan`, `attach` and `table`.

mod admission;
pub mod authority;
mod clock;
pub mod exit;
pub mod input;
pub mod kinds;
pub mod manifest;
pub mod offline;
pub mod records;
pub mod report;
pub mod sockets;
pub mod state;
pub mod world;

pub use clock::now;
