//! Which pods NetworkPolicies isolate, by selectors alone.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use portreeve_api::LabelSelector;

use crate::object::Live;
use crate::world::World;

/// What policies isolate that Portreeve did not make. Its own never count: they only add to what is allowed, for pods
/// that others have isolated.
#[derive(Default)]
pub(crate) struct Isolation {
    egress: BTreeMap<String, Vec<LabelSelector>>,
    ingress: BTreeMap<String, Vec<LabelSelector>>,
}

impl Isolation {
    pub(crate) fn of(world: &World) -> Self {
        let mut isolation = Self::default();
        for policy in world.network_policies.iter().filter(|policy| !Live::NetworkPolicy(policy).is_made()) {
            let Some(spec) = &policy.spec else { continue };
            let namespace = policy.metadata.namespace.clone().unwrap_or_default();
            let pods = spec.pod_selector.clone().unwrap_or_default();
            if is_of_type(spec, "Egress") {
                isolation.egress.entry(namespace.clone()).or_default().push(pods.clone());
            }
            if is_of_type(spec, "Ingress") {
                isolation.ingress.entry(namespace).or_default().push(pods);
            }
        }
        isolation
    }

    /// Every namespace with pods that are isolated for what they send, and which pods.
    pub(crate) fn egress(&self) -> impl Iterator<Item = (&str, &[LabelSelector])> {
        self.egress.iter().map(|(namespace, pods)| (namespace.as_str(), pods.as_slice()))
    }

    /// Which pods of a namespace are isolated for what they receive.
    pub(crate) fn ingress(&self, namespace: &str) -> &[LabelSelector] {
        self.ingress.get(namespace).map_or(&[], Vec::as_slice)
    }
}

/// Without types, a policy is for ingress, and for egress too when it has a rule for it (`NetworkPolicySpec`).
fn is_of_type(spec: &NetworkPolicySpec, type_: &str) -> bool {
    match spec.policy_types.as_deref() {
        Some(named) if !named.is_empty() => named.iter().any(|one| one == type_),
        _ => type_ == "Ingress" || spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}
