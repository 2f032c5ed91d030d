//! Where libraries and the controller speak up.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::{Command, LogFormat};

/// Starts to write what happens to standard error; `RUST_LOG` says how much of it.
pub fn start(command: &Command) {
    let (level, format) = match command {
        Command::Controller(arguments) => (arguments.unused.level(), arguments.log_format),
        _ => ("warn", LogFormat::Text),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        // What libraries have to say about each request is for RUST_LOG; what fails a watch, the controller says itself.
        EnvFilter::new(match level {
            "debug" => "info,kube_runtime=error,kube_client=off,portreeve=debug,portreeve_controller=debug",
            "info" => "info,kube_runtime=error,kube_client=off",
            level => level,
        })
    });
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
