use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use gateway_api::listenersets::ListenerSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portreeve_names::{SNI_PATTERNS_ANNOTATION, SniPattern};

use crate::index::{GATEWAY_GROUP, Index, Name, age, name_of};
use crate::listener::{Listener, ListenerFault, ListenerSpec};
use crate::namespaces::NamespaceRule;
use crate::{Classes, Objects, Settings, Warning};

/// What owns listeners, and what a route can name as its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerKind {
    Gateway,
    ListenerSet,
}

/// The object behind an [`Owner`].
#[derive(Clone, Copy)]
pub(crate) enum OwnerObject<'a> {
    Gateway(&'a Gateway),
    ListenerSet(&'a ListenerSet),
}

/// A Gateway that is served, or a ListenerSet that names one.
pub(crate) struct Owner<'a> {
    pub object: OwnerObject<'a>,
    /// The Gateway itself, also for its ListenerSets.
    pub gateway: &'a Gateway,
    /// The Gateway's `namespace/name`.
    pub gateway_name: Arc<str>,
    /// Why none of its listeners is accepted.
    pub refusal: Option<OwnerRefusal>,
    /// Its listeners in [`Merged::listeners`]; none for a ListenerSet that is refused.
    pub listeners: Range<usize>,
}

/// Why a Gateway or a ListenerSet is refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OwnerRefusal {
    #[error("the Gateway allows ListenerSets from {0} (spec.allowedListeners)")]
    NotAllowed(String),
    #[error("the Gateway is not accepted")]
    ParentNotAccepted,
    #[error("addresses of type '{0}' are not supported; use IPAddress")]
    UnsupportedAddress(String),
    #[error("spec.infrastructure.parametersRef is not supported: there are no parameters to set")]
    InvalidParameters,
}

/// The listeners of every Gateway with those of its ListenerSets, in order of precedence: Gateway by Gateway, its own
/// first, then those of the oldest ListenerSet (GEP-1713).
pub(crate) struct Merged<'a> {
    pub owners: Vec<Owner<'a>>,
    pub listeners: Vec<Listener<'a>>,
    pub warnings: Vec<Warning>,
}

/// Selects the Gateways, admits the ListenerSets and merges their listeners.
pub(crate) fn merge<'a>(objects: &'a Objects, settings: &Settings, index: &Index<'a>) -> Merged<'a> {
    let mut merged = Merged { owners: Vec::new(), listeners: Vec::new(), warnings: orphans(objects) };
    let sets = sets_by_gateway(objects);
    for gateway in selected(objects, settings) {
        merged.add_gateway(gateway);
        for set in sets.get(&name_of(&gateway.metadata)).into_iter().flatten() {
            merged.add_set(gateway, set, index);
        }
    }
    merged
}

/// Why a GatewayClass that names this controller is not accepted.
pub(crate) fn class_refusal(class: &GatewayClass) -> Option<&'static str> {
    class.spec.parameters_ref.as_ref().map(|_| "spec.parametersRef is not supported: there are no parameters to set")
}

impl<'a> Merged<'a> {
    fn add_gateway(&mut self, gateway: &'a Gateway) {
        let (namespace, name) = name_of(&gateway.metadata);
        let refusal = gateway_refusal(gateway);
        let listeners = gateway.spec.listeners.iter().map(ListenerSpec::from);
        let range = self.add_listeners(&format!("Gateway/{namespace}/{name}"), listeners);
        for listener in &mut self.listeners[range.clone()] {
            if refusal.is_some() {
                listener.fault = Some(ListenerFault::GatewayRefused);
            }
        }
        let gateway_name = format!("{namespace}/{name}").into();
        let object = OwnerObject::Gateway(gateway);
        self.owners.push(Owner { object, gateway, gateway_name, refusal, listeners: range });
    }

