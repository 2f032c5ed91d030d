//! The command line: what it says, and what that means.

#![expect(clippy::doc_markdown, reason = "doc comments here are the text of --help")]

mod cluster;
mod controller;
mod data_plane;
mod gateway;
mod login;
mod tenant;
mod tenant_settings;
mod tenants;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use portreeve_attach::{Classes, Settings};
use portreeve_names::HostPattern;
use portreeve_plan::{Config, Zone};

pub use cluster::{ClusterArgs, ClusterSource, KubeconfigArgs, Source};
pub use controller::{
    ChoiceArgs, ControllerArgs, DoctorArgs, ElectionArgs, ExperimentalVersion, Migration, OperatorArgs, ServerArgs,
    UnusedArgs,
};
pub use gateway::{LimitArgs, TopArgs};
pub use tenant_settings::TenantSettings;
pub use tenants::{AccountArg, BadTenants, ProvisionerArg, ProvisionerArgs, TenantArgs};

pub use tenant::{MoveArgs, TenantCommand, TenantCommandArgs};

use crate::exit;
use crate::gateway_admin::{self, AdminAddress};
use crate::input::{CONTROLLER_NAME, Input};
use crate::pods::PodsArg;
use crate::sockets::{AddressPool, Listen, PortMap, Rules, may_bind};
use crate::state::{StateError, default_path};
use crate::world::{BackendEndpoint, LOCAL_ISSUER};

/// Portreeve keeps the gates of a platform: who may open a listener where, and where each connection goes
///
/// A directory of NebariApp, Tenant and Gateway API manifests goes in; TLS and HTTP clients reach the right backends.
#[derive(Debug, Parser)]
#[command(name = "portreeve", version, after_help = exit::HELP)]
pub struct RawArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the main job on loopback, with sample backends and real requests
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Serve a directory of manifests, and follow its changes
    #[command(after_help = UP_EXAMPLES)]
    Up(UpArgs),
    /// Show what a running gateway is doing: its listeners, and the tunnels that are open
    #[command(after_help = gateway::TOP_EXAMPLES)]
    Top(TopArgs),
    /// Print what would be written: by serving a directory, or by the operator in a cluster
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Say where a connection or request goes, and if nowhere, why and what to change
    #[command(after_help = TRACE_EXAMPLES)]
    Trace(TraceArgs),
    /// Run in a cluster, in place of the operators of NebariApps and Tenants
    #[command(after_help = controller::EXAMPLES)]
    Controller(Box<ControllerArgs>),
    /// Say what is to be done on a cluster so that apps can be served there
    #[command(after_help = controller::DOCTOR_EXAMPLES)]
    Doctor(Box<DoctorArgs>),
    /// Get the kubeconfig of a tenant's API server
    #[command(after_help = cluster::KUBECONFIG_EXAMPLES)]
    Kubeconfig(KubeconfigArgs),
    /// Ask something of the operator for one tenant
    #[command(after_help = tenant::MOVE_EXAMPLES)]
    Tenant(TenantCommandArgs),
}

const DEMO_EXAMPLES: &str = "\
Examples:
  portreeve demo
  portreeve demo --once

It stays up to be tried by hand, until Ctrl-C. Exit code 1 says that something did not go as it must.";

const UP_EXAMPLES: &str = "\
Examples:
  portreeve up ./manifests
  portreeve up ./manifests --default-gateways --backend team/hub:80=127.0.0.1:3000
  portreeve up ./manifests --listen envoy-gateway-system/nebari-gateway:443=0.0.0.0:8443

The first Gateway listens on 127.0.0.1, each further one on the next address of --address-pool. Clients should trust
the local CA, ca.crt in the state directory. Stop with Ctrl-C: open connections may then end until --drain is over.";

const PLAN_EXAMPLES: &str = "\
Examples:
  portreeve plan ./manifests
  portreeve plan ./manifests -o yaml
  portreeve plan --diff --cluster-issuer letsencrypt
  portreeve plan --diff --context staging

