use std::collections::BTreeMap;
use std::fmt;

use gateway_api::gateways::{
    GatewayAllowedListenersNamespaces, GatewayAllowedListenersNamespacesFrom,
    GatewayAllowedListenersNamespacesSelector, GatewayListenersAllowedRoutesNamespaces,
    GatewayListenersAllowedRoutesNamespacesFrom, GatewayListenersAllowedRoutesNamespacesSelector,
};
use gateway_api::listenersets::{
    ListenerSetListenersAllowedRoutesNamespaces, ListenerSetListenersAllowedRoutesNamespacesFrom,
    ListenerSetListenersAllowedRoutesNamespacesSelector,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::index::Index;

/// From which namespaces something may attach.
#[derive(Clone, Debug)]
pub(crate) enum NamespaceRule<'a> {
    All,
    Same,
    None,
    /// Absent although `from` is `Selector`: no namespace, as everywhere in Kubernetes.
    Selected(Option<Selector<'a>>),
}

/// A label selector.
#[derive(Clone, Debug)]
pub(crate) struct Selector<'a> {
    labels: Option<&'a BTreeMap<String, String>>,
    expressions: Vec<Requirement<'a>>,
}

/// What a selector demands of one label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement<'a> {
    key: &'a str,
    operator: &'a str,
    values: &'a [String],
}

impl<'a> NamespaceRule<'a> {
    /// Whether what lives in `namespace` may attach to what lives in `home`.
    pub(crate) fn admits(&self, index: &Index<'a>, home: &str, namespace: &'a str) -> bool {
        match self {
            Self::All => true,
            Self::Same => home == namespace,
            Self::None => false,
            Self::Selected(selector) => {
                selector.as_ref().is_some_and(|selector| selector.matches(|key| index.namespace_label(namespace, key)))
            }
        }
    }
}

impl<'a> Selector<'a> {
    pub(crate) fn matches(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements().all(|requirement| requirement.matches(label(requirement.key)))
    }

    /// What must all hold.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = Requirement<'a>> {
        let labels = self.labels.into_iter().flatten();
        let labels =
            labels.map(|(key, value)| Requirement { key, operator: "In", values: std::slice::from_ref(value) });
        labels.chain(self.expressions.iter().copied())
    }
}

impl<'a> Requirement<'a> {
    /// Of the label that it is about.
    pub(crate) fn key(&self) -> &'a str {
        self.key
    }

    /// Whether it holds with this value of the label. An operator that is not known selects nothing.
    pub(crate) fn matches(&self, label: Option<&str>) -> bool {
        let listed = label.is_some_and(|label| self.values.iter().any(|value| value == label));
        match self.operator {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            _ => false,
        }
    }
}

impl fmt::Display for NamespaceRule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "any namespace",
            Self::Same => "the same namespace",
            Self::None => "no namespace",
            Self::Selected(_) => "the namespaces of a selector",
        })
    }
}

macro_rules! selector_from {
    ($($selector:ty),*) => {$(
        impl<'a> From<&'a $selector> for Selector<'a> {
            fn from(selector: &'a $selector) -> Self {
                let expressions = selector.match_expressions.iter().flatten();
                Self {
                    labels: selector.match_labels.as_ref(),
                    expressions: expressions
                        .map(|expression| Requirement {
                            key: &expression.key,
                            operator: &expression.operator,
                            values: expression.values.as_deref().unwrap_or_default(),
                        })
                        .collect(),
                }
            }
        }
    )*};
}

selector_from!(
    GatewayAllowedListenersNamespacesSelector,
    GatewayListenersAllowedRoutesNamespacesSelector,
    ListenerSetListenersAllowedRoutesNamespacesSelector,
    LabelSelector
);

macro_rules! route_namespaces_from {
    ($($namespaces:ty, $from:ident);*) => {$(
        /// Routes come from the listener's own namespace unless it says otherwise.
        impl<'a> From<&'a $namespaces> for NamespaceRule<'a> {
            fn from(namespaces: &'a $namespaces) -> Self {
                match namespaces.from {
                    None | Some($from::Same) => Self::Same,
                    Some($from::All) => Self::All,
                    Some($from::Selector) => Self::Selected(namespaces.selector.as_ref().map(Selector::from)),
                }
            }
        }
    )*};
}

route_namespaces_from!(
    GatewayListenersAllowedRoutesNamespaces, GatewayListenersAllowedRoutesNamespacesFrom;
    ListenerSetListenersAllowedRoutesNamespaces, ListenerSetListenersAllowedRoutesNamespacesFrom
);

/// No ListenerSet may attach unless the Gateway says otherwise.
impl<'a> From<&'a GatewayAllowedListenersNamespaces> for NamespaceRule<'a> {
    fn from(namespaces: &'a GatewayAllowedListenersNamespaces) -> Self {
        match namespaces.from {
            None | Some(GatewayAllowedListenersNamespacesFrom::None) => Self::None,
            Some(GatewayAllowedListenersNamespacesFrom::Same) => Self::Same,
            Some(GatewayAllowedListenersNamespacesFrom::All) => Self::All,
            Some(GatewayAllowedListenersNamespacesFrom::Selector) => {
                Self::Selected(namespaces.selector.as_ref().map(Selector::from))
            }
        }
    }
}
