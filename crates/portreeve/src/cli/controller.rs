use std::path::PathBuf;

use clap::{Args, ValueEnum};
use portreeve_controller::lease::{LeaseName, NEBARI_LEASE, TENANTS_LEASE};
use portreeve_controller::{CertificateSource, KeycloakAdmin, MetricsServer};
use portreeve_plan::{Config, LegacyListeners, TlsRouteVersion};

use super::data_plane::DataPlaneArgs;
use super::login::LoginArgs;
use super::{BadTenants, ClusterArgs, LogFormat, Output, ProvisionerArgs, TenantArgs, ZoneArg, given};

/// `after_help` of `controller`.
pub(super) const EXAMPLES: &str = "\
Examples:
  portreeve controller --leader-elect
  portreeve controller --kubeconfig ~/.kube/config --cluster-issuer letsencrypt --zone '*.team.example.com=team'

It reads the cluster that KUBECONFIG names, or the one in which it runs. It takes the flags of the NebariApp operator, and
holds the leases of that operator while it writes, so that the two never run side by side.";

/// `after_help` of `doctor`.
pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  portreeve doctor --cluster-issuer letsencrypt
  portreeve doctor --kubeconfig ~/.kube/config -o json

It changes nothing, and needs neither apps nor the operator to be there. Exit code 1 says that something has to be done.";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What the operator is, or will be, told.
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// Arguments of `controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// The cluster [default: what KUBECONFIG names, else ~/.kube/config, else the cluster in which this runs]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How to print what happens, on standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What it is told.
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// Who may write.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// What may be asked.
    #[command(flatten)]
    pub servers: ServerArgs,
    /// What only the operator that is replaced needs.
    #[command(flatten)]
    pub unused: UnusedArgs,
}

/// What the platform has configured for a cluster.
#[derive(Debug, Args)]
pub struct OperatorArgs {
    /// ClusterIssuer of apps' certificates; empty: apps share the Gateway's HTTPS listener
    #[arg(long, value_name = "NAME", env = "TLS_CLUSTER_ISSUER_NAME", default_value = "", hide_default_value = true)]
    pub cluster_issuer: String,
    /// Names that only some namespaces may claim (none: nobody may); may be given more than once
    #[arg(long, value_name = "NAMES=[NAMESPACE,…]")]
    pub zone: Vec<ZoneArg>,
    /// The paths to tenants.
    #[command(flatten)]
    pub paths: TenantArgs,
    /// How the operator works.
    #[command(flatten)]
    pub choices: ChoiceArgs,
}

/// How the operator works in a cluster.
#[derive(Clone, Debug, Args)]
pub struct ChoiceArgs {
    /// Version of TLSRoute to use where v1 is not served; without it there are no TLSRoutes then
    #[arg(long, value_enum)]
    pub tls_route_version: Option<ExperimentalVersion>,
    /// Reconcile Tenants also where no path to them is turned on
    #[arg(long)]
    pub tenants: bool,
    /// What else there is for tenants.
    #[command(flatten)]
    pub provisioner: ProvisionerArgs,
    /// Move apps from the listeners that the former operator put on the shared Gateways to their own
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value = "off")]
    pub migrate_legacy_listeners: Migration,
    /// How apps sign visitors in.
    #[command(flatten)]
    pub login: LoginArgs,
    /// Where NetworkPolicies find the pods that carry the traffic.
    #[command(flatten)]
    pub data_plane: DataPlaneArgs,
}

/// Who may write.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Write only while the leases of the operators that Portreeve replaces are held
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = truth, action = clap::ArgAction::Set, hide_possible_values = true)]
    pub leader_elect: bool,
    /// Where the lease of the NebariApp operator is [default: the namespace in which this runs]
    #[arg(long, value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Where the lease of the tenant operator is [default: the namespace in which this runs]
    #[arg(long, value_name = "NAMESPACE")]
    pub tenants_lease_namespace: Option<String>,
}

