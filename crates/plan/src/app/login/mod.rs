//! Sign-in in front of an app: what the provider must have, the policy of the gateway, and when the app may be reached.

mod clients;
mod hash;
mod owners;
mod policy;
mod protection;
mod render;

use std::iter;

use portreeve_api::names::nebari_app as derived;
use portreeve_api::nebari_app::{Auth as AuthSpec, AuthProvider, NebariAppStatus, RouteManagement};
use serde_json::{Value, json};

use super::conditions::has_key;
use super::{App, Auth};
use crate::acknowledgement::Parent;
use crate::condition::{Finding, Reason};
use crate::login::{ClientProvision, ClientRemoval, Keycloak, Login, ProvisionReport};
use crate::object::Kind;
use crate::settled::Alarm;
use crate::view::View;
pub(crate) use owners::ClientOwners;
use policy::{Credentials, Endpoints, Keys};
pub(crate) use protection::may_go;
pub(crate) use render::SignInMade;

/// What sign-in takes for one app.
pub(crate) struct SignIn<'a> {
    login: &'a Login,
    auth: &'a AuthSpec,
    /// Why nothing is made for it.
    refusal: Option<Finding>,
    /// What the provider must have; absent where the client is not Portreeve's to make.
    provision: Option<ClientProvision>,
    /// Whether the provider is to be asked for it now.
    pub(crate) is_due: bool,
    report: Option<&'a ProvisionReport>,
    /// The Secret of the client.
    secret: String,
    /// `status.authConfigHash` of the spec.
    hash: String,
}

/// What a status records of the app's clients.
#[derive(Clone, Default)]
pub(crate) struct ClientsRecord {
    /// `status.authConfigHash`
    pub(crate) config_hash: Option<String>,
    /// `status.authClientsHash`
    pub(crate) clients_hash: Option<String>,
    /// `status.authClients`
    pub(crate) clients: Vec<String>,
}

impl<'a> SignIn<'a> {
    /// Nothing where the app asks for no sign-in, or the platform has none. `is_granted`: whether the app has its name.
    pub(crate) fn of(view: &View<'a>, app: &App<'a>, owners: &ClientOwners<'_>, is_granted: bool) -> Option<Self> {
        let auth = app.source.spec.auth.as_ref().filter(|auth| auth.enabled)?;
        let login = view.world.config.login.as_ref()?;
        let makes_client = clients::provisions(auth);
        let conflict = || clients::own_conflict(app, auth).or_else(|| owners.conflict(app, auth));
        let refusal = refusal(login, auth).or_else(|| makes_client.then(conflict).flatten());
        let keycloak = login.keycloak.as_ref().filter(|_| makes_client && refusal.is_none());
        let exchanges = auth.token_exchange.as_ref().is_some_and(|exchange| exchange.enabled);
        let peers = exchanges.then(|| owners.peers(app));
        let provision = keycloak.map(|keycloak| clients::provision(app, auth, (login, keycloak), peers));
        let report = view.world.provisions.get(&(app.namespace.to_owned(), app.name.to_owned()));
        let mut sign_in = Self {
            login,
            auth,
            refusal,
            provision,
            is_due: false,
            report,
            secret: secret_name(view, app, auth),
            hash: hash::auth_config_hash(app.source, auth),
        };
        sign_in.is_due = is_granted && sign_in.must_ask(view, app);
        Some(sign_in)
    }

    /// What the provider is to be asked for now.
    pub(crate) fn request(&self) -> Option<&ClientProvision> {
        self.provision.as_ref().filter(|_| self.is_due)
    }

    /// The contract's guard, and what it does not see: clients that the hash does not know of, and a Secret that is gone.
    fn must_ask(&self, view: &View<'_>, app: &App<'_>) -> bool {
        let Some(provision) = &self.provision else { return false };
        if !view.secret(app.namespace, &self.secret).is_some_and(|secret| has_key(secret, CLIENT_SECRET)) {
            return true;
        }
        if self.has_made(provision) {
            return false;
        }
        if provision.force.is_some() {
            return true;
        }
        match app.status().and_then(|status| status.auth_clients_hash.as_ref()) {
            Some(hash) => *hash != provision.hash,
            None => !self.is_taken_over(app),
        }
    }

