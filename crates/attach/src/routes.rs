//! Which routes attach to which listeners.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gateway_api::httproutes::{HttpRoute, HttpRouteRules};
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portreeve_names::HostPattern;
use portreeve_table::{Login, RouteId};

use crate::backends::{self, Backend};
use crate::http_rules::{HttpRule, Unsupported};
use crate::index::{GATEWAY_GROUP, Index, Name, age, name_of};
use crate::listener::{Listener, RouteKind};
use crate::owners::{Owner, OwnerKind};
use crate::policies::Policies;
use crate::references::{BackendRef, ParentRef};
use crate::{Objects, Warning};

/// A route that names at least one parent that is served here.
pub(crate) struct Route<'a> {
    pub id: RouteId,
    pub kind: RouteKind,
    pub metadata: &'a ObjectMeta,
    /// As the route lists them, empty for every name; or which one cannot be read.
    pub hosts: Result<Vec<HostPattern>, String>,
    pub rules: Vec<Rule<'a>>,
    /// Who gets there; absent: everybody.
    pub login: Option<Arc<Login>>,
    /// One for each parent reference that is ours, in the order of the route.
    pub parents: Vec<Parent<'a>>,
}

/// A rule of a route; for a TLSRoute the part about HTTP says nothing.
pub(crate) struct Rule<'a> {
    pub name: Option<&'a str>,
    pub http: HttpRule,
    pub backends: Vec<Backend<'a>>,
}

/// What became of one parent reference.
pub(crate) struct Parent<'a> {
    pub reference: ParentRef<'a>,
    /// The place of what is named in [`crate::decisions::Decisions::owners`].
    pub owner: usize,
    /// Where the route is attached, never empty; or why it is nowhere.
    pub attachments: Result<Vec<Attachment>, Refusal>,
}

/// A route on a listener.
pub(crate) struct Attachment {
    /// The place of the listener in [`crate::decisions::Decisions::listeners`].
    pub listener: usize,
    /// The names that both have, never empty.
    pub hosts: Vec<HostPattern>,
}

/// Why a route is not accepted by a parent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} is not attached to its Gateway, so it has no listeners")]
    ParentRefused(String),
    #[error("{parent} has no listener{wanted}{others}")]
    NoMatchingParent { parent: String, wanted: String, others: String },
    #[error("{listeners}: no {kind} can be attached there")]
    Kind { kind: &'static str, listeners: String },
    #[error("{listeners}: routes from namespace '{namespace}' are not allowed there{allowed}")]
    Namespace { namespace: String, listeners: String, allowed: String },
    #[error("{route_hosts}: no such name belongs to {listeners}")]
    Hostname { route_hosts: String, listeners: String },
    #[error("{0}")]
    UnreadableHostname(String),
    #[error("{0}")]
    NoRuleLeft(String),
    #[error("{0}; nobody is let in")]
    Unprotectable(String),
}

impl Refusal {
    /// The reason of `Accepted=False`.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::ParentRefused(_) | Self::NoMatchingParent { .. } => "NoMatchingParent",
            Self::Kind { .. } | Self::Namespace { .. } => "NotAllowedByListeners",
            Self::Hostname { .. } => "NoMatchingListenerHostname",
            Self::UnreadableHostname(_) | Self::NoRuleLeft(_) | Self::Unprotectable(_) => "UnsupportedValue",
        }
    }
}

/// Attaches every route, the oldest first, so that among equals the first one wins.
pub(crate) fn attach<'a>(
    objects: &'a Objects,
    index: &Index<'a>,
    owners: &[Owner<'a>],
    listeners: &[Listener<'a>],
    policies: &Policies<'a>,
) -> Vec<Route<'a>> {
    let parents = Parents::new(index, owners, listeners, policies);
    let http = objects.http_routes.iter().map(|route| RouteSpec::from(&**route));
    let tls = objects.tls_routes.iter().map(|route| RouteSpec::from(&**route));
    let mut specs: Vec<_> = http.chain(tls).collect();
    specs.sort_by(|left, right| age(left.metadata).cmp(&age(right.metadata)));
    specs.iter().filter_map(|spec| parents.attach(spec)).collect()
}

