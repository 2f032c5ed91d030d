//! What is configured for tenants beyond flags: the file of `--tenant-settings`.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

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
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        settings.isolation.check()?;
        Ok(settings)
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
    /// What an API server would refuse of every NetworkPolicy is refused here, once.
    fn check(&self) -> Result<(), String> {
        for network in &self.denied_networks {
            match prefix(network) {
                Some(0) => {
                    return Err(format!("isolation.deniedNetworks: {network} is everything: name what is denied"));
                }
                Some(_) => {}
                None => return Err(no_network("isolation.deniedNetworks", network)),
            }
        }
        let ingress = self.extra_ingress.iter().flat_map(|rule| rule.from.iter().flatten());
        let egress = self.extra_egress.iter().flat_map(|rule| rule.to.iter().flatten());
        let fields = ["isolation.extraIngress", "isolation.extraEgress"];
        let peers = ingress.map(|peer| (fields[0], peer)).chain(egress.map(|peer| (fields[1], peer)));
        for (field, block) in peers.filter_map(|(field, peer)| Some((field, peer.ip_block.as_ref()?))) {
            let bad =
                std::iter::once(&block.cidr).chain(block.except.iter().flatten()).find(|one| prefix(one).is_none());
            if let Some(network) = bad {
                return Err(no_network(field, network));
            }
        }
        Ok(())
    }

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

/// The length of the prefix of a network as NetworkPolicies take it.
fn prefix(network: &str) -> Option<u8> {
    let (address, prefix) = network.split_once('/')?;
    let longest = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
    let is_plain = prefix.bytes().all(|digit| digit.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
    prefix.parse().ok().filter(|prefix| is_plain && *prefix <= longest)
}

fn no_network(field: &str, network: &str) -> String {
    format!("{field}: {network:?} is no network: write an address and the length of its prefix, such as 203.0.113.0/24")
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

    #[test]
    fn what_no_network_policy_could_have_is_refused_where_it_is_read() {
        let parse = |text: &str| TenantSettings::parse(text).map(drop);
        for good in ["203.0.113.0/24", "10.0.0.1/32", "2001:db8::/32", "0.0.0.0/1"] {
            assert_eq!(parse(&format!("{{isolation: {{deniedNetworks: [\"{good}\"]}}}}")), Ok(()), "{good}");
        }
        for bad in
            ["203.0.113.0", "203.0.113.0/33", "203.0.113.0/+8", "203.0.113/24", "::/129", "a/8", "0.0.0.0/0", "::/00"]
        {
            let error = parse(&format!("{{isolation: {{deniedNetworks: [\"{bad}\"]}}}}")).unwrap_err();
            assert!(error.contains(bad) && error.contains("isolation.deniedNetworks"), "{error}");
        }
        let error = parse("{isolation: {extraEgress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0]}}]}]}}");
        assert!(error.unwrap_err().contains("isolation.extraEgress: \"10.1.0.0\" is no network"));
        assert_eq!(parse("{isolation: {extraIngress: [{from: [{podSelector: {}}]}]}}"), Ok(()));
    }
}
