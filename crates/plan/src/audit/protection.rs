//! Law 7, read from the objects.

use portreeve_api::envoy_gateway::PolicyAncestorStatus;
use portreeve_api::names::{GATEWAY_API_GROUP, nebari_app as derived};
use portreeve_api::{NebariApp, SecurityPolicy, conditions};
use serde_json::Value;

use super::{Audit, Fault};
use crate::contains::contains;
use crate::object::{Key, Kind};
use crate::output::ObjectRef;

impl Audit<'_> {
    /// An app that demands sign-in at the gateway has routes that lead somewhere only from parents that have accepted a
    /// policy; it has a public route only beside its main one.
    pub(super) fn protection(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for app in &self.view.world.apps {
            let (namespace, name) = (
                app.metadata.namespace.as_deref().unwrap_or_default(),
                app.metadata.name.as_deref().unwrap_or_default(),
            );
            let auth = app.spec.auth.as_ref().filter(|auth| auth.enabled);
            let is_guarded = auth.is_some_and(|auth| auth.enforce_at_gateway);
            let route = |name: String| {
                let route = Key::new(Kind::HttpRoute, namespace, name).object_ref("");
                let uid = app.metadata.uid.as_deref();
                let is_own = |body: &&Value| body["metadata"]["ownerReferences"][0]["uid"].as_str() == uid;
                // Of one that is being deleted no plan could ask for more.
                let stays = |body: &&Value| body["metadata"]["deletionTimestamp"].is_null();
                let body = self.after.get(&route).filter(is_own).filter(stays).filter(|body| leads(body))?;
                Some((route, body))
            };
            let main_name = derived::http_route(name);
            let is_protected = |body: &Value| {
                let mut parents = body["spec"]["parentRefs"].as_array().into_iter().flatten();
                parents.all(|parent| self.holds_policy(namespace, &main_name, parent))
            };
            let (main, public) = (route(main_name.clone()), route(derived::public_http_route(name)));
            let public_alone = public.is_some() && (main.is_none() || auth.is_none());
            let open = |body: &Value| is_guarded && !is_protected(body);
            faults.extend(public.filter(|(_, body)| open(body) || public_alone).map(|(route, _)| route));
            faults.extend(main.filter(|(_, body)| open(body) && !self.may_stay_open(app)).map(|(route, _)| route));
        }
        faults.into_iter().map(Fault::Unprotected).collect()
    }

    /// Whether sign-in is being switched on for an app that runs, where the platform lets it be reached meanwhile.
    fn may_stay_open(&self, app: &NebariApp) -> bool {
        let is_allowed = self.view.world.config.login.as_ref().is_some_and(|login| login.stay_open);
        let was_off = |status: &portreeve_api::nebari_app::NebariAppStatus| {
            let mut auth = status.conditions.iter().filter(|condition| condition.type_ == conditions::AUTH_READY);
            auth.any(|condition| condition.reason == "AuthDisabled")
        };
        is_allowed && app.status.as_ref().is_some_and(|status| status.auth_switching_on || was_off(status))
    }

    /// Whether a parent says that it has a policy of this route in force: in the form that it is going to have, or in an
    /// earlier one where the route leads somewhere already.
    fn holds_policy(&self, namespace: &str, route: &str, parent: &Value) -> bool {
        let led = self.view.http_route(namespace, route).is_some_and(|live| {
            let live = serde_json::to_value(live).unwrap_or_default();
            let mut parents = live["spec"]["parentRefs"].as_array().into_iter().flatten();
            leads(&live) && parents.any(|before| is_within(namespace, parent, before))
        });
        self.view.policies_in(namespace).iter().any(|policy| {
            let generation = policy.metadata.generation.unwrap_or_default();
            let is_accepted = |ancestor: &PolicyAncestorStatus| {
                let reference = serde_json::to_value(&ancestor.ancestor_ref).unwrap_or_default();
                is_within(namespace, parent, &reference)
                    && ancestor.conditions.iter().any(|condition| {
                        let is_current = condition.observed_generation.unwrap_or_default() >= generation;
                        let is_of_this_form = is_current && self.stays_as_it_is(policy);
                        condition.type_ == "Accepted" && condition.status == "True" && (led || is_of_this_form)
                    })
            };
            policy.metadata.deletion_timestamp.is_none()
                && demands_sign_in(&serde_json::to_value(&policy.spec).unwrap_or_default(), route)
                && policy.status.iter().flat_map(|status| &status.ancestors).any(is_accepted)
        })
    }

    fn stays_as_it_is(&self, policy: &SecurityPolicy) -> bool {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let key = Key::new(Kind::SecurityPolicy, policy.metadata.namespace.as_deref().unwrap_or_default(), name);
        // What others made is in no plan.
        let after: Option<&Value> = self.after.get::<ObjectRef>(&key.object_ref(""));
        after.is_none_or(|after| contains("spec", &policy.spec, &after["spec"]))
    }
}

fn leads(route: &Value) -> bool {
    let rules = route["spec"]["rules"].as_array().into_iter().flatten();
    rules.flat_map(|rule| rule["backendRefs"].as_array().into_iter().flatten()).next().is_some()
}

/// Whether what is said of one parent, or of all its listeners, is said of this one.
fn is_within(namespace: &str, parent: &Value, said: &Value) -> bool {
    let text = |value: &Value, default: &str| value.as_str().unwrap_or(default).to_owned();
    let place = |of: &Value| (text(&of["kind"], "Gateway"), text(&of["namespace"], namespace), text(&of["name"], ""));
    place(parent) == place(said) && (said["sectionName"].is_null() || said["sectionName"] == parent["sectionName"])
}

fn demands_sign_in(spec: &Value, route: &str) -> bool {
    let listed = spec["targetRefs"].as_array().into_iter().flatten();
    let mut targets = listed.chain(Some(&spec["targetRef"]));
    spec["oidc"].is_object()
        && targets.any(|target| {
            target["group"] == GATEWAY_API_GROUP
                && target["kind"] == "HTTPRoute"
                && target["name"] == route
                && target["sectionName"].is_null()
        })
}