/// Nobody reports on a route to a Gateway or ListenerSet that does not exist, so it is said here.
pub(crate) fn orphans(objects: &Objects) -> Vec<Warning> {
    let gateways = objects.gateways.iter().map(|gateway| (OwnerKind::Gateway, name_of(&gateway.metadata)));
    let sets = objects.listener_sets.iter().map(|set| (OwnerKind::ListenerSet, name_of(&set.metadata)));
    let known: HashSet<_> = gateways.chain(sets).collect();
    let http = objects.http_routes.iter().map(|route| RouteSpec::from(&**route));
    let tls = objects.tls_routes.iter().map(|route| RouteSpec::from(&**route));
    http.chain(tls).flat_map(|spec| spec.orphans(&known)).collect()
}

/// What both kinds of route have in common.
struct RouteSpec<'a> {
    kind: RouteKind,
    metadata: &'a ObjectMeta,
    hostnames: &'a [String],
    parents: Vec<ParentRef<'a>>,
    rules: Vec<RuleSpec<'a>>,
}

struct RuleSpec<'a> {
    name: Option<&'a str>,
    http: Option<&'a HttpRouteRules>,
    backends: Vec<BackendRef<'a>>,
}

impl<'a> From<&'a HttpRoute> for RouteSpec<'a> {
    fn from(route: &'a HttpRoute) -> Self {
        let rule = |rule: &'a HttpRouteRules| RuleSpec {
            name: rule.name.as_deref(),
            http: Some(rule),
            backends: rule.backend_refs.iter().flatten().map(BackendRef::from).collect(),
        };
        let nothing = || vec![RuleSpec { name: None, http: None, backends: Vec::new() }];
        Self {
            kind: RouteKind::Http,
            metadata: &route.metadata,
            hostnames: route.spec.hostnames.as_deref().unwrap_or_default(),
            parents: route.spec.parent_refs.iter().flatten().map(ParentRef::from).collect(),
            rules: match route.spec.rules.as_deref() {
                None | Some([]) => nothing(),
                Some(rules) => rules.iter().map(rule).collect(),
            },
        }
    }
}

impl<'a> From<&'a TlsRoute> for RouteSpec<'a> {
    fn from(route: &'a TlsRoute) -> Self {
        let rules = route.spec.rules.iter().map(|rule| RuleSpec {
            name: rule.name.as_deref(),
            http: None,
            backends: rule.backend_refs.iter().map(BackendRef::from).collect(),
        });
        Self {
            kind: RouteKind::Tls,
            metadata: &route.metadata,
            hostnames: &route.spec.hostnames,
            parents: route.spec.parent_refs.iter().flatten().map(ParentRef::from).collect(),
            rules: rules.collect(),
        }
    }
}

impl<'a> RouteSpec<'a> {
    fn hosts(&self) -> Result<Vec<HostPattern>, String> {
        self.hostnames.iter().map(|name| HostPattern::parse(name).map_err(|error| error.to_string())).collect()
    }

    fn rules(&self, index: &Index<'a>) -> Vec<Rule<'a>> {
        let namespace = name_of(self.metadata).0;
        let backend = |reference: &BackendRef<'a>| backends::resolve(index, self.kind, namespace, *reference);
        let rule = |rule: &RuleSpec<'a>| Rule {
            name: rule.name,
            http: rule.http.map(HttpRule::from).unwrap_or_default(),
            backends: rule.backends.iter().map(backend).collect(),
        };
        self.rules.iter().map(rule).collect()
    }

    fn orphans(&self, known: &HashSet<(OwnerKind, Name<'_>)>) -> Vec<Warning> {
        let (namespace, name) = name_of(self.metadata);
        let missing = self
            .parents
            .iter()
            .filter(|reference| owner_key(reference.within(namespace)).is_some_and(|key| !known.contains(&key)));
        missing
            .map(|reference| Warning {
                subject: format!("{}/{namespace}/{name}", self.kind.as_str()),
                message: format!("{} does not exist; create it or name another parent", reference.within(namespace)),
            })
            .collect()
    }
}

/// What a reference names, if it can have listeners.
fn owner_key(reference: ParentRef<'_>) -> Option<(OwnerKind, Name<'_>)> {
    let kind = match (reference.group, reference.kind) {
        (GATEWAY_GROUP, "Gateway") => OwnerKind::Gateway,
        (GATEWAY_GROUP, "ListenerSet") => OwnerKind::ListenerSet,
        _ => return None,
    };
    Some((kind, (reference.namespace?, reference.name)))
}

/// What routes can be attached to.
struct Parents<'r, 'a> {
    index: &'r Index<'a>,
    owners: &'r [Owner<'a>],
    listeners: &'r [Listener<'a>],
    policies: &'r Policies<'a>,
    places: HashMap<(OwnerKind, Name<'a>), usize>,
}