Of a directory, the plan is what would be written once every socket is bound. Nothing is bound, and no state is written;
names that an earlier `up` of the same directory has granted stay granted.

Without a directory the cluster is read, and nothing is written. Give the flags that the operator is given. Rights to list
what the operator lists are enough. Ports that the operator dials are not dialled: what it found last counts.

Exit code 1 says that something is refused or not ready; with --diff, that something would be written, as for kubectl diff.
What cannot be planned has another code.";

const TRACE_EXAMPLES: &str = "\
Examples:
  portreeve trace ./manifests https://hub.example.com/lab
  portreeve trace ./manifests --port 8786 --sni daskgateway-team.0123abcd
  portreeve trace ./manifests --port 443 --sni a.example.com --gateway envoy-gateway-system/nebari-gateway
  portreeve trace ./manifests --port 8786 --sni daskgateway-team.0123abcd \
    --from jupyterhub/app=jupyterhub,component=singleuser-server
  portreeve trace https://hub.example.com/lab
  portreeve trace --context staging --port 443 --sni a.example.com

Without a directory the cluster is read, whoever serves its Gateways; nothing is written. Exit code 1 says that it does not arrive, or that this cannot be known.";

/// Those of Envoy Gateway, as [`portreeve_attach::GatewayPods::default`] has them.
const ENVOY_GATEWAY_PODS: &str = "envoy-gateway-system/\
    gateway.envoyproxy.io/owning-gateway-name={name},gateway.envoyproxy.io/owning-gateway-namespace={namespace}";

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Exit when all has been shown, on ports that happen to be free
    #[arg(long)]
    pub once: bool,
}

/// Arguments of `up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Directory of manifests (*.yaml, *.yml, *.json, at any depth), or a single file
    #[arg(index = 1, value_name = "DIR")]
    pub manifests: PathBuf,
    /// How to print what happens
    ///
    /// As text, changes go to standard error, connections and requests to standard output; as JSON, everything goes to
    /// standard output.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// How many seconds open connections may go on after the first SIGINT or SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain: u64,
    /// Take the place of the `portreeve up` that has this state directory, without refusing a connection
    ///
    /// It hands its sockets over, and its open connections may go on for the time of its own --drain. Without one that runs, this
    /// flag changes nothing.
    #[arg(long)]
    pub take_over: bool,
    /// Where /metrics, /healthz, /readyz and /status are answered, without any protection; or off
    #[arg(long, value_name = "ADDR:PORT", default_value = gateway_admin::DEFAULT_ADDRESS)]
    pub admin_address: AdminAddress,
    /// What the gateway allows.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// What to serve.
    #[command(flatten)]
    pub input: InputArgs,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Directory of manifests (*.yaml, *.yml, *.json, at any depth), or a single file [default: the cluster]
    #[arg(index = 1, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Print what would change in each object, as a unified diff
    #[arg(long, conflicts_with = "output")]
    pub diff: bool,
    /// What to plan for.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How the operator works there.
    #[command(flatten)]
    pub choices: ChoiceArgs,
    /// Of both.
    #[command(flatten)]
    pub input: InputArgs,
}

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Directory of manifests (*.yaml, *.yml, *.json, at any depth), or a single file [default: the cluster]
    #[arg(index = 1, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    /// What is asked for: an http:// or https:// URL, with a port and a path if need be
    #[arg(index = 2)]
    pub url: Option<String>,
    /// The port that is connected to: one that listeners name, or the one that it is served on
    #[arg(long)]
    pub port: Option<u16>,
    /// The server name in the ClientHello; without it the client names none
    #[arg(long, requires = "port", value_name = "NAME")]
    pub sni: Option<String>,
    /// Only this Gateway
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub gateway: Option<String>,
    /// The method of the request
    #[arg(long, default_value = "GET")]
    pub method: String,
    /// Whose connection it is, by namespace and labels of its Pods (KEY=VALUE, or !KEY for one that they lack)
    ///
    /// Adds the NetworkPolicies on the way, and prints those that would open what is blocked.
    #[arg(long, value_name = "NAMESPACE[/LABELS]")]
    pub from: Option<PodsArg>,
    /// The gateway's Pods; {namespace} and {name} stand for those of the Gateway
    #[arg(long, requires = "from", value_name = "NAMESPACE[/LABELS]", default_value = ENVOY_GATEWAY_PODS)]
    pub gateway_pods: PodsArg,
    /// What is added to a listener's port below 1024 to get the port in the gateway's Pods
    #[arg(long, requires = "from", value_name = "NUMBER", default_value_t = 10_000)]
    pub low_port_offset: u16,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// What to look at.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How the operator works there.
    #[command(flatten)]
    pub choices: ChoiceArgs,
    /// Of both.
    #[command(flatten)]
    pub input: InputArgs,
}

