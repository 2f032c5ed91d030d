//! Writes what a plan says.
//!
//! [`write`] turns a plan into requests, [`run`] sends them, [`shard`] sends those in pieces that are refused as a whole, [`failure`] says what became of one that failed, and [`retry`]
//! when it is tried again.

mod event;
mod failure;
pub(crate) mod retry;
mod run;
mod shard;
mod write;

pub(crate) use event::{Recorder, record};
pub(crate) use failure::Failure;
pub(crate) use run::{Answer, Executor, Outcome};
pub(crate) use shard::RejectedEntry;
pub(crate) use write::{Request, Verb, Write, key, prepare};
