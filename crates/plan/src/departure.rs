//! What has to happen before something may go: an app's clients at the identity provider, and the policy of an app that
//! still needs it.

use portreeve_api::SecurityPolicy;
use portreeve_api::conditions::{self, events};
use portreeve_api::names::labels::FORCE_REPROVISION;
use portreeve_api::names::nebari_app::POLICY_FINALIZER;
use serde_json::{Value, json};

use crate::app::{App, Auth, client_removal, may_go};
use crate::body::SECURITY_POLICY_V1ALPHA1;
use crate::condition::{Conditions, Reason};
use crate::object::{Key, Kind};
use crate::output::{Event, ObjectRef, Patch, Plan, StatusWrite};
use crate::text::list;
use crate::view::View;

/// Whether an app that is being deleted has to wait for the identity provider. Says what it waits for, and, when it has
/// waited long enough, what stays behind.
pub(crate) fn waits(view: &View<'_>, app: &App<'_>, plan: &mut Plan) -> bool {
    let Some(removal) = client_removal(view, app) else { return false };
    let report = view.world.removals.get(&(app.namespace.to_owned(), app.name.to_owned()));
    let report = report.filter(|report| report.uid == removal.uid);
    if report.is_some_and(|report| report.outcome.is_ok()) {
        return false;
    }
    let failure = report.and_then(|report| report.outcome.as_ref().err());
    let login = view.world.config.login.as_ref().filter(|login| login.keycloak.is_some());
    let since = app.metadata().deletion_timestamp.as_ref().map_or(view.now, |since| since.0);
    let deadline = login.map_or(since, |login| since + login.patience);
    if deadline <= view.world.now {
        let why = failure.map_or("it has not answered", String::as_str);
        let message = format!(
            "clients stay at the identity provider, with the attribute nebari.dev/app={}: {} ({why})",
            removal.made_for,
            list(removal.clients.keys()),
        );
        let reason = events::CLIENTS_LEFT_BEHIND.to_owned();
        plan.events.push(Event { about: removal.app, warning: true, reason, message });
        return false;
    }
    if let Some(failure) = failure {
        plan.statuses.extend(told(view, app, failure));
    }
    plan.wake_at = Some(plan.wake_at.map_or(deadline, |earlier| earlier.min(deadline)));
    plan.deprovision.push(removal);
    true
}

/// The condition of an app that cannot go yet.
fn told(view: &View<'_>, app: &App<'_>, failure: &str) -> Option<StatusWrite> {
    let before = app.status().cloned().unwrap_or_default();
    let mut after = before.clone();
    after.observed_generation = app.metadata().generation;
    let mut conditions = Conditions::new(&before.conditions, app.metadata().generation, view.now);
    let message = format!("waiting for the identity provider to remove the clients: {failure}");
    conditions.add(conditions::AUTH_READY, Reason::ProvisioningFailed.because(message));
    after.conditions.retain(|condition| condition.type_ != conditions::AUTH_READY);
    after.conditions.extend(conditions.finish());
    // The order of conditions means nothing.
    let is_same = after.observed_generation == before.observed_generation
        && after.conditions.iter().all(|condition| before.conditions.contains(condition));
    (!is_same).then(|| StatusWrite {
        object: app.identity().object_ref(),
        status: serde_json::to_value(&after).unwrap_or_default(),
    })
}

/// Takes the annotation away that asked for an app's clients to be made again, if it still has this value.
pub(crate) fn heeded(app: ObjectRef, value: &str) -> Patch {
    let path = format!("/metadata/annotations/{}", FORCE_REPROVISION.replace('/', "~1"));
    Patch { object: app, operations: removal(&path, value) }
}

/// Takes a text away from a path, if it still stands there.
fn removal(path: &str, text: &str) -> Vec<Value> {
    vec![json!({ "op": "test", "path": path, "value": text }), json!({ "op": "remove", "path": path })]
}

/// Whether an app's policy keeps visitors out of a route that is still there. What has become of the app, or of its
/// namespace, does not matter: the route goes first.
pub(crate) fn needs_policy(view: &View<'_>, app: &App<'_>) -> bool {
    (app.auth == Auth::Gateway || app.is_leaving()) && !may_go(view, app)
}

/// Lets a policy go that is being deleted, unless the app still needs it.
pub(crate) fn policy(view: &View<'_>, policy: &SecurityPolicy, app: Option<&App<'_>>) -> Option<Patch> {
    let metadata = &policy.metadata;
    let place = metadata.finalizers.iter().flatten().position(|one| one == POLICY_FINALIZER)?;
    if app.is_some_and(|app| needs_policy(view, app)) {
        return None;
    }
    let key = Key::new(
        Kind::SecurityPolicy,
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    );
    let path = format!("/metadata/finalizers/{place}");
    Some(Patch { object: key.object_ref(SECURITY_POLICY_V1ALPHA1), operations: removal(&path, POLICY_FINALIZER) })
}
