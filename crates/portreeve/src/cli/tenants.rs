use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use portreeve_plan::{FluxCharts, Provisioner, TenantApi, TenantApps};

use super::given;
use super::tenant_settings::{PlacementSetting, TenantSettings};

/// The chart of the operator that is replaced.
const CHART: &str = "oci://ghcr.io/kubespaces-io/charts/vcluster";
/// Its version there.
const CHART_VERSION: &str = "0.35.2";
/// Its name in a Helm repository.
const CHART_NAME: &str = "vcluster";

/// The paths to tenants; the variables are those of the operator that Portreeve replaces.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tenants")]
pub struct TenantArgs {
    /// Domain under which tenants' API servers are served; turns that path on
    #[arg(long, value_name = "DOMAIN", env = "KUBESPACES_API_DOMAIN")]
    pub tenant_api_domain: Option<String>,
    /// Namespace of the tenants' API Gateway
    #[arg(long, value_name = "NAMESPACE", env = "KUBESPACES_GATEWAY_NAMESPACE", default_value = "kubespaces-system")]
    pub tenant_api_gateway_namespace: String,
    /// Name of the tenants' API Gateway
    #[arg(long, value_name = "NAME", env = "KUBESPACES_GATEWAY_NAME", default_value = "kubespaces-api")]
    pub tenant_api_gateway_name: String,
    /// Its passthrough listener; without it whichever takes the name
    #[arg(long, value_name = "SECTION", env = "KUBESPACES_GATEWAY_SECTION")]
    pub tenant_api_section: Option<String>,
    /// Where external-dns points tenants' API names
    #[arg(long, value_name = "TARGET", env = "KUBESPACES_EXTERNAL_DNS_TARGET")]
    pub external_dns_target: Option<String>,
    /// Domain under which tenants' apps are served; turns that path on
    #[arg(long, value_name = "DOMAIN", env = "KUBESPACES_APPS_DOMAIN")]
    pub tenant_apps_domain: Option<String>,
    /// Namespace of the tenants' apps Gateway
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "KUBESPACES_APPS_GATEWAY_NAMESPACE",
        default_value = "kubespaces-system"
    )]
    pub tenant_apps_gateway_namespace: String,
    /// Name of the tenants' apps Gateway
    #[arg(long, value_name = "NAME", env = "KUBESPACES_APPS_GATEWAY_NAME", default_value = "kubespaces-apps")]
    pub tenant_apps_gateway_name: String,
    /// ClusterIssuer of tenants' wildcard certificates, for which the local CA stands outside a cluster
    #[arg(long, value_name = "NAME", env = "KUBESPACES_APPS_CLUSTER_ISSUER")]
    pub tenant_apps_cluster_issuer: Option<String>,
}

/// Who makes tenants' virtual clusters, and what else is configured for tenants.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tenants")]
pub struct ProvisionerArgs {
    /// Who makes virtual clusters
    #[arg(long, value_enum, default_value_t = ProvisionerArg::Helm)]
    pub tenant_provisioner: ProvisionerArg,
    /// Chart of virtual clusters: an OCI reference, the URL of a Helm repository, an archive or a folder
    #[arg(long, value_name = "CHART", env = "VCLUSTER_CHART_REF", default_value = CHART)]
    pub vcluster_chart: String,
    /// Its version where a Tenant names none
    #[arg(long, value_name = "VERSION", env = "VCLUSTER_CHART_VERSION", default_value = CHART_VERSION)]
    pub vcluster_version: String,
    /// The Helm client
    #[arg(long, value_name = "PROGRAM", env = "HELM", default_value = "helm")]
    pub helm: PathBuf,
    /// ServiceAccount as which the Helm client works; without a namespace: of that in which this runs
    #[arg(long, value_name = "[NAMESPACE/]NAME", default_value = "portreeve-helm")]
    pub helm_service_account: AccountArg,
    /// File with more settings: shards, network isolation, values that tenants may set
    #[arg(long, value_name = "FILE", value_parser = TenantSettings::read)]
    pub tenant_settings: Option<TenantSettings>,
}

/// Who makes virtual clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProvisionerArg {
    /// The Helm client, which the operator runs
    Helm,
    /// Flux, by a HelmRelease
    Flux,
    /// The platform; the values stand in a ConfigMap
    External,
}

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountArg {
    /// Its namespace, if it is named.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl FromStr for AccountArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
            None => (None, text.to_owned()),
        };
        if name.is_empty() || namespace.as_deref() == Some("") {
            return Err("not [NAMESPACE/]NAME");
        }
        Ok(Self { namespace, name })
    }
}

impl ProvisionerArgs {
    /// The file with more settings, or what is meant without one.
    ///
    /// # Errors
    ///
    /// When it does not go with who makes virtual clusters.
    pub fn settings(&self) -> Result<TenantSettings, BadTenants> {
        let settings = self.tenant_settings.clone().unwrap_or_default();
        let is_external = self.tenant_provisioner == ProvisionerArg::External;
        if settings.apps.placement == PlacementSetting::ListenerSet && !is_external {
            return Err(BadTenants::ListenerSetNeedsExternal);
        }
        Ok(settings)
    }

    /// Who makes virtual clusters, of which charts.
    pub fn provisioner(&self) -> Provisioner {
        let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
        let (chart, version) = (or(&self.vcluster_chart, CHART), or(&self.vcluster_version, CHART_VERSION));
        match self.tenant_provisioner {
            ProvisionerArg::Helm => Provisioner::Helm { chart, version },
            ProvisionerArg::Flux => Provisioner::Flux(FluxCharts { url: chart, chart: CHART_NAME.to_owned(), version }),
            ProvisionerArg::External => Provisioner::External,
        }
    }
}

/// What is said about tenants and does not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenants {
    /// The path to apps lacks what it needs.
    #[error(
        "tenants' apps need a ClusterIssuer: give --tenant-apps-cluster-issuer (KUBESPACES_APPS_CLUSTER_ISSUER) too"
    )]
    NoIssuer,
    /// Virtual clusters are shown Gateways only.
    #[error(
        "apps.placement ListenerSet is for tenants that the platform provisions, since virtual clusters are shown Gateways \
         only: give --tenant-provisioner=external, or leave apps.placement out"
    )]
    ListenerSetNeedsExternal,
}

impl TenantArgs {
    /// The path to API servers; none where it is off.
    pub fn api(&self) -> Option<TenantApi> {
        given(self.tenant_api_domain.clone()).map(|domain| TenantApi {
            gateway_namespace: self.tenant_api_gateway_namespace.clone(),
            gateway_name: self.tenant_api_gateway_name.clone(),
            section: given(self.tenant_api_section.clone()),
            domain,
            external_dns_target: given(self.external_dns_target.clone()),
        })
    }

    /// The path to apps; none where it is off. `issuer` is meant where no other is named.
    ///
    /// # Errors
    ///
    /// Without an issuer.
    pub fn apps(&self, issuer: Option<&str>) -> Result<Option<TenantApps>, BadTenants> {
        let Some(domain) = given(self.tenant_apps_domain.clone()) else { return Ok(None) };
        let named = given(self.tenant_apps_cluster_issuer.clone());
        let cluster_issuer = named.or_else(|| issuer.map(str::to_owned)).ok_or(BadTenants::NoIssuer)?;
        Ok(Some(TenantApps {
            gateway_namespace: self.tenant_apps_gateway_namespace.clone(),
            gateway_name: self.tenant_apps_gateway_name.clone(),
            domain,
            cluster_issuer,
            ..TenantApps::default()
        }))
    }
}
