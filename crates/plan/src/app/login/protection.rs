//! Law 7: whether a policy is in force on a route.

use gateway_api::httproutes::HttpRoute;
use jiff::SignedDuration;
use portreeve_api::SecurityPolicy;
use portreeve_api::conditions;
use portreeve_api::envoy_gateway::PolicyAncestorStatus;
use portreeve_api::names::{self, nebari_app as derived};

use crate::acknowledgement::{Parent, http_route_statuses, route};
use crate::app::App;
use crate::condition::{Finding, Reason};
use crate::login::Login;
use crate::object::{Kind, Live};
use crate::settled::Alarm;
use crate::view::View;

/// How long Envoy may wait for a provider's keys before it takes new filters into use (Envoy Gateway's timeout).
const WARMING: SignedDuration = SignedDuration::from_secs(10);

/// Why the main route of an app may not lead anywhere yet; `None` when it may.
///
/// A route opens at a parent only when that parent has accepted the policy as it is wanted, and when no connection is
/// left that is older. Where it is open it stays so while the gateway holds a policy that demands sign-in: the gateway
/// goes from one form of a policy to the next at once, so a change of it need not interrupt anybody. `generation` is the
/// one that the policy has once it is as wanted.
pub(super) fn closed(
    view: &View<'_>,
    app: &App<'_>,
    login: &Login,
    generation: i64,
    parents: &[Parent],
    alarm: &mut Alarm,
) -> Option<Finding> {
    let Some(policy) = own_policy(view, app).filter(|policy| policy.metadata.deletion_timestamp.is_none()) else {
        return Some(not_accepted());
    };
    if !demands_sign_in(policy, app) {
        return Some(not_accepted());
    }
    for parent in parents {
        let is_open = leads_from(view, app, parent);
        let found = policy.status.iter().flat_map(|status| &status.ancestors);
        let accepted = found
            .filter(|ancestor| is_of(ancestor, policy, parent))
            .flat_map(|ancestor| &ancestor.conditions)
            .find(|condition| condition.type_ == "Accepted");
        let Some(accepted) = accepted else { return Some(not_accepted()) };
        let is_current = accepted.observed_generation.unwrap_or_default() >= generation;
        if accepted.status != "True" && is_current {
            let message = accepted.message.trim_end_matches('.');
            return Some(
                Reason::SecurityPolicyFailed
                    .because(format!("the gateway refuses the SecurityPolicy: {} ({message})", accepted.reason)),
            );
        }
        if accepted.status != "True" || !is_current && !is_open {
            return Some(not_accepted());
        }
        if is_open {
            continue;
        }
        let warms = policy.spec.other.contains_key("jwt") && !login.embedded;
        let warming = if warms { WARMING } else { SignedDuration::ZERO };
        let drained = accepted.last_transition_time.0 + warming + login.drain;
        if drained > view.world.now {
            alarm.set(drained);
            return Some(
                Reason::Pending.because("waiting until connections have ended that are older than the SecurityPolicy"),
            );
        }
    }
    None
}

/// One text from the moment in which the policy is wanted, so that its being written is no news.
fn not_accepted() -> Finding {
    Reason::Pending.because("waiting for the gateway to accept the SecurityPolicy")
}

/// Whether a policy that is being deleted may go: it keeps visitors out of a route of an app that asks for it until the
/// gateway has taken in that the route leads nowhere.
pub(crate) fn may_go(view: &View<'_>, app: &App<'_>) -> bool {
    let is_closed = |name: String| {
        let Some(live) = view.http_route(app.namespace, &name).filter(|live| is_made_for(live, app)) else {
            return true;
        };
        let parents: Vec<Parent> = parents_of(live).collect();
        let pending = route(&http_route_statuses(live), &parents, live.metadata.generation.unwrap_or_default());
        !has_backends(live) && pending.is_none_or(|finding| finding.reason != Reason::Pending)
    };
    is_closed(derived::http_route(app.name)) && is_closed(derived::public_http_route(app.name))
}