    fn add_set(&mut self, gateway: &'a Gateway, set: &'a ListenerSet, index: &Index<'a>) {
        let (namespace, name) = name_of(&set.metadata);
        let refusal = set_refusal(gateway, set, index);
        let listeners = if refusal.is_none() { set.spec.listeners.as_slice() } else { &[] };
        let range = self.add_listeners(&format!("ListenerSet/{namespace}/{name}"), listeners.iter().map(Into::into));
        self.warnings.extend(read_patterns(set, &mut self.listeners[range.clone()]));
        let (gateway_namespace, gateway_name) = name_of(&gateway.metadata);
        let gateway_name = format!("{gateway_namespace}/{gateway_name}").into();
        let object = OwnerObject::ListenerSet(set);
        self.owners.push(Owner { object, gateway, gateway_name, refusal, listeners: range });
    }

    fn add_listeners(&mut self, owner_id: &str, specs: impl Iterator<Item = ListenerSpec<'a>>) -> Range<usize> {
        let start = self.listeners.len();
        let owner = self.owners.len();
        self.listeners.extend(specs.map(|spec| Listener::new(owner, owner_id, spec)));
        start..self.listeners.len()
    }
}

impl<'a> Owner<'a> {
    pub(crate) fn kind(&self) -> OwnerKind {
        match self.object {
            OwnerObject::Gateway(_) => OwnerKind::Gateway,
            OwnerObject::ListenerSet(_) => OwnerKind::ListenerSet,
        }
    }

    pub(crate) fn metadata(&self) -> &'a ObjectMeta {
        match self.object {
            OwnerObject::Gateway(gateway) => &gateway.metadata,
            OwnerObject::ListenerSet(set) => &set.metadata,
        }
    }

    pub(crate) fn name(&self) -> Name<'a> {
        name_of(self.metadata())
    }
}

impl OwnerRefusal {
    /// The reason of `Accepted=False`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NotAllowed(_) => "NotAllowed",
            Self::ParentNotAccepted => "ParentNotAccepted",
            Self::UnsupportedAddress(_) => "UnsupportedAddress",
            Self::InvalidParameters => "InvalidParameters",
        }
    }
}

fn selected<'a>(objects: &'a Objects, settings: &Settings) -> Vec<&'a Gateway> {
    let of_controller = classes_of(objects, &settings.controller_name);
    let is_selected = |gateway: &&'a Gateway| match &settings.classes {
        Classes::Every => true,
        Classes::Named(names) => names.contains(&gateway.spec.gateway_class_name),
        Classes::OfController => of_controller.contains(gateway.spec.gateway_class_name.as_str()),
    };
    let mut gateways: Vec<_> = objects.gateways.iter().map(|gateway| &**gateway).filter(is_selected).collect();
    gateways.sort_by_key(|gateway| name_of(&gateway.metadata));
    gateways
}

fn classes_of<'a>(objects: &'a Objects, controller: &str) -> BTreeSet<&'a str> {
    let accepted = objects
        .gateway_classes
        .iter()
        .filter(|class| class.spec.controller_name == controller && class_refusal(class).is_none());
    accepted.filter_map(|class| class.metadata.name.as_deref()).collect()
}

/// The ListenerSets of each Gateway, in order of precedence.
fn sets_by_gateway(objects: &Objects) -> HashMap<Name<'_>, Vec<&ListenerSet>> {
    let mut sets: HashMap<_, Vec<&ListenerSet>> = HashMap::new();
    for set in &objects.listener_sets {
        if let Some(gateway) = parent(set) {
            sets.entry(gateway).or_default().push(set);
        }
    }
    for of_one in sets.values_mut() {
        of_one.sort_by(|left, right| age(&left.metadata).cmp(&age(&right.metadata)));
    }
    sets
}

/// The Gateway that a ListenerSet names; `None` when it names something else.
fn parent(set: &ListenerSet) -> Option<Name<'_>> {
    let parent = &set.spec.parent_ref;
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
        && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
    let namespace = parent.namespace.as_deref().unwrap_or(name_of(&set.metadata).0);
    is_gateway.then_some((namespace, &*parent.name))
}