    /// Whether the former operator has made what is asked for, and nobody has asked since. It made no mapper for groups
    /// that it did not enforce.
    fn is_taken_over(&self, app: &App<'_>) -> bool {
        let is_as_asked = app.status().is_some_and(|status| {
            let ready = status.conditions.iter().find(|one| one.type_ == portreeve_api::conditions::AUTH_READY);
            status.auth_clients_hash.is_none()
                && status.auth_config_hash.as_ref() == Some(&self.hash)
                && ready.is_some_and(|ready| ready.status == "True")
        });
        is_as_asked && clients::force(app).is_none() && !clients::needs_more_mappers(self.auth, self.login)
    }

    fn has_made(&self, provision: &ClientProvision) -> bool {
        self.report.is_some_and(|report| {
            let is_this =
                report.hash == provision.hash && (provision.force.is_none() || report.force == provision.force);
            is_this && report.outcome.is_ok()
        })
    }

    /// Whether this moment's request has been carried out by this process.
    pub(crate) fn news(&self) -> Option<&[String]> {
        self.provision.as_ref().filter(|provision| self.has_made(provision))?;
        let groups = self.report?.outcome.as_ref().ok()?;
        (!self.is_due).then_some(groups.as_slice())
    }

    /// What the status records, where it is as the provider's clients are now.
    pub(crate) fn record(&self, app: &App<'_>) -> ClientsRecord {
        let before = app.status().map(ClientsRecord::of).unwrap_or_default();
        let made = self.provision.as_ref().filter(|provision| self.has_made(provision) || self.is_taken_over(app));
        made.map_or(before, |provision| ClientsRecord {
            config_hash: Some(self.hash.clone()),
            clients_hash: Some(provision.hash.clone()),
            clients: clients::client_ids(app, self.auth).into_keys().collect(),
        })
    }

    /// Whether the annotation that asks for the clients to be made again has been heeded.
    pub(crate) fn heeded(&self) -> Option<&str> {
        let provision = self.provision.as_ref().filter(|provision| self.has_made(provision))?;
        provision.force.as_deref()
    }

    /// What is wrong with the client or its Secret, and what is not known yet.
    pub(crate) fn client(&self, view: &View<'_>, app: &App<'_>) -> Option<Finding> {
        if let Some(refusal) = &self.refusal {
            return Some(refusal.clone());
        }
        if self.is_due {
            let failed = self.report.and_then(|report| report.outcome.as_ref().err());
            return Some(match failed {
                Some(why) => Reason::ProvisioningFailed.because(format!("Failed to provision OIDC client: {why}")),
                None => Reason::Pending.because("waiting for the identity provider to make the client"),
            });
        }
        secret_fault(view, app, &self.secret)
    }

    /// `spec` of the policy, where one is to be written: not before the client's Secret is there, since the gateway would
    /// refuse it; one that is there stays. `moves`: the app has a route at its next listener too.
    pub(crate) fn policy(&self, view: &View<'_>, app: &App<'_>, moves: bool) -> Option<Value> {
        let makes_routes = app.web.as_ref().is_some_and(|web| web.management == RouteManagement::Operator);
        let live = protection::own_policy(view, app);
        let is_usable = secret_fault(view, app, &self.secret).is_none() || live.is_some();
        if app.auth != Auth::Gateway || !makes_routes || self.refusal.is_some() || !is_usable {
            return None;
        }
        let secret = view.secret(app.namespace, &self.secret);
        // A Secret that is away for a moment does not make it another client.
        let went_on =
            || live.is_some_and(|live| live.spec.other.get("oidc").is_some_and(|oidc| !oidc["clientIDRef"].is_null()));
        let has_id = secret.map_or_else(went_on, |secret| has_key(secret, CLIENT_ID));
        let with_id = !self.auth.provision_client && has_id;
        let credentials = Credentials { secret: &self.secret, with_id };
        let mut policy =
            policy::policy(app, self.auth, &self.endpoints(), &credentials, live, self.enforces_groups(app));
        let routes =
            iter::once(derived::http_route(app.name)).chain(moves.then(|| derived::waiting_http_route(app.name)));
        policy["targetRefs"] = policy::targets(routes);
        Some(policy)
    }

