//! Moving a tenant to another apps Gateway while its apps stay reachable.
//!
//! Somebody asks for it with the annotation [`labels::MOVE_TO`]. Then, each step once the one before is done:
//!
//! 1. the tenant's listener is on both Gateways;
//! 2. copies of the routes that its virtual cluster has synced attach to both, and then come before them;
//! 3. its DNS record leads to the new Gateway, and whoever may have the old one has forgotten it;
//! 4. the virtual cluster is shown the new Gateway (`status.appsGateway`), and its routes follow;
//! 5. the copies come after them again, the listener goes from the old Gateway, and the copies go.
//!
//! Copies come first while the originals change because Envoy Gateway makes a cluster for each rule of a route. An Envoy
//! is told of clusters that go before the routes that lead elsewhere, and of routes before it has warmed their clusters: a
//! request in between is answered 503. So no request may be led to a route that is new or about to go, and whatever
//! changes which route comes first is known to all Envoys before anything comes or goes.
//!
//! Every step is read off what is there, so that nothing is lost when the controller restarts; a request that is taken
//! back is a move home, with the same care.

use gateway_api::httproutes::{HttpRoute, HttpRouteParentRefs};
use jiff::{SignedDuration, Timestamp};
use portreeve_api::names::{GATEWAY_API_GROUP, labels, tenant as derived};
use portreeve_names::HostPattern;
use serde_json::{Value, json};

use super::Tenant;
use super::dns::{self, Published};
use super::shards::Shards;
use crate::acknowledgement::{Parent, gateway_entry, http_route_statuses, listener, route};
use crate::claim::{GatewayName, OwnerKind};
use crate::condition::{Finding, Reason};
use crate::object::{Kind, Live, Maker};
use crate::tenancy::{Placement, TenantApps};
use crate::view::View;

/// A tenant between two Gateways.
pub(crate) struct Move {
    /// The Gateway beside its home.
    pub(crate) other: GatewayName,
    /// How far it is.
    pub(crate) progress: Finding,
    /// Where DNS is to lead.
    pub(super) dns: GatewayName,
    /// Whether its virtual cluster is to be shown the other one now.
    pub(super) arrives: bool,
    /// What becomes of the copies of its routes.
    pub(super) copies: Copies,
    /// When to look again.
    pub(super) wake_at: Option<Timestamp>,
}

/// How copies of routes stand to their originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// They are to come before them as soon as they are known.
    ComeFirst,
    /// Those that come first still do: the originals are changing.
    Stay,
    /// They are to come after them, so that they can go.
    ComeLast,
}

/// Where a tenant is on its way to, or from; why it is not moved, if that was asked for and cannot be.
pub(super) fn of(
    view: &View<'_>,
    tenant: &Tenant<'_>,
    home: &GatewayName,
    shards: &Shards<'_>,
    apps: &TenantApps,
) -> Result<Option<Move>, Finding> {
    let wish = tenant.source.metadata.annotations.as_ref().and_then(|all| all.get(labels::MOVE_TO));
    let wish = wish.map(String::as_str).filter(|wish| !wish.is_empty() && *wish != &*home.name);
    let blocked = |why: String| Reason::MoveBlocked.because(why);
    let former = || shards.with_entry_of(tenant.name).find(|name| *name != home).cloned();
    let Some(wish) = wish else {
        return Ok(former().and_then(|other| Passage { view, tenant, home, other: &other, apps }.away()));
    };
    if apps.placement == Placement::ListenerSet {
        return Err(blocked("with a ListenerSet for each tenant, none is moved".to_owned()));
    }
    let target = shards.target(apps, wish).map_err(blocked)?;
    let is_there = shards.with_entry_of(tenant.name).any(|name| *name == target);
    if !is_there && !shards.has_room(&target) {
        return Err(blocked(format!("Gateway {target} is full")));
    }
    let passage = Passage { view, tenant, home, other: &target, apps };
    if !passage.shares_addresses() && !view.world.served.dns_endpoints {
        let why = Kind::DnsEndpoint.unserved(&view.world.served).unwrap_or_default();
        return Err(blocked(format!("Gateway {target} has other addresses, and DNS cannot follow: {why}")));
    }
    Ok(Some(passage.towards()))
}

/// The name of the copy of a route.
pub(super) fn copy_name(route: &HttpRoute) -> String {
    derived::moving_route(route.metadata.name.as_deref().unwrap_or_default())
}

