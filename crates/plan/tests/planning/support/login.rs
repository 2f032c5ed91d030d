//! An identity provider that does what it is asked for, or does not.

use jiff::SignedDuration;
use portreeve_plan::{ClientProvision, Keycloak, Login, Plan, ProvisionReport, RemovalReport};
use serde::Deserialize;
use serde_json::json;

use super::{Cluster, Name};

/// The platform's settings of sign-in, and how its provider is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct LoginSetting {
    without_keycloak: bool,
    ignore_groups: bool,
    stay_open: bool,
    embedded: bool,
    drain_seconds: i64,
    shared_groups: Vec<String>,
    /// Why the provider does nothing.
    fails: Option<String>,
    /// Groups that were not made for apps.
    foreign_groups: Vec<String>,
}

impl LoginSetting {
    pub(super) fn login(&self) -> Login {
        Login {
            keycloak: (!self.without_keycloak).then(|| Keycloak {
                realm_url: "http://keycloak.test:8080/realms/nebari".to_owned(),
                external_realm_url: Some("https://id.example.com/realms/nebari".to_owned()),
            }),
            enforce_groups: !self.ignore_groups,
            stay_open: self.stay_open,
            drain: SignedDuration::from_secs(self.drain_seconds),
            embedded: self.embedded,
            patience: SignedDuration::from_mins(5),
            shared_groups: self.shared_groups.clone(),
        }
    }
}

impl Cluster {
    /// The platform has a Keycloak from now on.
    pub(crate) fn offer_sign_in(&mut self) {
        self.settings.login = Some(LoginSetting::default());
    }

    /// As a shell does it: the Secret is written before the answer is told.
    pub(super) fn ask_provider(&mut self, plan: &Plan) {
        let Some(login) = self.settings.login.clone() else { return };
        for request in &plan.provision {
            let skipped = request.groups.iter().filter(|(name, group)| {
                login.foreign_groups.contains(name) && !group.shared && !group.members.is_empty()
            });
            let outcome = match &login.fails {
                Some(why) => Err(why.clone()),
                None => Ok(skipped.map(|(name, _)| name.clone()).collect()),
            };
            if outcome.is_ok() {
                let mut secret = request.secret.clone();
                secret["data"] = json!({ "client-id": "AA==", "client-secret": "AA==" });
                self.author(secret);
            }
            let app = (request.app.namespace.clone().unwrap_or_default(), request.app.name.clone());
            let report = ProvisionReport { hash: request.hash.clone(), force: request.force.clone(), outcome };
            self.provisions.insert(app, report);
        }
        for request in &plan.deprovision {
            let app = (request.app.namespace.clone().unwrap_or_default(), request.app.name.clone());
            let outcome = login.fails.clone().map_or(Ok(()), Err);
            self.removals.insert(app, RemovalReport { uid: request.uid.clone(), outcome });
        }
    }
}

/// The Secret that a request makes.
pub(super) fn secret_of(request: &ClientProvision) -> Name {
    let text = |field: &str| request.secret["metadata"][field].as_str().unwrap_or_default().to_owned();
    ("Secret".to_owned(), text("namespace"), text("name"))
}