/// How to print a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// As manifests
    Yaml,
    /// For scripts
    Json,
}

/// How to print what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object on each line
    Json,
}

/// What every command needs.
#[derive(Debug, Args)]
pub struct InputArgs {
    /// Where state is kept [default: $XDG_STATE_HOME/portreeve/…, else ~/.local/state/portreeve/…]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Serve only Gateways of this class; may be given more than once
    #[arg(long, value_name = "CLASS")]
    pub class: Vec<String>,
    /// Make the Gateways that apps and tenants name, where no manifest has them
    #[arg(long)]
    pub default_gateways: bool,
    /// Where a Service is reached, in place of its EndpointSlices; may be given more than once
    #[arg(long, value_name = "NAMESPACE/SERVICE[:PORT]=ADDR:PORT")]
    pub backend: Vec<BackendEndpoint>,
    /// Sockets.
    #[command(flatten)]
    pub sockets: SocketArgs,
    /// The platform.
    #[command(flatten)]
    pub platform: PlatformArgs,
}

/// Which sockets serve which ports.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sockets")]
pub struct SocketArgs {
    /// Where Gateways after the first listen
    #[arg(long, value_name = "CIDR", default_value = "127.0.0.0/24")]
    pub address_pool: AddressPool,
    /// Where one port of one Gateway listens (port 0: any free one); may be given more than once
    #[arg(long, value_name = "NAMESPACE/GATEWAY:PORT=ADDR:PORT")]
    pub listen: Vec<Listen>,
    /// Which port stands for another (0: any free one) [default: ports below 1024 plus 8000, where they may not be bound]
    #[arg(long, value_name = "PORT=PORT")]
    pub map: Vec<PortMap>,
}

/// What the platform has configured; the variables are those of the operators that Portreeve replaces.
#[derive(Debug, Args)]
#[command(next_help_heading = "Platform")]
pub struct PlatformArgs {
    /// Issuer of apps' certificates; empty: apps share the Gateway's HTTPS listener [default: the local CA, which stands for
    /// every issuer of a directory; none for a cluster]
    #[arg(long, value_name = "NAME", env = "TLS_CLUSTER_ISSUER_NAME")]
    pub cluster_issuer: Option<String>,
    /// Names that only some namespaces may claim (none: nobody may); may be given more than once
    #[arg(long, value_name = "NAMES=[NAMESPACE,…]")]
    pub zone: Vec<ZoneArg>,
    /// The paths to tenants.
    #[command(flatten)]
    pub tenants: TenantArgs,
}

/// `--zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneArg(pub Zone);

