//! The objects of an app's sign-in.

use std::collections::BTreeMap;

use portreeve_api::names::nebari_app as derived;
use serde_json::Value;

use super::{ClientOwners, ClientsRecord, SignIn};
use crate::app::AppCase;
use crate::app::render::Rendering;
use crate::body::{self, Metadata, RBAC_V1, SECURITY_POLICY_V1ALPHA1};
use crate::condition::Finding;
use crate::login::ClientProvision;
use crate::object::{Key, Kind};

/// What became of an app's sign-in.
pub(crate) struct SignInMade {
    /// What is wrong with it, or not known yet.
    pub(in crate::app) fault: Option<Finding>,
    /// What the provider is to be asked for.
    pub(crate) request: Option<ClientProvision>,
    /// The groups that nobody was added to, where the provider has just done what it was asked for.
    pub(in crate::app) done: Option<Vec<String>>,
    /// What the status records of the clients.
    pub(in crate::app) record: ClientsRecord,
    /// The annotation's value that has been heeded.
    pub(crate) heeded: Option<String>,
}

impl<'a> Rendering<'_, '_, 'a> {
    /// Everything that signs visitors in, and the routes that it protects.
    pub(in crate::app) fn sign_in(&mut self, case: &AppCase<'a>, owners: &ClientOwners<'_>) {
        let app = &case.app;
        let has_name = case.web.as_ref().is_none_or(|web| self.granted(web.claim).is_some());
        let is_served = !app.is_leaving() && case.refusal.is_none() && has_name;
        let sign_in = SignIn::of(self.view, app, owners, is_served);
        let Some(sign_in) = sign_in.filter(|_| !app.is_leaving()) else { return self.http_routes(case, None) };
        if is_served {
            self.secret_reader(&sign_in);
        }
        let policy =
            sign_in.policy(self.view, app, self.moves(case)).filter(|_| is_served).map(|spec| self.policy(spec));
        self.http_routes(case, Some((&sign_in, policy)));
        let objects = [
            (Kind::Role, derived::oidc_secret_reader(app.name)),
            (Kind::RoleBinding, derived::oidc_secret_reader(app.name)),
            (Kind::SecurityPolicy, derived::security_policy(app.name)),
        ];
        let blocked = || objects.iter().find_map(|(kind, name)| self.rendered.blocked(*kind, name));
        self.rendered.sign_in = Some(SignInMade {
            fault: sign_in.client(self.view, app).or_else(blocked).or_else(|| self.rendered.closed.clone()),
            request: sign_in.request().cloned(),
            done: sign_in.news().map(<[String]>::to_vec),
            record: sign_in.record(app),
            heeded: sign_in.heeded().map(str::to_owned),
        });
    }

    /// Lets the app read the Secret of its client.
    fn secret_reader(&mut self, sign_in: &SignIn<'a>) {
        let Some((role, binding)) = sign_in.secret_reader(self.app) else { return };
        for (kind, fields) in [(Kind::Role, role), (Kind::RoleBinding, binding)] {
            let key = Key::new(kind, self.app.namespace, derived::oidc_secret_reader(self.app.name));
            let mut body = body::object(&key, RBAC_V1, self.metadata(BTreeMap::new(), BTreeMap::new()), Value::Null);
            for (field, value) in fields.as_object().into_iter().flatten() {
                body[field] = value.clone();
            }
            self.add(key, body);
        }
    }

    /// Wants the policy, and returns the generation that it then has. One that is being deleted comes again when it is gone.
    fn policy(&mut self, spec: Value) -> i64 {
        let key = Key::new(Kind::SecurityPolicy, self.app.namespace, derived::security_policy(self.app.name));
        let finalizers = vec![derived::POLICY_FINALIZER];
        let metadata = Metadata { owner: Some(self.app.identity()), finalizers, ..Metadata::default() };
        let body = body::object(&key, SECURITY_POLICY_V1ALPHA1, metadata, spec);
        let is_going = self.view.live(&key).is_some_and(|live| live.metadata().deletion_timestamp.is_some());
        if !is_going && self.view.world.served.security_policies {
            self.add(key.clone(), body);
        }
        self.wanted.generation(&key)
    }
}