/// `spec` of the copy of a route that is to be on both Gateways, before its original or after it; absent where none of its
/// names is the tenant's.
pub(super) fn copy(
    route: &HttpRoute,
    tenant: &str,
    apps: &TenantApps,
    gateways: [&GatewayName; 2],
    comes_first: bool,
) -> Option<Value> {
    let own = HostPattern::parse(&derived::apps_domain(tenant, &apps.domain)).ok()?;
    let names = route.spec.hostnames.as_deref().unwrap_or_default();
    let is_own = |name: &&String| HostPattern::parse(name).is_ok_and(|name| own.covers(&name));
    let kept: Vec<&String> = names.iter().filter(is_own).collect();
    if kept.is_empty() && !names.is_empty() {
        return None;
    }
    let mut parents: Vec<Value> = Vec::new();
    for parent in parents_on(route, &gateways) {
        for gateway in gateways {
            let mut reference = json!({
                "group": GATEWAY_API_GROUP, "kind": "Gateway",
                "namespace": &*gateway.namespace, "name": &*gateway.name,
            });
            if let Some(section) = &parent.section_name {
                reference["sectionName"] = section.as_str().into();
            }
            if !parents.contains(&reference) {
                parents.push(reference);
            }
        }
    }
    let mut spec = serde_json::to_value(&route.spec).ok()?;
    spec["parentRefs"] = parents.into();
    if !kept.is_empty() {
        spec["hostnames"] = json!(kept);
    }
    if comes_first {
        put_first(&mut spec);
    }
    Some(spec)
}

/// A header that every request has: of two matches of the same path, that with more headers comes first. It is put to every
/// match, so among themselves they stay in order.
fn any_host() -> Value {
    json!({ "type": "RegularExpression", "name": "host", "value": ".+" })
}

/// The most headers that a match may have.
const MAX_HEADERS: usize = 16;

fn put_first(spec: &mut Value) {
    for rule in spec["rules"].as_array_mut().into_iter().flatten() {
        if rule["matches"].as_array().is_none_or(Vec::is_empty) {
            rule["matches"] = json!([{ "path": { "type": "PathPrefix", "value": "/" } }]);
        }
        for one in rule["matches"].as_array_mut().into_iter().flatten() {
            let mut headers = one["headers"].as_array().cloned().unwrap_or_default();
            let is_taken =
                headers.iter().any(|header| header["name"].as_str().unwrap_or_default().eq_ignore_ascii_case("host"));
            if !is_taken && headers.len() < MAX_HEADERS {
                headers.push(any_host());
                one["headers"] = headers.into();
            }
        }
    }
}

fn is_first(copy: &HttpRoute) -> bool {
    let spec = serde_json::to_value(&copy.spec).unwrap_or_default();
    let rules = spec["rules"].as_array().into_iter().flatten();
    let matches = rules.flat_map(|rule| rule["matches"].as_array().into_iter().flatten());
    let mut headers = matches.flat_map(|one| one["headers"].as_array().into_iter().flatten());
    headers.any(|header| *header == any_host())
}

/// Whether a copy is to come before its original now. Others than Envoys need it not, and may not know how.
pub(super) fn comes_first(
    view: &View<'_>,
    copies: Copies,
    copy: Option<&HttpRoute>,
    gateways: [&GatewayName; 2],
) -> bool {
    let Some(copy) = copy else { return false };
    let is_known = || known_to_envoys(copy, &gateways).is_some_and(|since| since + TAKEN_IN <= view.now);
    match copies {
        Copies::ComeFirst => is_first(copy) || is_known(),
        Copies::Stay => is_first(copy),
        Copies::ComeLast => false,
    }
}

/// Since when Envoy Gateway has accepted the route on all of these; absent while it has not.
fn known_to_envoys(route: &HttpRoute, gateways: &[&GatewayName]) -> Option<Timestamp> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    let generation = route.metadata.generation.unwrap_or_default();
    let since = gateways.iter().map(|gateway| {
        let statuses = route.status.iter().flat_map(|status| &status.parents).filter(|status| {
            let parent = &status.parent_ref;
            *gateway.name == *parent.name
                && *gateway.namespace == *parent.namespace.as_deref().unwrap_or(namespace)
                && status.controller_name == ENVOY_GATEWAY
        });
        let accepted = statuses.flat_map(|status| &status.conditions).filter(|one| {
            one.type_ == "Accepted" && one.status == "True" && one.observed_generation == Some(generation)
        });
        accepted.map(|one| one.last_transition_time.0).max()
    });
    since.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// How long an Envoy may take to know what Envoy Gateway has accepted.
