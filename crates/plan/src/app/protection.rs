//! Law 7: what must be protected leads somewhere only while the gateway says that it protects it.

use portreeve_api::SecurityPolicy;
use portreeve_api::envoy_gateway::PolicyAncestorStatus;
use portreeve_api::names::{self, nebari_app as derived};

use super::App;
use crate::condition::{Finding, Reason};
use crate::object::Kind;
use crate::view::View;

/// The fields of a SecurityPolicy by which visitors are told apart; one that only sets CORS, say, keeps nobody out.
const AUTHENTICATION: [&str; 5] = ["oidc", "jwt", "basicAuth", "apiKeyAuth", "extAuth"];

/// How an app's main route is protected.
pub(super) enum Protection {
    /// No policy demands sign-in on the whole of the route.
    Missing,
    /// One does, and the gateway refuses it, or has not said yet that it is in force.
    NotInForce(Finding),
    /// The gateway has accepted one as it is now, for the Gateway of the route.
    InForce,
}

/// How the main route of an app is protected by the policies of its namespace.
pub(super) fn protection(view: &View<'_>, app: &App<'_>) -> Protection {
    let route = derived::http_route(app.name);
    let policies = view.policies_in(app.namespace).iter();
    let demanding = policies.filter(|policy| demands_sign_in(policy) && is_for_the_whole_of(policy, &route));
    let mut waiting = Protection::Missing;
    for policy in demanding {
        match obstacle(policy, app) {
            None => return Protection::InForce,
            Some(why) => waiting = Protection::NotInForce(why),
        }
    }
    waiting
}

/// A token that may be absent keeps nobody out.
fn demands_sign_in(policy: &SecurityPolicy) -> bool {
    AUTHENTICATION.iter().filter_map(|field| policy.spec.other.get(*field)).any(|field| field["optional"] != true)
}

fn is_for_the_whole_of(policy: &SecurityPolicy, route: &str) -> bool {
    policy.spec.targets().any(|target| {
        target.group == names::GATEWAY_API_GROUP
            && target.kind == Kind::HttpRoute.as_str()
            && target.name == route
            && target.section_name.is_none()
    })
}

/// Why a policy is not in force at present. What was said of an earlier form of it says nothing.
fn obstacle(policy: &SecurityPolicy, app: &App<'_>) -> Option<Finding> {
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let generation = policy.metadata.generation.unwrap_or_default();
    let ancestors = policy.status.iter().flat_map(|status| &status.ancestors);
    let accepted = ancestors.filter(|ancestor| is_on_the_way_to(ancestor, policy, app)).filter_map(|ancestor| {
        let accepted = ancestor.conditions.iter().find(|condition| condition.type_ == "Accepted");
        accepted.filter(|accepted| accepted.observed_generation.unwrap_or_default() >= generation)
    });
    let mut is_accepted = false;
    for condition in accepted {
        if condition.status != "True" {
            let message = condition.message.trim_end_matches('.');
            let why = format!("the gateway refuses SecurityPolicy {name}: {} ({message})", condition.reason);
            return Some(Reason::PolicyNotAccepted.because(why));
        }
        is_accepted = true;
    }
    (!is_accepted).then(|| Reason::Pending.because(format!("waiting for the gateway to accept SecurityPolicy {name}")))
}

/// Whether an ancestor is the app's Gateway, or the ListenerSet by which the app adds to it.
fn is_on_the_way_to(ancestor: &PolicyAncestorStatus, policy: &SecurityPolicy, app: &App<'_>) -> bool {
    let found = &ancestor.ancestor_ref;
    let namespace = found.namespace.as_deref().or(policy.metadata.namespace.as_deref()).unwrap_or_default();
    let is = |kind: Kind, its_namespace: &str, name: &str| {
        found.kind.as_deref().unwrap_or(Kind::Gateway.as_str()) == kind.as_str()
            && namespace == its_namespace
            && found.name == name
    };
    is(Kind::Gateway, &app.gateway.namespace, &app.gateway.name)
        || is(Kind::ListenerSet, app.namespace, &derived::listener_set(app.name))
}
