//! What the provider must have for an app: the contract's bodies.

use std::collections::{BTreeMap, BTreeSet};

use portreeve_api::names::{labels, nebari_app as derived};
use portreeve_api::nebari_app::{Auth, AuthProvider};
use serde_json::{Value, json};

use super::hash::{auth_config_hash, digest};
use crate::app::App;
use crate::condition::{Finding, Reason};
use crate::login::{ClientProvision, ClientRemoval, Keycloak, Login, ProvidedClient, ProvidedGroup};
use crate::text::label_value;

/// The scopes of apps that name none.
pub(super) const SCOPES: [&str; 3] = ["openid", "profile", "email"];
/// The path to which the provider sends visitors back, where the spec names none.
pub(super) const CALLBACK: &str = "/oauth2/callback";
/// The name of the claim with a visitor's groups.
pub(super) const GROUPS_CLAIM: &str = "groups";
/// The type of mapper that makes that claim.
const GROUP_MAPPER: &str = "oidc-group-membership-mapper";
/// Stands for all groups in [`Login::shared_groups`].
const ALL: &str = "*";

/// Whether Portreeve makes the clients of an app, as far as its spec says.
pub(super) fn provisions(auth: &Auth) -> bool {
    auth.enabled && auth.provision_client && auth.provider == AuthProvider::Keycloak
}

/// Who the clients and groups of an app are for, as the provider keeps it.
fn made_for(app: &App<'_>) -> String {
    format!("{}/{}", app.namespace, app.name)
}

/// The IDs that derive from an app's name, with the name that each client has at the provider.
pub(super) fn derived_ids(app: &App<'_>) -> BTreeMap<String, String> {
    BTreeMap::from([
        (derived::oidc_client(app.name, app.namespace), format!("{} OIDC Client", app.name)),
        (derived::spa_client(app.name, app.namespace), format!("{} SPA Client", app.name)),
        (derived::device_client(app.name, app.namespace), format!("{} Device Flow Client", app.name)),
    ])
}

/// The IDs of the clients that an app has, as its status records them; without a record, those for which the contract's
/// hash of the spec stands.
pub(super) fn held(app: &App<'_>) -> BTreeSet<String> {
    let Some(status) = app.status() else { return BTreeSet::new() };
    let recorded: BTreeSet<String> = status.auth_clients.iter().cloned().collect();
    let as_hashed = |auth: &&Auth| status.auth_config_hash == Some(auth_config_hash(app.source, auth));
    match app.source.spec.auth.as_ref().filter(as_hashed) {
        Some(auth) if recorded.is_empty() => client_ids(app, auth).into_keys().collect(),
        Some(_) | None => recorded,
    }
}

/// Why an app cannot have the ID that it names: it would make a public client of one that is not.
pub(super) fn own_conflict(app: &App<'_>, auth: &Auth) -> Option<Finding> {
    let is_spa = auth.spa_client.as_ref().is_some_and(|spa| spa.enabled);
    let id = spa_id(app, auth);
    let others = [derived::oidc_client(app.name, app.namespace), derived::device_client(app.name, app.namespace)];
    (is_spa && others.contains(&id)).then(|| {
        Reason::ClientConflict.because(format!(
            "spaClient.clientId {id} is the ID of another client of this app: choose another, or leave it out"
        ))
    })
}

/// The IDs of the clients that an app asks for, with the name that each has at the provider.
pub(super) fn client_ids(app: &App<'_>, auth: &Auth) -> BTreeMap<String, String> {
    let mut ids =
        BTreeMap::from([(derived::oidc_client(app.name, app.namespace), format!("{} OIDC Client", app.name))]);
    if auth.spa_client.as_ref().is_some_and(|spa| spa.enabled) {
        ids.insert(spa_id(app, auth), format!("{} SPA Client", app.name));
    }
    if auth.device_flow_client.as_ref().is_some_and(|device| device.enabled) {
        ids.insert(derived::device_client(app.name, app.namespace), format!("{} Device Flow Client", app.name));
    }
    ids
}

fn spa_id(app: &App<'_>, auth: &Auth) -> String {
    let named = auth.spa_client.as_ref().and_then(|spa| spa.client_id.clone()).filter(|id| !id.is_empty());
    named.unwrap_or_else(|| derived::spa_client(app.name, app.namespace))
}

