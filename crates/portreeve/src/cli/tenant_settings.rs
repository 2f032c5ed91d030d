//! What is configured for tenants beyond flags: the file of `--tenant-settings`.

use std::collections::BTreeMap;
use std::fs;

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use portreeve_plan::{Config, DnsServers, GatewayTemplate, Placement, TenantIsolation};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The file, in which everything may be left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TenantSettings {
    /// Namespaces that no tenant may have, beside those that none ever may.
    pub protected_namespaces: Vec<String>,
    /// Paths of the chart's values that tenants may set, beside those that all may, such as `controlPlane.advanced`.
    pub allowed_overrides: Vec<String>,
    /// The Gateways of tenants' apps.
    pub apps: AppsSettings,
    /// How tenants' namespaces are closed.
    pub isolation: IsolationSettings,
}

/// `apps`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct AppsSettings {
    /// Names of more Gateways beside the first, in its namespace.
    pub more_gateways: Vec<String>,
    /// Gateways with all these labels serve tenants' apps too.
    pub gateway_labels: BTreeMap<String, String>,
    /// How the next Gateway is made when all are full; absent: none is made.
    pub template: Option<TemplateSettings>,
    /// Where tenants' listeners are.
    pub placement: PlacementSetting,
    /// For how many seconds resolvers may keep a tenant's DNS record; 0: 300.
    pub dns_ttl: u32,
}

/// `apps.placement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum PlacementSetting {
    /// On the Gateways themselves.
    #[default]
    Gateway,
    /// In a ListenerSet for each tenant.
    ListenerSet,
}

/// `apps.template`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TemplateSettings {
    /// Labels of the Gateway.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its `spec`, with at least one listener.
    pub spec: Map<String, Value>,
}

/// `isolation`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct IsolationSettings {
    /// Whether NetworkPolicies are made at all.
    pub enabled: bool,
    /// Namespaces whose pods reach every pod of a tenant, such as that of the monitoring.
    pub system_namespaces: Vec<String>,
    /// Networks that tenants do not reach, beside those that are not public.
    pub denied_networks: Vec<String>,
    /// The DNS servers; absent: `k8s-app=kube-dns` in `kube-system`.
    pub dns: Option<DnsSettings>,
    /// Rules of a NetworkPolicy for more that may come in.
    pub extra_ingress: Vec<NetworkPolicyIngressRule>,
    /// Rules of a NetworkPolicy for more that may go out.
    pub extra_egress: Vec<NetworkPolicyEgressRule>,
    /// Tenants that are not isolated.
    pub except: Vec<String>,
}

/// `isolation.dns`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DnsSettings {
    /// Their namespace.
    pub namespace: String,
    /// Their labels.
    pub labels: BTreeMap<String, String>,
}

impl Default for IsolationSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            system_namespaces: Vec::new(),
            denied_networks: Vec::new(),
            dns: None,
            extra_ingress: Vec::new(),
            extra_egress: Vec::new(),
            except: Vec::new(),
        }
    }
}

impl TenantSettings {
    /// Reads the file of this path.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it, and where.
    pub fn read(path: &str) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
        serde_saphyr::from_str(&text).map_err(|error| error.to_string())
    }

    /// Puts it into what the platform has configured.
    pub(super) fn put_into(&self, config: &mut Config) {
        config.protected_namespaces.clone_from(&self.protected_namespaces);
        config.allowed_overrides.clone_from(&self.allowed_overrides);
        config.tenant_isolation = self.isolation.enabled.then(|| self.isolation.as_planned());
        if let Some(apps) = &mut config.tenant_apps {
            apps.more_gateways.clone_from(&self.apps.more_gateways);
            apps.gateway_labels.clone_from(&self.apps.gateway_labels);
            apps.dns_ttl = self.apps.dns_ttl;
            apps.placement = match self.apps.placement {
                PlacementSetting::Gateway => Placement::Gateway,
                PlacementSetting::ListenerSet => Placement::ListenerSet,
            };
            apps.template = self
                .apps
                .template
                .clone()
                .map(|TemplateSettings { labels, annotations, spec }| GatewayTemplate { labels, annotations, spec });
        }
    }
}

impl IsolationSettings {
    fn as_planned(&self) -> TenantIsolation {
        let dns = self.dns.clone().map(|DnsSettings { namespace, labels }| DnsServers { namespace, labels });
        TenantIsolation {
            system_namespaces: self.system_namespaces.clone(),
            denied_networks: self.denied_networks.clone(),
            dns,
            extra_ingress: self.extra_ingress.clone(),
            extra_egress: self.extra_egress.clone(),
            except: self.except.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_isolates_and_what_is_misspelt_is_refused() {
        let parse = |text: &str| serde_saphyr::from_str::<TenantSettings>(text);
        assert!(parse("{}").unwrap().isolation.enabled);
        let settings = parse("{apps: {moreGateways: [b], placement: ListenerSet}, isolation: {except: [a]}}").unwrap();
        assert_eq!(settings.apps.placement, PlacementSetting::ListenerSet);
        let mut config = Config { tenant_apps: Some(portreeve_plan::TenantApps::default()), ..Config::default() };
        settings.put_into(&mut config);
        assert_eq!(config.tenant_apps.unwrap().more_gateways, ["b"]);
        assert_eq!(config.tenant_isolation.unwrap().except, ["a"]);
        let error = parse("{isolation: {enable: false}}").unwrap_err().to_string();
        assert!(error.contains("enable"), "{error}");
    }
}
