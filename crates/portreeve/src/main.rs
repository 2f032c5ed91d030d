//! The `portreeve` binary: see `portreeve --help`.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use portreeve::cli::{Command, RawArgs};
use portreeve::commands::{exit_of, plan, trace, up};
use portreeve::demo;
use portreeve::exit::Exit;
use portreeve::output::say;
use tokio::runtime::Runtime;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let arguments = RawArgs::parse();
    // Libraries speak up on standard error; RUST_LOG says how much.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let is_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal);
    log.log_internal_errors(false).init();
    match run(arguments.command) {
        Ok(exit) => exit.into(),
        Err(error) => {
            say(format_args!("error: {error:#}"));
            exit_of(&error).into()
        }
    }
}

fn run(command: Command) -> anyhow::Result<Exit> {
    // The one provider of cryptography of the process.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().map_err(|_| anyhow::anyhow!("a provider of cryptography is installed already"))?;
    match command {
        Command::Demo(arguments) => serve(demo::run(arguments.once)),
        Command::Up(arguments) => serve(up::run(arguments)),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Trace(arguments) => trace::run(arguments),
    }
}

fn serve(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = Runtime::new().context("failed to start the threads of the gateway")?;
    let exit = runtime.block_on(command);
    // What a second signal has cut short is not waited for.
    runtime.shutdown_background();
    exit
}
