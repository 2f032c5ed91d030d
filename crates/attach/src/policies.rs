//! SecurityPolicies: which routes they protect, and how.
//!
//! What protects a route and cannot be applied here closes the route. It is never left out.

mod read;

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use portreeve_table::Login;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Objects;
use crate::index::{GATEWAY_GROUP, Index, Name, age, name_of};
use crate::owners::{Owner, OwnerKind};

/// A SecurityPolicy of Envoy Gateway (`gateway.envoyproxy.io/v1alpha1`).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct SecurityPolicy {
    /// As of every object.
    pub metadata: ObjectMeta,
    /// What it asks for, as it is written.
    #[serde(default)]
    pub spec: Value,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PolicyStatus>,
}

/// What became of a policy (GEP-713).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct PolicyStatus {
    /// One for each parent of the routes that it protects.
    #[serde(default)]
    pub ancestors: Vec<PolicyAncestor>,
}

/// What became of a policy for one parent of the routes that it protects.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestor {
    /// The parent, as the controller named it.
    pub ancestor_ref: Value,
    /// Who says so.
    pub controller_name: String,
    /// What it says.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// A policy, and what it comes to.
pub(crate) struct Policy<'a> {
    pub object: &'a SecurityPolicy,
    pub login: Result<Arc<Login>, Fault>,
    pub targets: Vec<Target<'a>>,
}

/// Something that a policy protects.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target<'a> {
    Route(Name<'a>),
    Parent(OwnerKind, Name<'a>),
}

/// Why a policy cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    Invalid(String),
    #[error("another SecurityPolicy protects the same route: {0}")]
    Conflicted(String),
}

/// All policies, found by what they protect.
pub(crate) struct Policies<'a> {
    /// The oldest first.
    pub all: Vec<Policy<'a>>,
    by_target: HashMap<Target<'a>, usize>,
}

impl SecurityPolicy {
    /// What it is called in messages.
    fn called(&self) -> String {
        let (namespace, name) = name_of(&self.metadata);
        format!("SecurityPolicy {namespace}/{name}")
    }
}

impl Fault {
    /// The reason of `Accepted=False`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "Invalid",
            Self::Conflicted(_) => "Conflicted",
        }
    }
}

impl<'a> Policies<'a> {
    pub(crate) fn new(objects: &'a Objects, index: &Index<'a>) -> Self {
        let mut sorted: Vec<&SecurityPolicy> = objects.security_policies.iter().map(|policy| &**policy).collect();
        sorted.sort_by(|left, right| age(&left.metadata).cmp(&age(&right.metadata)));
        let read = |object: &'a SecurityPolicy| {
            let targets = targets(object, objects);
            let on_parent = targets.iter().any(|target| matches!(target, Target::Parent(..)));
            let login = if on_parent {
                Err(Fault::Invalid(
                    "only HTTPRoutes can be protected here, not Gateways and their listeners".to_owned(),
                ))
            } else {
                read::login(object, index).map(Arc::new).map_err(Fault::Invalid)
            };
            Policy { object, login, targets }
        };
        let mut all: Vec<_> = sorted.into_iter().map(read).collect();
        refuse_rivals(&mut all);
        let places = all.iter().enumerate();
        let by_target = places.flat_map(|(place, policy)| policy.targets.iter().map(move |target| (*target, place)));
        Self { by_target: by_target.collect(), all }
    }

    /// The sign-in in front of a route; what cannot be applied is told by [`Policies::check`].
    pub(crate) fn login(&self, route: Name<'a>) -> Option<Arc<Login>> {
        let place = self.by_target.get(&Target::Route(route))?;
        self.all[*place].login.as_ref().ok().cloned()
    }

    /// Why nobody may be let in to a route by one of its parents: something protects it that cannot be applied here.
    pub(crate) fn check(&self, route: Name<'a>, owner: &Owner<'a>) -> Result<(), String> {
        let gateway = name_of(&owner.gateway.metadata);
        let targets = [
            Target::Route(route),
            Target::Parent(owner.kind(), owner.name()),
            Target::Parent(OwnerKind::Gateway, gateway),
        ];
        let Some(place) = targets.iter().find_map(|target| self.by_target.get(target)) else { return Ok(()) };
        let policy = &self.all[*place];
        let closed = |fault: &Fault| format!("{} protects it and cannot be applied: {fault}", policy.object.called());
        policy.login.as_ref().map(drop).map_err(closed)
    }
}