/// The policy that was made for the app.
pub(super) fn own_policy<'a>(view: &View<'a>, app: &App<'_>) -> Option<&'a SecurityPolicy> {
    let found = view.security_policy(app.namespace, &derived::security_policy(app.name))?;
    Live::SecurityPolicy(found).maker().is(app.identity()).then_some(found)
}

/// Whether sign-in is being switched on: the status knows the app without it, or has said since that it is on its way and
/// has not been in force yet. Nothing else counts, since a policy that was in force may be gone by now.
pub(super) fn is_switched_on(view: &View<'_>, app: &App<'_>) -> bool {
    let Some(status) = app.status() else { return false };
    let was_off = status.conditions.iter().any(|condition| {
        condition.type_ == conditions::AUTH_READY && condition.reason == Reason::AuthDisabled.as_str()
    });
    let is_going = own_policy(view, app).is_some_and(|policy| policy.metadata.deletion_timestamp.is_some());
    (was_off || status.auth_switching_on) && !is_going
}

/// Whether the app's main route leads to the app now.
pub(super) fn leads_somewhere(view: &View<'_>, app: &App<'_>) -> bool {
    open_route(view, app).is_some()
}

/// Whether it does so from this parent.
fn leads_from(view: &View<'_>, app: &App<'_>, parent: &Parent) -> bool {
    let is_it = |found: Parent| {
        let is_there = (found.kind, &found.namespace, &found.name) == (parent.kind, &parent.namespace, &parent.name);
        // One that names no listener means all of them.
        is_there && (found.section.is_none() || found.section == parent.section)
    };
    open_route(view, app).is_some_and(|live| parents_of(live).any(is_it))
}

fn open_route<'a>(view: &View<'a>, app: &App<'_>) -> Option<&'a HttpRoute> {
    let live = view.http_route(app.namespace, &derived::http_route(app.name))?;
    (is_made_for(live, app) && has_backends(live)).then_some(live)
}

fn parents_of(route: &HttpRoute) -> impl Iterator<Item = Parent> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    route.spec.parent_refs.iter().flatten().map(move |parent| Parent {
        kind: if parent.kind.as_deref() == Some(Kind::ListenerSet.as_str()) {
            Kind::ListenerSet.as_str()
        } else {
            Kind::Gateway.as_str()
        },
        namespace: parent.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
        name: parent.name.clone(),
        section: parent.section_name.clone(),
    })
}

fn is_made_for(live: &HttpRoute, app: &App<'_>) -> bool {
    Live::HttpRoute(live).maker().is(app.identity())
}

fn has_backends(live: &HttpRoute) -> bool {
    live.spec.rules.iter().flatten().any(|rule| rule.backend_refs.iter().flatten().next().is_some())
}

/// Whether a policy demands sign-in on the whole of the app's main route.
fn demands_sign_in(policy: &SecurityPolicy, app: &App<'_>) -> bool {
    let route = derived::http_route(app.name);
    policy.spec.other.contains_key("oidc")
        && policy.spec.targets().any(|target| {
            target.group == names::GATEWAY_API_GROUP
                && target.kind == Kind::HttpRoute.as_str()
                && target.name == route
                && target.section_name.is_none()
        })
}

fn is_of(ancestor: &PolicyAncestorStatus, policy: &SecurityPolicy, parent: &Parent) -> bool {
    let found = &ancestor.ancestor_ref;
    let namespace = found.namespace.as_deref().or(policy.metadata.namespace.as_deref()).unwrap_or_default();
    found.kind.as_deref().unwrap_or(Kind::Gateway.as_str()) == parent.kind
        && namespace == parent.namespace
        && found.name == parent.name
        // One that names no listener means all of them.
        && (found.section_name.is_none() || found.section_name == parent.section)
}
