use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use portreeve_attach::Settings;
use portreeve_controller::Circumstances;

use super::{BadArguments, ChoiceArgs, InputArgs};
use crate::input::Input;

/// `after_help` of `kubeconfig`.
pub(super) const KUBECONFIG_EXAMPLES: &str = "\
Examples:
  portreeve kubeconfig blue --output blue.kubeconfig
  portreeve kubeconfig blue --merge --use
  portreeve kubeconfig blue --check

Its context is kubespaces-TENANT. With --merge everything else in the file stays, but comments do not; the file is replaced at
once, and only its owner can read it. Exit code 1 says that there is none yet, or that --check has failed.";

/// Arguments of `kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigArgs {
    /// Name of the Tenant
    #[arg(value_name = "TENANT")]
    pub tenant: String,
    /// Put it into a kubeconfig that may have others in it [default of FILE: the first that KUBECONFIG names, else
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "output")]
    pub merge: Option<Option<PathBuf>>,
    /// Make its context the current one of that file
    #[arg(long = "use", requires = "merge")]
    pub uses: bool,
    /// Write it to a file of its own [default: standard output, unless --check is given]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Use it: ask the API server for its version at the public URL, and say what fails
    #[arg(long)]
    pub check: bool,
    /// The cluster that has the Tenant.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Which cluster, and how long to wait for it.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The cluster [default: what KUBECONFIG names, else ~/.kube/config, else the cluster in which this runs]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// How many seconds the API server may be silent before it is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub request_timeout: u64,
}

/// What `plan` and `trace` look at.
#[derive(Clone, Debug)]
pub enum Source {
    /// A directory of manifests.
    Directory(Box<Input>),
    /// A cluster.
    Cluster(Box<ClusterSource>),
}

/// A cluster, and what the operator is, or would be, told there.
#[derive(Clone, Debug)]
pub struct ClusterSource {
    /// Which one.
    pub cluster: ClusterArgs,
    /// What the operator is told.
    pub told: Circumstances,
    /// Which Gateways are looked at.
    pub settings: Settings,
}

impl ClusterArgs {
    /// How long the API server may be silent.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.request_timeout)
    }

    fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}

impl InputArgs {
    /// What to look at: the directory where there is one, else the cluster.
    pub fn into_source(
        self,
        manifests: Option<PathBuf>,
        cluster: ClusterArgs,
        choices: &ChoiceArgs,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Source, BadArguments> {
        if let Some(manifests) = manifests {
            if cluster.is_given() {
                return Err(BadArguments::DirectoryAndCluster);
            }
            return self.into_input(manifests, variable).map(|input| Source::Directory(Box::new(input)));
        }
        let only_directories = [
            ("--state-dir", self.state_dir.is_some()),
            ("--default-gateways", self.default_gateways),
            ("--backend", !self.backend.is_empty()),
            ("--listen", !self.sockets.listen.is_empty()),
            ("--map", !self.sockets.map.is_empty()),
        ];
        if let Some((flag, _)) = only_directories.into_iter().find(|(_, is_given)| *is_given) {
            return Err(BadArguments::NeedsDirectory(flag));
        }
        let settings = self.settings();
        let config = choices.config(self.platform.into_config(""))?;
        let tenants = choices.tenants || config.tenant_api.is_some() || config.tenant_apps.is_some();
        let told = Circumstances { config, tls_routes: choices.tls_routes(), tenants, whole: true };
        Ok(Source::Cluster(Box::new(ClusterSource { cluster, told, settings })))
    }
}