/// Arguments that are fine one by one, and not together.
#[derive(Debug, thiserror::Error)]
pub enum BadArguments {
    /// There is no place for state.
    #[error(transparent)]
    State(#[from] StateError),
    /// One port is sent to two places.
    #[error("{0} is given twice: keep the one that is meant")]
    Twice(String),
    /// Two things are to be looked at.
    #[error("a directory is looked at, or a cluster, not both: leave out DIR, or --kubeconfig and --context")]
    DirectoryAndCluster,
    /// A flag says something of a cluster that the cluster says itself.
    #[error("{0} is for directories: name one, or leave the flag out")]
    NeedsDirectory(&'static str),
    /// What is said about tenants does not go together.
    #[error(transparent)]
    Tenants(#[from] BadTenants),
}

/// Text that is no zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not NAMES=NAMESPACE,NAMESPACE, such as *.team.example.com=team or keycloak.example.com=")]
pub struct NoZone;

impl InputArgs {
    /// What the arguments mean; `variable` reads the environment.
    pub fn into_input(
        self,
        manifests: PathBuf,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Input, BadArguments> {
        let settings = self.settings();
        let state = match self.state_dir {
            Some(path) => path,
            None => default_path(&manifests, variable)?,
        };
        let SocketArgs { address_pool, listen, map } = self.sockets;
        let rules = Rules { pool: address_pool, listens: listen, maps: map, may_bind };
        if let Some(port) = rules.said_twice() {
            return Err(BadArguments::Twice(port));
        }
        Ok(Input {
            manifests,
            state,
            config: Config { login: Some(login::embedded()), ..self.platform.into_config(LOCAL_ISSUER) },
            settings,
            backends: self.backend,
            default_gateways: self.default_gateways,
            rules,
        })
    }

    /// Which Gateways are looked at.
    fn settings(&self) -> Settings {
        let classes = match self.class.as_slice() {
            [] => Classes::Every,
            classes => Classes::Named(classes.iter().cloned().collect()),
        };
        Settings { controller_name: CONTROLLER_NAME.to_owned(), classes }
    }
}

impl TraceArgs {
    /// What stands alone is the directory, unless it can only be a URL.
    pub fn sort_out(&mut self) {
        let lone = self.manifests.take_if(|lone| self.url.is_none() && lone.to_string_lossy().contains("://"));
        self.url = self.url.take().or(lone.map(|url| url.to_string_lossy().into_owned()));
    }
}

impl UpArgs {
    /// How long open connections may go on after the first signal.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain)
    }
}

impl PlatformArgs {
    /// With the issuer that counts where none is named.
    fn into_config(self, issuer: &str) -> Config {
        let tenant_api = self.tenants.api();
        // With an issuer nothing is wanting.
        let tenant_apps = self.tenants.apps(Some(issuer)).unwrap_or_default();
        let zones = self.zone.into_iter().map(|ZoneArg(zone)| zone).collect();
        let cluster_issuer = given(Some(self.cluster_issuer.unwrap_or_else(|| issuer.to_owned())));
        Config { cluster_issuer, zones, tenant_api, tenant_apps, ..Config::default() }
    }
}

/// A variable that is set to nothing says that there is nothing, as for the operators that Portreeve replaces.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

impl FromStr for ZoneArg {
    type Err = NoZone;

    fn from_str(text: &str) -> Result<Self, NoZone> {
        let (names, namespaces) = text.split_once('=').ok_or(NoZone)?;
        let names = HostPattern::parse(names).map_err(|_| NoZone)?;
        let namespaces = namespaces.split(',').filter(|namespace| !namespace.is_empty()).map(str::to_owned).collect();
        Ok(Self(Zone { names, namespaces }))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<RawArgs, clap::Error> {
        RawArgs::try_parse_from(["portreeve"].iter().chain(arguments))
    }

    fn input(arguments: &[&str]) -> Input {
        match parse(&[&["plan", "dir", "--state-dir", "state"], arguments].concat()).unwrap().command {
            Command::Plan(plan) => plan.input.into_input("dir".into(), |_| None).unwrap(),
            command => panic!("{command:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed_and_every_command_has_an_example() {
        let mut command = RawArgs::command();
        command.clone().debug_assert();
        for command in command.get_subcommands_mut() {
            let name = command.get_name().to_owned();
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("  portreeve {name} ")), "{help}");
        }
    }

    #[test]
    fn without_flags_everything_is_served_and_tenants_are_off() {
        let input = input(&[]);
        assert!(matches!(input.settings.classes, Classes::Every));
        assert_eq!(input.config.cluster_issuer.as_deref(), Some(LOCAL_ISSUER));
        assert_eq!((input.config.tenant_api, input.config.tenant_apps), (None, None));
    }

    #[test]
    fn a_domain_turns_a_tenant_path_on_and_nothing_turns_the_issuer_off() {
        let config =
            input(&["--cluster-issuer=", "--tenant-api-domain=d.test", "--tenant-apps-domain=", "--class=a"]).config;
        assert_eq!(config.cluster_issuer, None);
        let api = config.tenant_api.unwrap();
        assert_eq!(
            (&*api.gateway_namespace, &*api.gateway_name, api.section),
            ("kubespaces-system", "kubespaces-api", None)
        );
        assert_eq!(config.tenant_apps, None);
    }

    /// Origin: of `--map 443=1 --map 443=2` the second was ignored in silence.
    #[test]
    fn a_port_has_one_place() {
        for twice in [["--map=443=1", "--map=443=2"], ["--listen=a/g:1=127.0.0.1:1", "--listen=a/g:1=127.0.0.1:2"]] {
            let command = parse(&[&["plan", "dir", "--state-dir", "state"][..], &twice].concat()).unwrap().command;
            let Command::Plan(plan) = command else { panic!("{command:?}") };
            let error = plan.input.into_input("dir".into(), |_| None).unwrap_err();
            assert!(error.to_string().ends_with("is given twice: keep the one that is meant"), "{error}");
        }
    }

    #[test]
    fn zones_say_who_may_claim_which_names() {
        let zones = input(&["--zone=*.team.test=team,lab", "--zone=keycloak.test="]).config.zones;
        assert_eq!(zones[0].namespaces, ["team", "lab"]);
        assert_eq!((zones[1].names.to_string().as_str(), zones[1].namespaces.len()), ("keycloak.test", 0));
        assert!(parse(&["plan", "dir", "--zone=nothing"]).is_err());
    }

    #[test]
    fn without_a_directory_the_cluster_is_read_as_the_operator_would() {
        let source = |arguments: &[&str]| match parse(&[&["plan"], arguments].concat()).unwrap().command {
            Command::Plan(plan) => plan.input.into_source(plan.manifests, plan.cluster, &plan.choices, |_| None),
            command => panic!("{command:?}"),
        };
        let Ok(Source::Cluster(found)) = source(&["--context=a", "--migrate-legacy-listeners"]) else {
            panic!("no cluster");
        };
        let config = found.told.config;
        assert!(config.guard_deletion && config.legacy_listeners == portreeve_plan::LegacyListeners::Migrate);
        assert_eq!(config.cluster_issuer, None, "the local CA is none for a cluster");
        for (arguments, expected) in [(&[][..], false), (&["--tenants"], true), (&["--tenant-api-domain=a.test"], true)]
        {
            let Ok(Source::Cluster(found)) = source(arguments) else { panic!("no cluster") };
            assert_eq!(found.told.tenants, expected, "{arguments:?}");
        }
        assert!(matches!(source(&["dir", "--context=a"]), Err(BadArguments::DirectoryAndCluster)));
        assert!(matches!(source(&["--map=443=1"]), Err(BadArguments::NeedsDirectory("--map"))));
    }

    #[test]
    fn trace_takes_the_pods_of_envoy_gateway_for_the_gateways_unless_told_otherwise() {
        let Command::Trace(trace) = parse(&["trace", "dir", "--port=443", "--from=hub"]).unwrap().command else {
            panic!("another command");
        };
        let pods = trace.gateway_pods;
        let default = portreeve_attach::GatewayPods::default();
        assert_eq!((pods.namespace, pods.labels), (default.namespace, default.labels));
        assert_eq!(trace.low_port_offset, default.low_port_offset);
    }
}
