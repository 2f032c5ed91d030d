//! The cluster shell.