impl<'r, 'a> Parents<'r, 'a> {
    fn new(
        index: &'r Index<'a>,
        owners: &'r [Owner<'a>],
        listeners: &'r [Listener<'a>],
        policies: &'r Policies<'a>,
    ) -> Self {
        let places = owners.iter().enumerate().map(|(place, owner)| ((owner.kind(), owner.name()), place)).collect();
        Self { index, owners, listeners, policies, places }
    }

    /// `None` when no parent is ours.
    fn attach(&self, spec: &RouteSpec<'a>) -> Option<Route<'a>> {
        let namespace = name_of(spec.metadata).0;
        let place = |reference: &ParentRef<'a>| self.places.get(&owner_key(reference.within(namespace))?).copied();
        let mut seen = HashSet::new();
        let once = spec.parents.iter().filter(|reference| seen.insert(reference.within(namespace)));
        let ours: Vec<_> = once.filter_map(|reference| Some((*reference, place(reference)?))).collect();
        if ours.is_empty() {
            return None;
        }
        let (hosts, rules) = (spec.hosts(), spec.rules(self.index));
        let parents = ours.into_iter().map(|(reference, owner)| {
            let attachments = self.judge(spec, &hosts, &rules, reference, owner);
            Parent { reference, owner, attachments }
        });
        let parents = parents.collect();
        let (namespace, name) = name_of(spec.metadata);
        let id = RouteId(Arc::from(format!("{}/{namespace}/{name}", spec.kind.as_str())));
        let login = self.policies.login((namespace, name)).filter(|_| spec.kind == RouteKind::Http);
        Some(Route { id, kind: spec.kind, metadata: spec.metadata, hosts, rules, login, parents })
    }

    /// The tests in the order in which their reasons take precedence.
    fn judge(
        &self,
        route: &RouteSpec<'a>,
        hosts: &Result<Vec<HostPattern>, String>,
        rules: &[Rule<'a>],
        reference: ParentRef<'a>,
        owner: usize,
    ) -> Result<Vec<Attachment>, Refusal> {
        let named = self.named(route, reference, owner)?;
        let allowing = self.allowing(route, reference, &named)?;
        let hosts = hosts.as_ref().map_err(|error| Refusal::UnreadableHostname(error.clone()))?;
        let attachments = self.sharing_names(hosts, &allowing)?;
        if let Some(problem) = no_rule_left(rules) {
            return Err(Refusal::NoRuleLeft(problem));
        }
        if route.kind == RouteKind::Http {
            self.policies.check(name_of(route.metadata), &self.owners[owner]).map_err(Refusal::Unprotectable)?;
        }
        Ok(attachments)
    }

    /// The listeners that the reference means.
    fn named(&self, route: &RouteSpec<'a>, reference: ParentRef<'a>, owner: usize) -> Result<Vec<usize>, Refusal> {
        let parent = &self.owners[owner];
        let parent_name = reference.within(parent.name().0).to_string();
        if parent.kind() == OwnerKind::ListenerSet && parent.refusal.is_some() {
            return Err(Refusal::ParentRefused(parent_name));
        }
        let is_meant = |place: &usize| {
            let listener = &self.listeners[*place];
            reference.section.is_none_or(|section| section == listener.name)
                && reference.port.is_none_or(|port| port == i32::from(listener.port))
        };
        let named: Vec<_> = parent.listeners.clone().filter(is_meant).collect();
        if named.is_empty() {
            let section = reference.section.map(|section| format!(" '{section}'")).unwrap_or_default();
            let port = reference.port.map(|port| format!(" on port {port}")).unwrap_or_default();
            let open: Vec<_> = parent.listeners.clone().filter(|place| self.admits(route, *place)).collect();
            let others = if open.is_empty() { String::new() } else { format!(", only {}", self.names(&open)) };
            return Err(Refusal::NoMatchingParent { parent: parent_name, wanted: section + &port, others });
        }
        Ok(named)
    }

    /// Those of them that take this kind of route from this namespace.
    ///
    /// A listener that is closed to the route's namespace may be another tenant's: what it is called and who may use it
    /// is told only to who has named it.
    fn allowing(
        &self,
        route: &RouteSpec<'a>,
        reference: ParentRef<'a>,
        named: &[usize],
    ) -> Result<Vec<usize>, Refusal> {
        let takes_kind = |place: &usize| self.listeners[*place].kinds.contains(&route.kind);
        let of_kind: Vec<_> = named.iter().copied().filter(takes_kind).collect();
        let is_told = |place: &usize| reference.section.is_some() || self.admits(route, *place);
        if of_kind.is_empty() {
            let told: Vec<_> = named.iter().copied().filter(is_told).collect();
            return Err(Refusal::Kind { kind: route.kind.as_str(), listeners: self.names(&told) });
        }
        let allowing: Vec<_> = of_kind.iter().copied().filter(|place| self.admits(route, *place)).collect();
        if allowing.is_empty() {
            let allowed = reference.section.map(|_| format!(", only from {}", self.listeners[of_kind[0]].routes_from));
            return Err(Refusal::Namespace {
                namespace: name_of(route.metadata).0.to_owned(),
                listeners: self.names(if reference.section.is_some() { &of_kind } else { &[] }),
                allowed: allowed.unwrap_or_default(),
            });
        }
        Ok(allowing)
    }

    /// Whether a listener admits routes of this one's namespace.
    fn admits(&self, route: &RouteSpec<'a>, place: usize) -> bool {
        let listener = &self.listeners[place];
        let namespace = name_of(route.metadata).0;
        listener.routes_from.admits(self.index, self.owners[listener.owner].name().0, namespace)
    }

    /// Those of them that have host names in common with the route.
    fn sharing_names(&self, hosts: &[HostPattern], allowing: &[usize]) -> Result<Vec<Attachment>, Refusal> {
        let any = [HostPattern::Any];
        let route_hosts = if hosts.is_empty() { &any } else { hosts };
        let attach = |place: &usize| {
            let listener = &self.listeners[*place];
            let hosts: Vec<_> = route_hosts.iter().filter_map(|hosts| listener.common_names(hosts)).collect();
            (!hosts.is_empty()).then_some(Attachment { listener: *place, hosts })
        };
        let attachments: Vec<_> = allowing.iter().filter_map(attach).collect();
        if attachments.is_empty() {
            let route_hosts = few(route_hosts.iter().map(|hosts| format!("'{hosts}'")), ", ");
            return Err(Refusal::Hostname { route_hosts, listeners: self.names_with_hosts(allowing) });
        }
        Ok(attachments)
    }

    fn names(&self, places: &[usize]) -> String {
        let names = few(places.iter().map(|place| format!("'{}'", self.listeners[*place].name)), ", ");
        match places.len() {
            0 => "every listener".to_owned(),
            1 => format!("listener {names}"),
            _ => format!("listeners {names}"),
        }
    }

    fn names_with_hosts(&self, places: &[usize]) -> String {
        let name = |place: &usize| {
            let listener = &self.listeners[*place];
            match &listener.sni_pattern {
                Ok(None) => format!("listener '{}' for '{}'", listener.name, listener.hosts),
                Ok(Some(pattern)) => format!("listener '{}', which is limited to '{pattern}'", listener.name),
                Err(problem) => format!("listener '{}', as its {problem}", listener.name),
            }
        };
        few(places.iter().map(name), ", ")
    }
}

/// The first few of many, so that a message stays one.
pub(crate) fn few(items: impl ExactSizeIterator<Item = String>, separator: &str) -> String {
    const FEW: usize = 4;
    let end = if items.len() > FEW { " and more" } else { "" };
    items.take(FEW).collect::<Vec<_>>().join(separator) + end
}

/// Why none of the rules can be served, if so.
fn no_rule_left(rules: &[Rule<'_>]) -> Option<String> {
    let problems: Vec<_> = rules.iter().map(|rule| rule.http.unsupported.as_ref()).collect::<Option<_>>()?;
    problems.first().map(|problem: &&Unsupported| format!("no rule is left: {problem}"))
}
