use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use portreeve_plan::{GatewayTemplate, Placement, TenantApps, TenantIsolation};
use serde::de::DeserializeOwned;

/// Where tenants' apps are served, and how tenants are closed.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Tenants in a cluster")]
pub struct ShardArgs {
    /// Another Gateway for tenants' apps, in the namespace of the first; may be given more than once
    #[arg(long, value_name = "NAME", env = "KUBESPACES_APPS_GATEWAYS", value_delimiter = ',')]
    pub tenant_apps_gateway: Vec<String>,
    /// Gateways with these labels are for tenants' apps too
    #[arg(long, value_name = "KEY=VALUE,…", env = "KUBESPACES_APPS_GATEWAY_SELECTOR")]
    pub tenant_apps_gateway_selector: Option<Labels>,
    /// File with labels, annotations and spec of the next Gateway, which is made when all are full
    #[arg(long, value_name = "FILE", env = "KUBESPACES_APPS_GATEWAY_TEMPLATE")]
    pub tenant_apps_gateway_template: Option<PathBuf>,
    /// Where tenants' listeners are
    #[arg(long, value_enum, default_value = "gateway", env = "KUBESPACES_APPS_PLACEMENT")]
    pub tenant_apps_placement: PlacementArg,
    /// For how many seconds resolvers may keep the DNS record of a tenant's apps
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "KUBESPACES_APPS_DNS_TTL")]
    pub tenant_apps_dns_ttl: u32,
    /// File that says how tenants' namespaces are closed by NetworkPolicies beside the rules that all have; off: they are open
    #[arg(long, value_name = "FILE", env = "KUBESPACES_ISOLATION")]
    pub tenant_isolation: Option<PathBuf>,
}

/// Where tenants' listeners are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementArg {
    /// On the Gateways
    Gateway,
    /// In a ListenerSet for each tenant; only where others provision tenants
    ListenerSet,
}

/// Labels that something must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

/// A file that is named on the command line and cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It cannot be read.
    #[error("failed to read {}", .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// It says something else than it must.
    #[error("{}: {1}", .0.display())]
    Invalid(PathBuf, String),
}

impl ShardArgs {
    /// The path to tenants' apps, on all its Gateways.
    ///
    /// # Errors
    ///
    /// When the template cannot be used.
    pub fn complete(&self, apps: TenantApps) -> Result<TenantApps, BadFile> {
        let template = self.tenant_apps_gateway_template.as_deref().map(template).transpose()?;
        let named = self.tenant_apps_gateway.iter().filter(|name| !name.is_empty());
        Ok(TenantApps {
            more_gateways: named.cloned().collect(),
            gateway_labels: self.tenant_apps_gateway_selector.clone().map(|Labels(labels)| labels).unwrap_or_default(),
            template,
            placement: match self.tenant_apps_placement {
                PlacementArg::Gateway => Placement::Gateway,
                PlacementArg::ListenerSet => Placement::ListenerSet,
            },
            dns_ttl: self.tenant_apps_dns_ttl,
            ..apps
        })
    }

    /// How tenants' namespaces are closed; none where they are open.
    ///
    /// # Errors
    ///
    /// When the file cannot be used.
    pub fn isolation(&self) -> Result<Option<TenantIsolation>, BadFile> {
        let Some(path) = self.tenant_isolation.as_deref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(Some(TenantIsolation::default()));
        };
        if path == Path::new("off") {
            return Ok(None);
        }
        let isolation: TenantIsolation = read(path)?;
        match isolation.denied_networks.iter().find(|network| !is_network(network)) {
            Some(wrong) => Err(BadFile::Invalid(path.to_owned(), format!("deniedNetworks: {wrong} is no network"))),
            None => Ok(Some(isolation)),
        }
    }
}

fn template(path: &Path) -> Result<GatewayTemplate, BadFile> {
    let template: GatewayTemplate = read(path)?;
    let listeners = template.spec.get("listeners").and_then(|listeners| listeners.as_array());
    if listeners.is_none_or(Vec::is_empty) {
        return Err(BadFile::Invalid(path.to_owned(), "spec.listeners must have a listener".to_owned()));
    }
    Ok(template)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, BadFile> {
    let text = std::fs::read_to_string(path).map_err(|error| BadFile::Unreadable(path.to_owned(), error))?;
    serde_saphyr::from_str(&text).map_err(|error| BadFile::Invalid(path.to_owned(), error.to_string()))
}

fn is_network(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let longest = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length > 0 && length <= longest)
}

impl FromStr for Labels {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        let labels = pairs.map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())));
        labels.collect::<Option<_>>().map(Self).ok_or("write KEY=VALUE,KEY=VALUE")
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        shards: ShardArgs,
    }

    fn parse(flags: &[&str]) -> ShardArgs {
        Command::parse_from(["x"].iter().chain(flags)).shards
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn gateways_are_named_found_and_made() {
        let template = file("spec: {gatewayClassName: envoy, listeners: [{name: http, port: 80, protocol: HTTP}]}");
        let arguments = parse(&[
            "--tenant-apps-gateway=a",
            "--tenant-apps-gateway=b,c",
            "--tenant-apps-gateway-selector=x=1,y=2",
            "--tenant-apps-gateway-template",
            template.path().to_str().unwrap(),
        ]);
        let apps = arguments.complete(TenantApps::default()).unwrap();
        assert_eq!(apps.more_gateways, ["a", "b", "c"]);
        assert_eq!(apps.gateway_labels.len(), 2);
        assert_eq!(apps.template.unwrap().spec["gatewayClassName"], "envoy");
        let empty = file("spec: {gatewayClassName: envoy}");
        let arguments = parse(&["--tenant-apps-gateway-template", empty.path().to_str().unwrap()]);
        assert!(arguments.complete(TenantApps::default()).is_err(), "a Gateway without a listener is none");
    }

    #[test]
    fn tenants_are_closed_unless_told_otherwise() {
        assert_eq!(parse(&[]).isolation().unwrap(), Some(TenantIsolation::default()));
        assert_eq!(parse(&["--tenant-isolation=off"]).isolation().unwrap(), None);
        let isolation = |text: &str| {
            let file = file(text);
            parse(&["--tenant-isolation", file.path().to_str().unwrap()]).isolation()
        };
        let given = isolation("except: [a]\ndeniedNetworks: [203.0.113.0/24, '2001:db8::/32']").unwrap().unwrap();
        assert_eq!(given.except, ["a"]);
        for wrong in ["deniedNetworks: [203.0.113.0]", "deniedNetworks: [0.0.0.0/0]", "unknown: 1"] {
            assert!(isolation(wrong).is_err(), "{wrong}");
        }
    }
}