    /// The gateway asks for groups once the provider tells them: until then nobody would get in.
    fn enforces_groups(&self, app: &App<'_>) -> bool {
        let is_made = self.record(app).clients_hash.is_some();
        let tells = !self.auth.provision_client || is_made || !clients::needs_more_mappers(self.auth, self.login);
        self.login.enforce_groups && tells
    }

    fn endpoints(&self) -> Endpoints {
        match (self.auth.provider, &self.login.keycloak) {
            (AuthProvider::Keycloak, Some(keycloak)) => keycloak.endpoints(),
            _ => Endpoints {
                issuer: self.auth.issuer_url.clone().unwrap_or_default(),
                token: None,
                authorization: None,
                end_session: None,
                keys: self.login.embedded.then_some(Keys::Discovered),
                token_issuer: None,
            },
        }
    }

    /// Law 7: why the main route may lead nowhere; `None` when it may lead to the app. `policy` is the generation that the
    /// policy has once it is as wanted.
    pub(crate) fn closed(
        &self,
        view: &View<'_>,
        app: &App<'_>,
        policy: Option<i64>,
        parents: &[Parent],
        alarm: &mut Alarm,
    ) -> Option<Finding> {
        if Kind::SecurityPolicy.unserved(&view.world.served).is_some() {
            return Some(nobody_signs_in(view));
        }
        let Some(generation) = policy else {
            return Some(self.client(view, app).unwrap_or_else(|| nobody_signs_in(view)));
        };
        protection::closed(view, app, self.login, generation, parents, alarm)
    }

    /// Whether the route leads to the app although it is not protected yet: sign-in is being switched on for it while it
    /// runs, and the platform prefers that.
    pub(crate) fn stays_open(&self, view: &View<'_>, app: &App<'_>) -> bool {
        self.login.stay_open && protection::leads_somewhere(view, app) && protection::is_switched_on(view, app)
    }

    /// The bodies of the Role and the RoleBinding by which the app reads its Secret, without `metadata`; only for a client
    /// that Portreeve makes.
    pub(crate) fn secret_reader(&self, app: &App<'_>) -> Option<(Value, Value)> {
        self.provision.as_ref()?;
        let name = derived::oidc_secret_reader(app.name);
        let account = app.source.spec.service_account_name.as_deref().unwrap_or(app.name);
        let role = json!({ "rules": [{
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [self.secret], "verbs": ["get"],
        }] });
        let binding = json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": app.namespace }],
        });
        Some((role, binding))
    }
}

impl Keycloak {
    fn endpoints(&self) -> Endpoints {
        let inside = |what: &str| format!("{}/protocol/openid-connect/{what}", self.realm_url);
        let outside =
            |what: &str| self.external_realm_url.as_ref().map(|url| format!("{url}/protocol/openid-connect/{what}"));
        Endpoints {
            issuer: self.issuer(),
            token: Some(inside("token")),
            authorization: outside("auth"),
            end_session: outside("logout"),
            keys: Some(Keys::At(inside("certs"))),
            token_issuer: self.external_realm_url.clone(),
        }
    }

    /// Who the gateway is told that the provider is. Envoy Gateway 1.9 and later takes only `https`, and asks there for
    /// nothing that it is told otherwise; without a URL for browsers it asks there for theirs.
    fn issuer(&self) -> String {
        match self.external_realm_url.as_deref() {
            Some(external) if external.starts_with("https://") => external.to_owned(),
            Some(_) => self.realm_url.replacen("http://", "https://", 1),
            None => self.realm_url.clone(),
        }
    }
}

impl ClientsRecord {
    /// As it is in a status.
    pub(crate) fn of(status: &NebariAppStatus) -> Self {
        Self {
            config_hash: status.auth_config_hash.clone(),
            clients_hash: status.auth_clients_hash.clone(),
            clients: status.auth_clients.clone(),
        }
    }
}

