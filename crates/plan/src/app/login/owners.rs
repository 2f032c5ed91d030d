//! Whose each client of the identity provider is.

use std::collections::{BTreeMap, BTreeSet};

use portreeve_api::names::nebari_app as derived;
use portreeve_api::nebari_app::Auth;

use super::clients;
use crate::app::{App, AppCase};
use crate::condition::{Finding, Reason};
use crate::view::View;

/// Whose each client of the provider is.
pub(crate) struct ClientOwners<'a> {
    /// Namespace and name of the app, by client ID.
    by_id: BTreeMap<String, (&'a str, &'a str)>,
    /// The apps whose clients have been made.
    made: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> ClientOwners<'a> {
    /// Who has a client keeps it. What nobody has goes to the app from whose name its ID derives, then to one that names it
    /// itself; among equals the older has it. `cases` come by age. Apps of namespaces that are not opted in do not count.
    pub(crate) fn of(view: &View<'_>, cases: &[AppCase<'a>]) -> Self {
        let counted = || cases.iter().map(|case| &case.app).filter(|app| view.is_opted_in(app.namespace));
        let asking = || {
            let auth = |app: &&App<'a>| app.source.spec.auth.as_ref().filter(|auth| clients::provisions(auth));
            counted().filter_map(move |app| Some((app, auth(&app)?)))
        };
        let mut by_id = BTreeMap::new();
        let mut give = |app: &App<'a>, ids: &mut dyn Iterator<Item = String>| {
            for id in ids {
                by_id.entry(id).or_insert((app.namespace, app.name));
            }
        };
        for app in counted() {
            give(app, &mut clients::held(app).into_iter());
        }
        for (app, auth) in asking() {
            let derived = clients::derived_ids(app);
            give(app, &mut clients::client_ids(app, auth).into_keys().filter(|id| derived.contains_key(id)));
        }
        for (app, auth) in asking() {
            give(app, &mut clients::client_ids(app, auth).into_keys());
        }
        let has_made = |app: &App<'_>| app.status().is_some_and(|status| status.auth_config_hash.is_some());
        let made = asking().filter(|(app, _)| has_made(app)).map(|(app, _)| (app.namespace, app.name)).collect();
        Self { by_id, made }
    }

    /// Who has a client that the app asks for, if somebody else does.
    pub(super) fn conflict(&self, app: &App<'_>, auth: &Auth) -> Option<Finding> {
        clients::client_ids(app, auth).into_keys().find_map(|id| {
            let (namespace, name) = self.by_id.get(&id).filter(|owner| **owner != (app.namespace, app.name))?;
            // Another namespace's apps are no business of this one's.
            let whose =
                if *namespace == app.namespace { format!("of NebariApp {name}") } else { "of another app".to_owned() };
            Some(Reason::ClientConflict.because(format!(
                "client {id} at the identity provider is {whose}: rename the app, or choose another spaClient.clientId"
            )))
        })
    }

    /// The clients of the other apps, as far as they have been made.
    pub(super) fn peers(&self, app: &App<'_>) -> Vec<String> {
        let confidential = |(id, (namespace, name)): (&String, &(&str, &str))| {
            let is_main = *id == derived::oidc_client(name, namespace);
            let is_peer = (*namespace, *name) != (app.namespace, app.name) && self.made.contains(&(*namespace, *name));
            (is_main && is_peer).then(|| id.clone())
        };
        self.by_id.iter().filter_map(confidential).collect()
    }
}
