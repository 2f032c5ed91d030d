use std::collections::BTreeMap;

use clap::Args;
use portreeve_plan::DataPlane;

use super::given;

/// Where NetworkPolicies find the pods that carry the traffic. The defaults are Envoy Gateway's.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Data plane")]
pub struct DataPlaneArgs {
    /// Namespace of the pods that carry the traffic; empty: that of their Gateway
    #[arg(
        id = "data_plane_namespace",
        long = "data-plane-namespace",
        value_name = "NAMESPACE",
        default_value = "envoy-gateway-system"
    )]
    pub namespace: String,
    /// Labels of these pods, where {name} and {namespace} stand for the Gateway's [default: those that Envoy Gateway sets]
    #[arg(id = "data_plane_label", long = "data-plane-label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// What such a pod adds to the ports below 1024, which it may not open
    #[arg(
        id = "data_plane_port_offset",
        long = "data-plane-port-offset",
        value_name = "NUMBER",
        default_value_t = 10_000
    )]
    pub port_offset: u16,
}

impl DataPlaneArgs {
    /// As NetworkPolicies must name them.
    pub fn data_plane(&self) -> DataPlane {
        let labels: BTreeMap<String, String> = self.labels.iter().cloned().collect();
        let labels = if labels.is_empty() { DataPlane::default().labels } else { labels };
        let namespace = given(Some(self.namespace.clone()));
        DataPlane { namespace, labels, low_port_offset: self.port_offset }
    }
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    if key.is_empty() { Err("the key is empty") } else { Ok((key.to_owned(), value.to_owned())) }
}
