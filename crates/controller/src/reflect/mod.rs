//! What the controller knows of the cluster, kept up to date by watches.
//!
//! [`kind`] lists the kinds, [`discovery`] says which of them the API server has, [`watch`] follows one of them, [`trim`]
//! leaves out what no decision reads, and [`cache`] holds the rest.

pub(crate) mod cache;
pub(crate) mod discovery;
mod entry;
pub mod kind;
pub(crate) mod secrets;
mod trim;
pub(crate) mod watch;

pub(crate) use entry::{Entry, Key, Object, Unreadable, read};