/// What may be asked.
#[derive(Debug, Args)]
#[command(next_help_heading = "Health and metrics")]
pub struct ServerArgs {
    /// Where /healthz and /readyz are served; 0: nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,
    /// Where /metrics is served; 0: nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub metrics_bind_address: String,
    /// Serve /metrics over HTTPS, and only to those whom the API server lets get it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true",
        value_parser = truth, action = clap::ArgAction::Set, hide_possible_values = true)]
    pub metrics_secure: bool,
    /// Folder of the certificate for /metrics [default: one that nobody else signed, made at each start]
    #[arg(long, value_name = "DIR")]
    pub metrics_cert_path: Option<PathBuf>,
    /// Its certificate
    #[arg(long, value_name = "FILE", default_value = "tls.crt")]
    pub metrics_cert_name: String,
    /// Its key
    #[arg(long, value_name = "FILE", default_value = "tls.key")]
    pub metrics_cert_key: String,
}

/// Flags of the operator that is replaced, which are taken so that its Deployment can be kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Compatibility")]
pub struct UnusedArgs {
    /// How much to log: debug, info, error, or a number (RUST_LOG says it more finely)
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<String>,
    /// Same as --zap-log-level=debug
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = truth, action = clap::ArgAction::Set, hide = true)]
    pub zap_devel: bool,
    /// Ignored; see --log-format
    #[arg(long, hide = true)]
    pub zap_encoder: Option<String>,
    /// Ignored
    #[arg(long, hide = true)]
    pub zap_stacktrace_level: Option<String>,
    /// Ignored
    #[arg(long, hide = true)]
    pub zap_time_encoding: Option<String>,
    /// Ignored: there is no webhook
    #[arg(long, hide = true)]
    pub webhook_cert_path: Option<String>,
    /// Ignored: there is no webhook
    #[arg(long, hide = true)]
    pub webhook_cert_name: Option<String>,
    /// Ignored: there is no webhook
    #[arg(long, hide = true)]
    pub webhook_cert_key: Option<String>,
    /// Ignored: the servers here speak HTTP/1.1
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false",
        value_parser = truth, action = clap::ArgAction::Set, hide = true)]
    pub enable_http2: bool,
}

/// A version of TLSRoute that is used only when the operator is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum ExperimentalVersion {
    /// Experimental channel of Gateway API 1.4 and later
    V1Alpha3,
    /// Experimental channel of Gateway API 1.4 and before
    V1Alpha2,
}

/// What becomes of the listeners that the former operator put on the shared Gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Migration {
    /// They stay
    Off,
    /// Their apps move, but not where Envoy Gateway is older than 1.9.1 or of unknown version
    On,
    /// Their apps move whatever the version
    Force,
}

impl OperatorArgs {
    /// What the platform has configured.
    ///
    /// # Errors
    ///
    /// When a path to tenants lacks what it needs.
    pub fn config(&self) -> Result<Config, BadTenants> {
        let zones = self.zone.iter().map(|ZoneArg(zone)| zone.clone()).collect();
        let cluster_issuer = given(Some(self.cluster_issuer.clone()));
        let (tenant_api, tenant_apps) = (self.paths.api(), self.paths.apps(None)?);
        self.choices.config(Config { cluster_issuer, zones, tenant_api, tenant_apps, ..Config::default() })
    }

    /// Whether Tenants are reconciled.
    pub fn serves_tenants(&self) -> bool {
        let domains = [&self.paths.tenant_api_domain, &self.paths.tenant_apps_domain];
        self.choices.tenants || domains.into_iter().any(|domain| given(domain.clone()).is_some())
    }
}

impl ChoiceArgs {
    /// The configuration of a platform as the operator works with it.
    ///
    /// # Errors
    ///
    /// When what is said about tenants does not go together.
    pub fn config(&self, platform: Config) -> Result<Config, BadTenants> {
        let legacy_listeners = match self.migrate_legacy_listeners {
            Migration::Off => LegacyListeners::Keep,
            Migration::On => LegacyListeners::Migrate,
            Migration::Force => LegacyListeners::Force,
        };
        let provisioner = self.provisioner.provisioner();
        let mut config = Config {
            guard_deletion: true,
            legacy_listeners,
            data_plane: self.data_plane.data_plane(),
            provisioner,
            login: Some(self.login.login()),
            ..platform
        };
        self.provisioner.settings()?.put_into(&mut config);
        Ok(config)
    }

