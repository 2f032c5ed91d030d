use clap::{Args, Subcommand};

use super::ClusterArgs;

/// `after_help` of `tenant move`.
pub(super) const MOVE_EXAMPLES: &str = "\
Examples:
  portreeve tenant move acme --to kubespaces-apps-2
  portreeve tenant move acme --to kubespaces-apps --no-wait

The operator moves the tenant while its apps stay reachable: its listener and routes are on both Gateways until DNS has followed
and nobody has the old record any more. That takes the TTL of the record, and goes on when this command is stopped. To
turn back, move the tenant to where it was. Exit code 1 says that it cannot be moved, or has not arrived in time.";

/// Arguments of `tenant`.
#[derive(Debug, Args)]
pub struct TenantCommandArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TenantCommand,
}

/// What to do with a tenant.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Move a tenant's apps to another Gateway
    #[command(after_help = MOVE_EXAMPLES)]
    Move(MoveArgs),
}

/// Arguments of `tenant move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// The tenant
    pub tenant: String,
    /// The apps Gateway that is to serve it
    #[arg(long, value_name = "GATEWAY")]
    pub to: String,
    /// Where the tenant is.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Ask for it, and do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,
    /// How many seconds to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub timeout: u64,
}