const TAKEN_IN: SignedDuration = SignedDuration::from_secs(5);

/// The controller of Envoy Gateway, as it signs statuses.
const ENVOY_GATEWAY: &str = "gateway.envoyproxy.io/gatewayclass-controller";

/// The routes of a tenant on any of these Gateways that Portreeve did not make.
pub(super) fn routes_on<'a>(view: &View<'a>, namespace: &str, gateways: &[&GatewayName]) -> Vec<&'a HttpRoute> {
    let is_copy = |route: &HttpRoute| matches!(Live::HttpRoute(route).maker(), Maker::Uid(OwnerKind::Tenant, _));
    let routes = view.http_routes_in(namespace).iter().copied();
    routes.filter(|route| !is_copy(route) && parents_on(route, gateways).next().is_some()).collect()
}

fn parents_on<'r>(route: &'r HttpRoute, gateways: &'r [&GatewayName]) -> impl Iterator<Item = &'r HttpRouteParentRefs> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    route.spec.parent_refs.iter().flatten().filter(move |parent| {
        let is_gateway = parent.kind.as_deref().is_none_or(|kind| kind == Kind::Gateway.as_str());
        let there = parent.namespace.as_deref().unwrap_or(namespace);
        is_gateway && gateways.iter().any(|gateway| *gateway.namespace == *there && *gateway.name == *parent.name)
    })
}

struct Passage<'p, 'a> {
    view: &'p View<'a>,
    tenant: &'p Tenant<'a>,
    home: &'p GatewayName,
    other: &'p GatewayName,
    apps: &'p TenantApps,
}

impl Passage<'_, '_> {
    fn towards(&self) -> Move {
        Move { copies: Copies::ComeFirst, ..self.under_way() }
    }

    /// Steps 1 to 3, and the word for the 4th.
    fn under_way(&self) -> Move {
        let addresses = dns::addresses(self.view, self.other);
        let switched = dns::is_switched(self.view, self.apps, self.tenant.name, &addresses);
        let gateways = [self.home, self.other];
        let waiting = self.listener().or_else(|| self.copies());
        if let Some(why) = waiting {
            let dns = if switched { self.other } else { self.home };
            let wake_at = self.taken_in(self.copies_of(&gateways), &gateways);
            return Move { wake_at, ..self.at(Reason::MovePreparing, why, dns) };
        }
        let to = self.other;
        if self.shares_addresses() {
            return Move { arrives: true, ..self.at(Reason::MoveFollowing, self.followers(), to) };
        }
        match dns::published(self.view, self.apps, self.tenant.name, &addresses) {
            Published::NotYet | Published::Now => self.at(Reason::MoveAwaitingDns, Self::dns_record(to), to),
            Published::Until(at) => {
                Move { wake_at: Some(at), ..self.at(Reason::MoveAwaitingTtl, Self::resolvers(), to) }
            }
            Published::Everywhere => Move { arrives: true, ..self.at(Reason::MoveFollowing, self.followers(), to) },
        }
    }

    /// Steps 4 and 5, away from the other Gateway; nothing when it is over.
    fn away(&self) -> Option<Move> {
        let home = self.home;
        let following =
            |copies, wake_at| Some(Move { copies, wake_at, ..self.at(Reason::MoveFollowing, self.followers(), home) });
        if !routes_on(self.view, &self.tenant.namespace, &[self.other]).is_empty() || !self.has_answers() {
            return following(Copies::Stay, None);
        }
        let come_first = self.copies_of(&[home]).any(is_first);
        let originals = routes_on(self.view, &self.tenant.namespace, &[home]).into_iter();
        if let Some(at) = self.taken_in(originals, &[home]).filter(|_| come_first) {
            return following(Copies::Stay, Some(at));
        }
        if come_first || self.copies_of(&[home]).any(|copy| Self::is_unanswered(Some(copy), home)) {
            return following(Copies::ComeLast, None);
        }
        if let Some(at) = self.taken_in(self.copies_of(&[home]), &[home]) {
            return following(Copies::ComeLast, Some(at));
        }
        if self.shares_addresses() || !self.view.world.served.dns_endpoints {
            return None;
        }
        let addresses = dns::addresses(self.view, home);
        match dns::published(self.view, self.apps, self.tenant.name, &addresses) {
            Published::NotYet | Published::Now => Some(self.at(Reason::MoveAwaitingDns, Self::dns_record(home), home)),
            Published::Until(at) => {
                Some(Move { wake_at: Some(at), ..self.at(Reason::MoveAwaitingTtl, Self::resolvers(), home) })
            }
            Published::Everywhere => None,
        }
    }