    /// Where clients of apps are made.
    pub fn keycloak(&self) -> Option<KeycloakAdmin> {
        self.login.admin()
    }

    /// The version of TLSRoute to use where `v1` is not served.
    pub fn tls_routes(&self) -> Option<TlsRouteVersion> {
        self.tls_route_version.map(|version| match version {
            ExperimentalVersion::V1Alpha3 => TlsRouteVersion::V1Alpha3,
            ExperimentalVersion::V1Alpha2 => TlsRouteVersion::V1Alpha2,
        })
    }
}

impl ElectionArgs {
    /// The leases of the operators that are replaced; `here` is the namespace in which this runs.
    pub fn leases(&self, tenants: bool, here: &str) -> Vec<LeaseName> {
        let lease = |namespace: &Option<String>, name: &str| LeaseName {
            namespace: given(namespace.clone()).unwrap_or_else(|| here.to_owned()),
            name: name.to_owned(),
        };
        let apps = lease(&self.lease_namespace, NEBARI_LEASE);
        let tenants = tenants.then(|| lease(&self.tenants_lease_namespace, TENANTS_LEASE));
        std::iter::once(apps).chain(tenants).collect()
    }
}

impl ServerArgs {
    /// Where `/healthz` and `/readyz` are served.
    pub fn probes(&self) -> Option<String> {
        address(&self.health_probe_bind_address)
    }

    /// Where and how `/metrics` is served.
    pub fn metrics(&self) -> Option<MetricsServer> {
        let certificate = match &self.metrics_cert_path {
            Some(folder) => CertificateSource::Files {
                certificate: folder.join(&self.metrics_cert_name),
                key: folder.join(&self.metrics_cert_key),
            },
            None => CertificateSource::SelfSigned,
        };
        let certificate = self.metrics_secure.then_some(certificate);
        address(&self.metrics_bind_address).map(|address| MetricsServer { address, certificate })
    }
}

impl UnusedArgs {
    /// How much to log where `RUST_LOG` does not say.
    pub fn level(&self) -> &'static str {
        match self.zap_log_level.as_deref() {
            Some("error" | "panic") => "error",
            Some("info") => "info",
            Some(level) if level == "debug" || level.parse().is_ok_and(|level: u32| level > 0) => "debug",
            _ if self.zap_devel => "debug",
            _ => "info",
        }
    }

    /// Flags that say how to log and are not heeded.
    pub fn ignored(&self) -> Vec<&'static str> {
        let flags = [
            ("--zap-encoder", self.zap_encoder.is_some()),
            ("--zap-stacktrace-level", self.zap_stacktrace_level.is_some()),
            ("--zap-time-encoding", self.zap_time_encoding.is_some()),
        ];
        flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
    }
}

/// As controller-runtime reads it: `0` and nothing turn a server off.
fn address(text: &str) -> Option<String> {
    (!matches!(text, "" | "0")).then(|| text.to_owned())
}

