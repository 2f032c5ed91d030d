//! The `portreeve` binary: see `portreeve --help`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use portreeve::cli::{Command, RawArgs};
use portreeve::commands::{controller, doctor, exit_of, kubeconfig, plan, tenant, top, trace, up};
use portreeve::demo;
use portreeve::exit::Exit;
use portreeve::log;
use portreeve::output::say;
use tokio::runtime::Runtime;

/// Many thousand small objects stay for long between those of every plan: this one takes a third less memory for them than
/// that of glibc, and that of musl, which a static binary would have, is slow with several threads.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = RawArgs::parse();
    log::start(&arguments.command);
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
        Command::Top(arguments) => serve(top::run(arguments)),
        Command::Plan(arguments) => serve(plan::run(arguments)),
        Command::Trace(arguments) => serve(trace::run(arguments)),
        Command::Controller(arguments) => serve(controller::run(*arguments)),
        Command::Doctor(arguments) => serve(doctor::run(*arguments)),
        Command::Kubeconfig(arguments) => serve(kubeconfig::run(arguments)),
        Command::Tenant(arguments) => serve(tenant::run(arguments)),
    }
}

fn serve(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = Runtime::new().context("failed to start threads")?;
    let exit = runtime.block_on(command);
    // What a second signal has cut short is not waited for.
    runtime.shutdown_background();
    exit
}