    fn at(&self, step: Reason, why: String, dns: &GatewayName) -> Move {
        Move {
            other: self.other.clone(),
            progress: step.because(why),
            dns: dns.clone(),
            arrives: false,
            copies: Copies::ComeLast,
            wake_at: None,
        }
    }

    fn shares_addresses(&self) -> bool {
        let [home, other] = [self.home, self.other].map(|gateway| dns::addresses(self.view, gateway));
        !home.is_empty() && home == other
    }

    /// What the listener on the other Gateway waits for.
    fn listener(&self) -> Option<String> {
        let section = derived::apps_listener(self.tenant.name);
        if let Some(why) = self.view.world.rejected_entries.get(&(self.other.clone(), section.clone())) {
            return Some(format!("the API server refuses listener {section} on Gateway {}: {why}", self.other));
        }
        let gateway = self.view.gateway(self.other)?;
        let since = gateway.object.metadata.generation.unwrap_or_default();
        let is_there = gateway.section(&section).is_some();
        let waiting = listener(gateway_entry(gateway, &section).filter(|_| is_there), &section, since);
        waiting.map(|finding| format!("Gateway {}: {}", self.other, finding.message))
    }

    /// What the copies of the routes wait for. One that its virtual cluster has got wrong is waited for no longer than
    /// the gateway needs to say so.
    fn copies(&self) -> Option<String> {
        let gateways = [self.home, self.other];
        let waits = routes_on(self.view, &self.tenant.namespace, &gateways).into_iter().find(|original| {
            let found = self.view.http_route(&self.tenant.namespace, &copy_name(original));
            let [last, first] = [false, true].map(|first| copy(original, self.tenant.name, self.apps, gateways, first));
            let is_between = found.is_some_and(|copy| match known_to_envoys(copy, &gateways) {
                Some(since) => since + TAKEN_IN > self.view.now || !is_first(copy) && first != last,
                None => is_first(copy) && Self::is_unanswered(Some(copy), self.home),
            });
            last.is_some() && (is_between || Self::is_unanswered(found, self.other))
        })?;
        let name = waits.metadata.name.as_deref().unwrap_or_default();
        Some(format!("waiting for Gateway {} to accept a copy of HTTPRoute {name}", self.other))
    }

    /// When the last of these routes is taken to be known to all Envoys, if that is still to come.
    fn taken_in<'r>(
        &self,
        routes: impl Iterator<Item = &'r HttpRoute>,
        gateways: &[&GatewayName],
    ) -> Option<Timestamp> {
        let known = routes.filter_map(|route| Some(known_to_envoys(route, gateways)? + TAKEN_IN));
        known.max().filter(|at| *at > self.view.now)
    }

    /// The copies that there are of the tenant's routes on these.
    fn copies_of(&self, gateways: &[&GatewayName]) -> impl Iterator<Item = &HttpRoute> {
        let originals = routes_on(self.view, &self.tenant.namespace, gateways).into_iter();
        originals.filter_map(|original| self.view.http_route(&self.tenant.namespace, &copy_name(original)))
    }

    /// Whether the home has answered for every route that names it.
    fn has_answers(&self) -> bool {
        let routes = routes_on(self.view, &self.tenant.namespace, &[self.home]);
        !routes.into_iter().any(|route| Self::is_unanswered(Some(route), self.home))
    }

    fn is_unanswered(found: Option<&HttpRoute>, gateway: &GatewayName) -> bool {
        let Some(found) = found else { return true };
        let parents: Vec<Parent> = parents_on(found, &[gateway])
            .map(|parent| Parent {
                kind: Kind::Gateway.as_str(),
                namespace: gateway.namespace.to_string(),
                name: gateway.name.to_string(),
                section: parent.section_name.clone(),
            })
            .collect();
        let generation = found.metadata.generation.unwrap_or_default();
        let finding = route(&http_route_statuses(found), &parents, generation);
        parents.is_empty() || finding.is_some_and(|finding| finding.reason == Reason::Pending)
    }

    fn followers(&self) -> String {
        format!("waiting for the virtual cluster's routes to follow from or to Gateway {}", self.other)
    }

    fn dns_record(to: &GatewayName) -> String {
        format!("waiting for external-dns to publish the addresses of Gateway {to}")
    }

    fn resolvers() -> String {
        "waiting until no resolver has the former DNS record any more".to_owned()
    }
}
