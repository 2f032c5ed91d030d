use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use portreeve_gateway::Settings;

use crate::gateway_admin;

pub(super) const TOP_EXAMPLES: &str = "\
Examples:
  portreeve top
  portreeve top --once --address 127.0.0.1:9180

It asks the admin address of a running `portreeve up`, until Ctrl-C.";

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// The admin address of the gateway
    #[arg(long, value_name = "ADDR:PORT", default_value = gateway_admin::DEFAULT_ADDRESS)]
    pub address: SocketAddr,
    /// Show it once, and exit
    #[arg(long)]
    pub once: bool,
    /// How many seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    pub interval: u64,
    /// How many tunnels are shown, of those that carried the most
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub limit: usize,
}

/// What a gateway allows; whoever is in stays, and newcomers are refused.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// How many client connections may be open [default: 100000, or as many as the process may have files for]
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<usize>,
    /// How many one peer may have, an IPv4 address or an IPv6 /64 [default: all]
    #[arg(long, value_name = "NUMBER")]
    pub max_connections_per_peer: Option<usize>,
    /// How many may be open that have not said yet what they want [default: half of all]
    #[arg(long, value_name = "NUMBER")]
    pub max_waiting: Option<usize>,
    /// How many of these one peer may have [default: an eighth of all]
    #[arg(long, value_name = "NUMBER")]
    pub max_waiting_per_peer: Option<usize>,
    /// For how many seconds a client may take to say what it wants
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub hello_timeout: u64,
    /// After how many seconds tunnels are closed whose route or listener is gone [default: never]
    #[arg(long, value_name = "SECONDS")]
    pub removed_route_drain: Option<u64>,
}

impl LimitArgs {
    /// The settings of a gateway whose process may have files for `possible` connections.
    pub fn settings(&self, possible: usize) -> Settings {
        let usual = Settings::default().max_connections;
        let settings = Settings::with_connections(self.max_connections.unwrap_or(usual).min(possible));
        Settings {
            max_connections_per_peer: self.max_connections_per_peer.unwrap_or(settings.max_connections_per_peer),
            max_waiting: self.max_waiting.unwrap_or(settings.max_waiting),
            max_waiting_per_peer: self.max_waiting_per_peer.unwrap_or(settings.max_waiting_per_peer),
            hello_timeout: Duration::from_secs(self.hello_timeout),
            removed_route_drain: self.removed_route_drain.map(Duration::from_secs),
            ..settings
        }
    }
}