/// Nobody reports on a ListenerSet whose Gateway does not exist, so it is said here.
fn orphans(objects: &Objects) -> Vec<Warning> {
    let gateways: HashSet<_> = objects.gateways.iter().map(|gateway| name_of(&gateway.metadata)).collect();
    let orphan = |set: &Arc<ListenerSet>| {
        let (namespace, name) = parent(set).filter(|gateway| !gateways.contains(gateway))?;
        Some(Warning {
            subject: format!("ListenerSet/{}/{}", name_of(&set.metadata).0, name_of(&set.metadata).1),
            message: format!(
                "Gateway '{namespace}/{name}' does not exist; create it or name another in spec.parentRef"
            ),
        })
    };
    objects.listener_sets.iter().filter_map(orphan).collect()
}

fn gateway_refusal(gateway: &Gateway) -> Option<OwnerRefusal> {
    let parameters =
        gateway.spec.infrastructure.as_ref().and_then(|infrastructure| infrastructure.parameters_ref.as_ref());
    if parameters.is_some() {
        return Some(OwnerRefusal::InvalidParameters);
    }
    let types = gateway.spec.addresses.iter().flatten().filter_map(|address| address.r#type.as_deref());
    types.into_iter().find(|kind| *kind != "IPAddress").map(|kind| OwnerRefusal::UnsupportedAddress(kind.to_owned()))
}

/// Only what is wrong with the Gateway as a whole counts here: a Gateway's own broken listener must not take down the
/// listeners of others (gateway-api GEP-1713 leaves that open).
fn set_refusal<'a>(gateway: &'a Gateway, set: &'a ListenerSet, index: &Index<'a>) -> Option<OwnerRefusal> {
    let namespaces = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let rule = namespaces.map_or(NamespaceRule::None, NamespaceRule::from);
    if !rule.admits(index, name_of(&gateway.metadata).0, name_of(&set.metadata).0) {
        return Some(OwnerRefusal::NotAllowed(rule.to_string()));
    }
    gateway_refusal(gateway).map(|_| OwnerRefusal::ParentNotAccepted)
}

/// Reads the annotation that limits the route host names of a ListenerSet's listeners. If it cannot be read, these
/// listeners serve no route.
fn read_patterns(set: &ListenerSet, listeners: &mut [Listener<'_>]) -> Vec<Warning> {
    let annotation = set.metadata.annotations.as_ref().and_then(|all| all.get(SNI_PATTERNS_ANNOTATION));
    let Some(annotation) = annotation else { return Vec::new() };
    let patterns = match serde_json::from_str::<BTreeMap<String, String>>(annotation) {
        Ok(patterns) => patterns,
        Err(error) => {
            for listener in listeners {
                listener.sni_pattern = Err(format!("annotation {SNI_PATTERNS_ANNOTATION} cannot be read: {error}"));
            }
            return Vec::new();
        }
    };
    for listener in &mut *listeners {
        if let Some(text) = patterns.get(listener.name) {
            let pattern = SniPattern::parse(text).map(Some);
            listener.sni_pattern =
                pattern.map_err(|error| format!("annotation {SNI_PATTERNS_ANNOTATION} cannot be read: {error}"));
        }
    }
    let unknown = patterns.keys().filter(|name| listeners.iter().all(|listener| listener.name != name.as_str()));
    unknown.map(|name| unknown_pattern(set, name)).collect()
}

fn unknown_pattern(set: &ListenerSet, listener: &str) -> Warning {
    let (namespace, name) = name_of(&set.metadata);
    Warning {
        subject: format!("ListenerSet/{namespace}/{name}"),
        message: format!("annotation {SNI_PATTERNS_ANNOTATION} names listener '{listener}', which does not exist"),
    }
}
