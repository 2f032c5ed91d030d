//! Planning as others see it: worlds in, plans out.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a case that cannot be read is a failed test"
)]

mod audit;
mod cases;
mod examine;
mod laws;
mod migration;
mod moving;
mod reasons;
mod refused;
mod support;
mod values;