/// What of an app that goes has to go at the provider first; nothing where no client was made for it.
pub(crate) fn removal(view: &View<'_>, app: &App<'_>) -> Option<ClientRemoval> {
    view.world.config.login.as_ref()?;
    let auth = app.source.spec.auth.as_ref();
    let has_made = app.status().is_some_and(|status| status.auth_config_hash.is_some());
    (has_made || auth.is_some_and(clients::provisions)).then(|| clients::removal(app, auth))
}

/// Why a route leads nowhere that nothing can protect.
pub(super) fn nobody_signs_in(view: &View<'_>) -> Finding {
    Reason::PolicyMissing.because(Kind::SecurityPolicy.unserved(&view.world.served).unwrap_or_else(|| {
        "nothing signs visitors in here, so the app is not served: where it does that itself, set auth.enforceAtGateway to \
         false"
            .to_owned()
    }))
}

const CLIENT_SECRET: &str = "client-secret";
const CLIENT_ID: &str = "client-id";

/// Why nothing can be made, whatever becomes of it.
fn refusal(login: &Login, auth: &AuthSpec) -> Option<Finding> {
    let invalid = |why: &str| Some(Reason::InvalidProvider.because(format!("Invalid OIDC provider: {why}")));
    match auth.provider {
        AuthProvider::Keycloak if login.embedded => invalid(
            "nobody makes clients at a Keycloak here: set auth.provider to generic-oidc, auth.provisionClient to false and \
             auth.issuerURL to the realm's URL, and create the Secret of the client",
        ),
        AuthProvider::Keycloak if login.keycloak.is_none() => {
            invalid("the platform has no Keycloak (KEYCLOAK_ENABLED)")
        }
        AuthProvider::GenericOidc if auth.provision_client => Some(Reason::ProvisioningNotSupported.because(
            "provider generic-oidc does not support automatic client provisioning: set auth.provisionClient to false, \
             and create the Secret of the client",
        )),
        AuthProvider::GenericOidc if auth.issuer_url.as_ref().is_none_or(String::is_empty) => {
            invalid("generic-oidc needs auth.issuerURL")
        }
        AuthProvider::GenericOidc if auth.enforce_at_gateway && is_strict(login) && !auth.groups.is_empty() => {
            Some(Reason::GroupsNotEnforceable.because(
                "the gateway can tell groups only with the platform's Keycloak: drop auth.groups, or let the platform \
                 allow everybody in who has signed in (--auth-groups=ignore)",
            ))
        }
        AuthProvider::Keycloak | AuthProvider::GenericOidc => None,
    }
}

/// Whether groups are asked for that the gateway cannot tell with any provider.
fn is_strict(login: &Login) -> bool {
    login.enforce_groups && !login.embedded
}

/// The Secret of a client that Portreeve does not make may be called otherwise; a name that leads nowhere is not heeded,
/// as it never was.
fn secret_name(view: &View<'_>, app: &App<'_>, auth: &AuthSpec) -> String {
    let own = derived::oidc_client_secret(app.name);
    let Some(named) = auth.client_secret_ref.as_ref().filter(|name| !auth.provision_client && !name.is_empty()) else {
        return own;
    };
    let is_there = |name: &str| view.secret(app.namespace, name).is_some();
    if !is_there(named) && is_there(&own) { own } else { named.clone() }
}

/// What is wrong with the Secret of an app's client.
pub(super) fn secret_fault(view: &View<'_>, app: &App<'_>, name: &str) -> Option<Finding> {
    let failed =
        |what: String| Some(Reason::ValidationFailed.because(format!("Auth configuration validation failed: {what}")));
    match view.secret(app.namespace, name) {
        None => failed(format!("OIDC client secret '{name}' not found in namespace '{}'", app.namespace)),
        Some(secret) if has_key(secret, CLIENT_SECRET) => None,
        Some(_) => failed(format!("OIDC client secret '{name}' is missing required key 'client-secret'")),
    }
}