/// Two policies on one route may each want something else, so neither is applied.
fn refuse_rivals(policies: &mut [Policy<'_>]) {
    let mut claimants: HashMap<Target<'_>, Vec<usize>> = HashMap::new();
    for (place, policy) in policies.iter().enumerate() {
        for target in &policy.targets {
            claimants.entry(*target).or_default().push(place);
        }
    }
    let rival = |place: usize, policy: &Policy<'_>| {
        let mut others = policy.targets.iter().flat_map(|target| &claimants[target]);
        others.find(|other| **other != place).map(|other| policies[*other].object.called())
    };
    let rivals: Vec<_> = policies.iter().enumerate().map(|(place, policy)| rival(place, policy)).collect();
    for (policy, rival) in policies.iter_mut().zip(rivals) {
        if let Some(rival) = rival {
            policy.login = Err(Fault::Conflicted(rival));
        }
    }
}

/// Everything that a policy protects, each once. Targets that are selected by expressions count as selected.
fn targets<'a>(policy: &'a SecurityPolicy, objects: &'a Objects) -> Vec<Target<'a>> {
    let home = name_of(&policy.metadata).0;
    let named = policy.spec["targetRefs"].as_array().into_iter().flatten().chain([&policy.spec["targetRef"]]);
    let named = named.filter_map(|reference| {
        let name = (home, reference["name"].as_str()?);
        match reference["kind"].as_str()? {
            _ if reference["group"].as_str() != Some(GATEWAY_GROUP) => None,
            "HTTPRoute" => Some(Target::Route(name)),
            "Gateway" => Some(Target::Parent(OwnerKind::Gateway, name)),
            "ListenerSet" => Some(Target::Parent(OwnerKind::ListenerSet, name)),
            _ => None,
        }
    });
    let selectors = policy.spec["targetSelectors"].as_array().into_iter().flatten();
    let selected = selectors.flat_map(|selector| selected(selector, home, objects));
    let mut found: Vec<_> = Vec::new();
    for target in named.chain(selected) {
        if !found.contains(&target) {
            found.push(target);
        }
    }
    found
}

fn selected<'a>(selector: &Value, home: &str, objects: &'a Objects) -> Vec<Target<'a>> {
    // Which namespaces are meant, and whether they consent, is not looked at: that closes too much rather than too little.
    let is_far = !selector["namespaces"].is_null();
    let is_meant = |metadata: &ObjectMeta| {
        let mut wanted = selector["matchLabels"].as_object().into_iter().flatten();
        let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
        (is_far || name_of(metadata).0 == home) && wanted.all(|(key, value)| label(key) == value.as_str())
    };
    match selector["kind"].as_str() {
        Some("HTTPRoute") => {
            let routes = objects.http_routes.iter().map(|route| &route.metadata);
            routes.filter(|metadata| is_meant(metadata)).map(|metadata| Target::Route(name_of(metadata))).collect()
        }
        Some("Gateway") => {
            let gateways = objects.gateways.iter().map(|gateway| &gateway.metadata);
            let meant = gateways.filter(|metadata| is_meant(metadata));
            meant.map(|metadata| Target::Parent(OwnerKind::Gateway, name_of(metadata))).collect()
        }
        Some("ListenerSet") => {
            let sets = objects.listener_sets.iter().map(|set| &set.metadata);
            let meant = sets.filter(|metadata| is_meant(metadata));
            meant.map(|metadata| Target::Parent(OwnerKind::ListenerSet, name_of(metadata))).collect()
        }
        _ => Vec::new(),
    }
}