/// All that the provider must have. `exchange` are the clients that may exchange their tokens, if any may.
pub(super) fn provision(
    app: &App<'_>,
    auth: &Auth,
    (login, keycloak): (&Login, &Keycloak),
    exchange: Option<Vec<String>>,
) -> ClientProvision {
    let client = confidential(app, auth, login);
    let device = auth.device_flow_client.as_ref().is_some_and(|device| device.enabled).then(|| device(app, auth));
    let spa = auth.spa_client.as_ref().is_some_and(|spa| spa.enabled).then(|| spa(app, auth));
    let mut values = json!({
        "client-id": client.client_id,
        "issuer-url": keycloak.external_realm_url.as_deref().unwrap_or_default(),
    });
    for (key, public) in [("spa-client-id", &spa), ("device-client-id", &device)] {
        if let Some(public) = public {
            values[key] = public.client_id.as_str().into();
        }
    }
    let mut provision = ClientProvision {
        app: app.identity().object_ref(),
        hash: String::new(),
        force: None,
        secret: secret(app, values),
        groups: groups(auth, login),
        client,
        spa,
        device,
        exchange,
        obsolete: Vec::new(),
    };
    provision.hash = digest(serde_json::to_string(&provision).unwrap_or_default());
    provision.force = force(app);
    let wanted = client_ids(app, auth);
    provision.obsolete = held(app).into_iter().filter(|id| !wanted.contains_key(id)).collect();
    provision
}

/// What asks for the clients to be made again.
pub(super) fn force(app: &App<'_>) -> Option<String> {
    let annotations = app.metadata().annotations.as_ref()?;
    annotations.get(labels::FORCE_REPROVISION).filter(|text| !text.is_empty()).cloned()
}

/// Whether the mapper that the gateway needs to tell groups is one that the former operator would not have made.
pub(super) fn needs_more_mappers(auth: &Auth, login: &Login) -> bool {
    login.enforce_groups && !auth.groups.is_empty() && mappers(auth, login).len() != asked_mappers(auth).len()
}

/// What must go with the app.
pub(super) fn removal(app: &App<'_>, auth: Option<&Auth>) -> ClientRemoval {
    // One that the app names itself goes only if it says that it was made for the app: its name may be another app's too.
    let mut clients: BTreeMap<_, _> =
        auth.into_iter().flat_map(|auth| client_ids(app, auth)).map(|(id, _)| (id, String::new())).collect();
    // Also what an earlier spec asked for.
    clients.extend(held(app).into_iter().map(|id| (id, String::new())));
    clients.extend(derived_ids(app));
    ClientRemoval {
        app: app.identity().object_ref(),
        uid: app.identity().uid.to_owned(),
        clients,
        made_for: made_for(app),
    }
}

fn confidential(app: &App<'_>, auth: &Auth, login: &Login) -> ProvidedClient {
    let host = &app.source.spec.hostname;
    let path = redirect_path(auth);
    ProvidedClient {
        client_id: derived::oidc_client(app.name, app.namespace),
        made_for: made_for(app),
        body: json!({
            "clientId": derived::oidc_client(app.name, app.namespace),
            "name": format!("{} OIDC Client", app.name),
            "enabled": true,
            "protocol": "openid-connect",
            "publicClient": false,
            "standardFlowEnabled": true,
            "directAccessGrantsEnabled": false,
            "redirectUris": [format!("https://{host}{path}"), format!("http://{host}{path}")],
            "webOrigins": ["*"],
            "attributes": {
                "post.logout.redirect.uris": format!("https://{host}/*##http://{host}/*"),
                labels::MADE_FOR: made_for(app),
            },
        }),
        kept: vec!["redirectUris", "webOrigins", "standardFlowEnabled", "attributes"],
        scopes: scopes(auth),
        mappers: mappers(auth, login),
    }
}

fn spa(app: &App<'_>, auth: &Auth) -> ProvidedClient {
    let host = &app.source.spec.hostname;
    let id = spa_id(app, auth);
    ProvidedClient {
        made_for: made_for(app),
        body: json!({
            "clientId": id,
            "name": format!("{} SPA Client", app.name),
            "enabled": true,
            "protocol": "openid-connect",
            "publicClient": true,
            "standardFlowEnabled": true,
            "directAccessGrantsEnabled": false,
            "redirectUris":
                [format!("https://{host}/*"), format!("https://{host}"), format!("http://{host}/*"), format!("http://{host}")],
            "webOrigins": ["*"],
            "attributes": { "pkce.code.challenge.method": "S256", labels::MADE_FOR: made_for(app) },
        }),
        client_id: id,
        kept: vec!["redirectUris", "webOrigins", "publicClient", "standardFlowEnabled", "attributes"],
        scopes: Vec::new(),
        mappers: Vec::new(),
    }
}

