//! Tasks of the repository: `cargo xtask --help` lists them.

mod arrows;
mod bed;
mod bench;
mod check;
mod crds;
mod fuzz;
mod load;
mod manifests;
mod rbac;
mod run;
mod soak;
mod test;
mod tools;

use clap::{Parser, Subcommand};

/// Tasks of the repository
///
/// Everything that a task needs it installs or builds itself, once, into a cache folder outside the clone
/// (`$PORTREEVE_CACHE`, else `~/.cache/portreeve`), and says so.
///
/// Example: cargo xtask test
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every test: unit, property, golden and end to end
    Test,
    /// Install the real programs that tests start: Kubernetes, Envoy Gateway, Envoy, cert-manager, Helm
    ///
    /// They are built from pinned Go modules, once: about 17 minutes on two cores; needs Go 1.26 or newer.
    Bed {
        /// Also build this group, which no test starts
        #[arg(value_name = "GROUP")]
        also: Vec<String>,
    },
    /// Measure, and keep the results in `bench/results`
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Run what takes long: many apps and tenants, settled minutes, an API server that is away for a minute
    ///
    /// Each scenario has a cluster of its own with the real binary. Exit code 1 says that one has failed.
    Soak {
        /// Only the scenarios that have this word in their names
        #[arg(value_name = "WORD", default_value = "", hide_default_value = true)]
        only: String,
        /// For how many seconds a watch is held open while tenants come and go
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        watch: u64,
    },
    /// Alter captured inputs at random and see that what reads them keeps its laws
    ///
    /// An input that breaks one is kept in the corpus. Every run has another seed, which is printed.
    Fuzz {
        /// Only the targets that have this word in their names
        #[arg(value_name = "WORD", default_value = "", hide_default_value = true)]
        only: String,
        /// For how many seconds each target runs
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        seconds: u64,
    },
    /// Run the static checks: formatting, lints, dependencies, documentation, arrows between crates
    Check,
    /// Write the definitions of our own kinds into the chart
    Crds {
        /// Write nothing; fail when a file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Write the chart with its defaults as plain manifests
    Manifests {
        /// Write nothing; fail when the file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Write the rules of the chart's roles from what the code needs
    Rbac {
        /// Write nothing; fail when a file is not what would be written
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {
        Task::Test => test::run(),
        Task::Bed { also } => bed::run(&also),
        Task::Bench { bench } => bench::run(&bench),
        Task::Soak { only, watch } => soak::run(&only, std::time::Duration::from_secs(watch)),
        Task::Fuzz { only, seconds } => fuzz::run(&only, seconds),
        Task::Check => check::run(),
        Task::Crds { check } => crds::run(check),
        Task::Manifests { check } => manifests::run(check),
        Task::Rbac { check } => rbac::run(check),
    }
}

/// Where tasks run that wait for many things.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