/// As Go reads it.
fn truth(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use portreeve_plan::{DataPlane, Provisioner};

    use super::super::{Command, RawArgs};
    use super::*;

    fn parse(flags: &[&str]) -> ControllerArgs {
        match RawArgs::parse_from(["portreeve", "controller"].iter().chain(flags)).command {
            Command::Controller(arguments) => *arguments,
            command => panic!("{command:?}"),
        }
    }

    /// nebariapp A.7
    #[test]
    fn the_flags_of_the_operator_that_is_replaced_are_taken() {
        let arguments = parse(&[
            "--leader-elect",
            "--metrics-bind-address=:8443",
            "--metrics-secure=false",
            "--health-probe-bind-address=:8081",
            "--zap-log-level=2",
            "--zap-encoder=json",
            "--enable-http2=false",
            "--webhook-cert-path=/x",
        ]);
        assert!(arguments.election.leader_elect && !arguments.servers.metrics_secure);
        assert_eq!(arguments.servers.probes().as_deref(), Some(":8081"));
        assert_eq!(arguments.servers.metrics().map(|server| server.address).as_deref(), Some(":8443"));
        assert_eq!(arguments.unused.level(), "debug");
        assert_eq!(arguments.unused.ignored(), ["--zap-encoder"]);
    }

    /// tenant C.3, C.4
    #[test]
    fn a_domain_turns_tenants_on_and_their_apps_need_an_issuer() {
        let operator = |flags: &[&str]| parse(flags).operator;
        assert!(!operator(&["--tenant-api-domain="]).serves_tenants() && operator(&["--tenants"]).serves_tenants());
        let api = operator(&["--tenant-api-domain=example.com"]);
        assert!(api.serves_tenants());
        let gateway = api.config().unwrap().tenant_api.unwrap().gateway();
        assert_eq!(gateway.to_string(), "kubespaces-system/kubespaces-api");
        assert!(matches!(api.config().unwrap().provisioner, Provisioner::Helm { version, .. } if version == "0.35.2"));
        assert_eq!(operator(&["--tenant-apps-domain=example.com"]).config().unwrap_err(), BadTenants::NoIssuer);
        let leases = parse(&["--tenants-lease-namespace=kubespaces-system"]).election.leases(true, "here");
        let leases: Vec<_> = leases.iter().map(ToString::to_string).collect();
        assert_eq!(leases, ["here/d77e3dc7.nebari.dev", "kubespaces-system/tenants.kubespaces.io"]);
    }

    #[test]
    fn listener_sets_are_for_tenants_that_the_platform_provisions() {
        let file = std::env::temp_dir().join(format!("portreeve-placement-{}.yaml", std::process::id()));
        std::fs::write(&file, "{apps: {placement: ListenerSet}}").unwrap();
        let settings = format!("--tenant-settings={}", file.display());
        let config = |more: &[&str]| parse(&[&[settings.as_str()], more].concat()).operator.config().map(drop);
        assert_eq!(config(&[]), Err(BadTenants::ListenerSetNeedsExternal));
        assert_eq!(config(&["--tenant-provisioner=flux"]), Err(BadTenants::ListenerSetNeedsExternal));
        assert_eq!(config(&["--tenant-provisioner=external"]), Ok(()));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn the_pods_of_another_data_plane_can_be_named() {
        let flags = ["--data-plane-namespace=", "--data-plane-label=gateway={name}", "--data-plane-port-offset=0"];
        let data_plane = parse(&flags).operator.config().unwrap().data_plane;
        let labels = [("gateway".to_owned(), "{name}".to_owned())].into();
        assert_eq!(data_plane, DataPlane { namespace: None, labels, low_port_offset: 0 });
    }

    #[test]
    fn the_defaults_are_those_of_the_contract() {
        let arguments = parse(&["--cluster-issuer="]);
        assert!(!arguments.election.leader_elect && arguments.servers.metrics_secure);
        assert_eq!(arguments.servers.metrics(), None);
        assert_eq!(arguments.operator.config().unwrap().cluster_issuer, None);
        assert_eq!(arguments.operator.choices.tls_routes(), None);
        assert_eq!(arguments.unused.level(), "info");
        assert_eq!(arguments.operator.config().unwrap().data_plane, DataPlane::default());
        assert_eq!(
            parse(&["--tls-route-version=v1alpha2"]).operator.choices.tls_routes(),
            Some(TlsRouteVersion::V1Alpha2)
        );
        let keycloak = arguments.operator.config().unwrap().login.unwrap().keycloak.unwrap();
        let service = "http://keycloak-keycloakx-http.keycloak.svc.cluster.local:8080";
        assert_eq!(keycloak.realm_url, format!("{service}/realms/nebari"));
        assert_eq!(keycloak.external_realm_url, None);
        assert_eq!(arguments.operator.choices.keycloak().unwrap().url, service);
    }
}