fn device(app: &App<'_>, auth: &Auth) -> ProvidedClient {
    ProvidedClient {
        client_id: derived::device_client(app.name, app.namespace),
        made_for: made_for(app),
        body: json!({
            "clientId": derived::device_client(app.name, app.namespace),
            "name": format!("{} Device Flow Client", app.name),
            "enabled": true,
            "protocol": "openid-connect",
            "publicClient": true,
            "standardFlowEnabled": false,
            "directAccessGrantsEnabled": false,
            "attributes": {
                "oauth2.device.authorization.grant.enabled": "true",
                labels::MADE_FOR: made_for(app),
            },
        }),
        kept: vec!["publicClient", "standardFlowEnabled", "directAccessGrantsEnabled", "attributes"],
        scopes: scopes(auth),
        mappers: vec![mapper(
            "audience-confidential-client",
            "oidc-audience-mapper",
            &json!({
                "included.client.audience": derived::oidc_client(app.name, app.namespace),
                "id.token.claim": "true",
                "access.token.claim": "true",
            }),
        )],
    }
}

/// `openid` is not a scope that a client is given: it makes a request one of OIDC.
fn scopes(auth: &Auth) -> Vec<String> {
    auth.scopes.iter().filter(|scope| *scope != "openid").cloned().collect()
}

/// The mappers that the contract gives the client.
fn asked_mappers(auth: &Auth) -> Vec<Value> {
    let own = auth.keycloak_config.iter().flat_map(|config| &config.protocol_mappers);
    let own: Vec<_> = own.map(|one| mapper(&one.name, &one.protocol_mapper, &json!(one.config))).collect();
    let by_scope = auth.scopes.iter().any(|scope| scope == GROUPS_CLAIM);
    if own.is_empty() && by_scope { vec![group_mapper()] } else { own }
}

/// Those, and the one by which the gateway tells groups.
fn mappers(auth: &Auth, login: &Login) -> Vec<Value> {
    let mut mappers = asked_mappers(auth);
    let tells_groups =
        |mapper: &Value| mapper["protocolMapper"] == GROUP_MAPPER && mapper["config"]["claim.name"] == GROUPS_CLAIM;
    if login.enforce_groups && !auth.groups.is_empty() && !mappers.iter().any(tells_groups) {
        mappers.push(group_mapper());
    }
    mappers
}

fn group_mapper() -> Value {
    mapper(
        "group-membership",
        GROUP_MAPPER,
        &json!({
            "claim.name": GROUPS_CLAIM,
            "full.path": "false",
            "id.token.claim": "true",
            "access.token.claim": "true",
            "userinfo.token.claim": "true",
        }),
    )
}

fn mapper(name: &str, kind: &str, config: &Value) -> Value {
    json!({ "name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config })
}

/// Those that the spec names with members come before those that it only names.
fn groups(auth: &Auth, login: &Login) -> BTreeMap<String, ProvidedGroup> {
    let shared = |name: &str| login.shared_groups.iter().any(|one| one == name || one == ALL);
    let named = auth.groups.iter().map(|name| (name, Vec::new()));
    let detailed = auth.keycloak_config.iter().flat_map(|config| &config.groups);
    let all = named.chain(detailed.map(|group| (&group.name, group.members.clone())));
    all.map(|(name, members)| (name.clone(), ProvidedGroup { members, shared: shared(name) })).collect()
}

/// The path to which the provider sends visitors back.
pub(super) fn redirect_path(auth: &Auth) -> &str {
    auth.redirect_uri.as_deref().filter(|path| !path.is_empty()).unwrap_or(CALLBACK)
}

fn secret(app: &App<'_>, values: Value) -> Value {
    let mut secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": derived::oidc_client_secret(app.name),
            "namespace": app.namespace,
            "labels": labels::of_app(&label_value(app.name)),
            "ownerReferences": [app.identity().reference()],
        },
        "type": "Opaque",
    });
    secret["stringData"] = values;
    secret
}
