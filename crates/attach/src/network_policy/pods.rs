use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::answer::{Answer, Doubt};
use crate::index::Index;
use crate::namespaces::Selector;

/// Labels of Pods. An absent value says that they do not have the label; of a label that is not in here nothing is known.
pub type PodLabels = BTreeMap<String, Option<String>>;

/// One end of a connection, as NetworkPolicies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Where they live.
    pub namespace: String,
    /// What is known of their labels; `None` for the endpoints of a Service that selects no Pods.
    pub labels: Option<PodLabels>,
    /// Their addresses; empty if they are not known.
    pub addresses: Vec<IpAddr>,
}

/// The Pods through which a controller serves a Gateway.
///
/// In the namespace and in the values of the labels `{namespace}` and `{name}` stand for those of the Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPods {
    /// Where they live.
    pub namespace: String,
    /// What is known of their labels.
    pub labels: PodLabels,
    /// What is added to a listener's port below 1024 to get the port in the Pod; other ports are the same there.
    pub low_port_offset: u16,
}

/// Those of Envoy Gateway as it is installed by default.
impl Default for GatewayPods {
    fn default() -> Self {
        let label = |key: &str, value: &str| (format!("gateway.envoyproxy.io/{key}"), Some(value.to_owned()));
        Self {
            namespace: "envoy-gateway-system".to_owned(),
            labels: [label("owning-gateway-name", "{name}"), label("owning-gateway-namespace", "{namespace}")].into(),
            low_port_offset: 10_000,
        }
    }
}

impl GatewayPods {
    /// Those of one Gateway, without their addresses.
    pub(crate) fn of(&self, (namespace, name): (&str, &str)) -> Pods {
        let fill = |text: &String| text.replace("{namespace}", namespace).replace("{name}", name);
        let labels = self.labels.iter().map(|(key, value)| (key.clone(), value.as_ref().map(fill)));
        Pods { namespace: fill(&self.namespace), labels: Some(labels.collect()), addresses: Vec::new() }
    }

    /// The port in the Pod behind a listener's port.
    pub(crate) fn pod_port(&self, port: u16) -> u16 {
        if port < 1024 { port.saturating_add(self.low_port_offset) } else { port }
    }
}

impl Pods {
    /// Whether a selector selects them among those of their namespace; without a selector it does.
    pub(super) fn are_selected<'a, S>(&'a self, selector: Option<&'a S>) -> Answer
    where
        Selector<'a>: From<&'a S>,
    {
        let Some(labels) = &self.labels else {
            return Doubt::OnlyAddresses { namespace: self.namespace.clone() }.into();
        };
        let Some(selector) = selector else { return Answer::Yes };
        Answer::all(Selector::from(selector).requirements().map(|requirement| match labels.get(requirement.key()) {
            Some(value) => requirement.matches(value.as_deref()).into(),
            None => Doubt::Label { namespace: self.namespace.clone(), key: requirement.key().to_owned() }.into(),
        }))
    }

    /// Whether a selector over namespaces selects theirs.
    pub(super) fn live_in<'a, S>(&'a self, index: &Index<'a>, namespaces: &'a S) -> Answer
    where
        Selector<'a>: From<&'a S>,
    {
        if self.labels.is_none() {
            return Doubt::OnlyAddresses { namespace: self.namespace.clone() }.into();
        }
        Selector::from(namespaces).matches(|key| index.namespace_label(&self.namespace, key)).into()
    }
}

/// `namespace/key=value,!key`.
impl fmt::Display for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.namespace)?;
        for (place, (key, value)) in self.labels.iter().flatten().enumerate() {
            f.write_str(if place == 0 { "/" } else { "," })?;
            match value {
                Some(value) => write!(f, "{key}={value}")?,
                None => write!(f, "!{key}")?,
            }
        }
        Ok(())
    }
}
