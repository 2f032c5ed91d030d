//! The Secrets on the two sides: the administrator's, which is read, and an app's, which is written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use portreeve_api::names::labels;
use portreeve_plan::FIELD_MANAGER;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::KeycloakAdmin;
use super::admin::{Credentials, Fault};

/// The key of an app's Secret that has the client's secret.
const CLIENT_SECRET: &str = "client-secret";
/// The keys under which the administrator's name and password may stand.
const USERNAME: [&str; 2] = ["username", "admin-username"];
const PASSWORD: [&str; 2] = ["password", "admin-password"];

/// Who administers Keycloak, as it is now: whoever changes the password need not restart anything.
pub(crate) async fn credentials(client: &Client, settings: &KeycloakAdmin) -> Result<Credentials, Fault> {
    let password = settings.password.expose_secret();
    if !settings.username.is_empty() && !password.is_empty() {
        return Ok(Credentials { username: settings.username.clone(), password: password.to_owned() });
    }
    let (namespace, name) = &settings.secret;
    let fault = |what: &str| Fault::Secret(format!("Secret {namespace}/{name} of Keycloak's administrator {what}"));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get_opt(name).await.map_err(|_| fault("cannot be read"))?;
    let data = found.and_then(|secret| secret.data).ok_or_else(|| fault("is not there"))?;
    let text = |keys: [&str; 2]| {
        let value = keys.iter().find_map(|key| data.get(*key))?;
        String::from_utf8(value.0.clone()).ok().filter(|text| !text.is_empty())
    };
    let missing = || fault("lacks username or password");
    Ok(Credentials { username: text(USERNAME).ok_or_else(missing)?, password: text(PASSWORD).ok_or_else(missing)? })
}

/// Writes an app's Secret with the client's secret in it; values of an earlier one go.
///
/// # Errors
///
/// When a Secret of that name is there that was not made for the app.
pub(super) async fn write(client: &Client, template: &Value, secret: &str) -> Result<(), Fault> {
    let wanted: Secret = serde_json::from_value(template.clone())
        .map_err(|error| Fault::Secret(format!("no Secret, a fault of Portreeve: {error}")))?;
    let (namespace, name) = (wanted.namespace().unwrap_or_default(), wanted.name_any());
    let refused = |error: kube::Error| {
        let why = match error {
            kube::Error::Api(status) => status.message.clone(),
            _ => "the API server cannot be reached".to_owned(),
        };
        Fault::Secret(format!("Secret {namespace}/{name} cannot be written: {why}"))
    };
    let mut data: BTreeMap<String, ByteString> =
        wanted.string_data.iter().flatten().map(|(key, value)| (key.clone(), bytes(value))).collect();
    data.insert(CLIENT_SECRET.to_owned(), bytes(secret));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let Some(found) = secrets.get_opt(&name).await.map_err(refused)? else {
        let new = Secret { string_data: None, data: Some(data), ..wanted };
        let parameters = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        return secrets.create(&parameters, &new).await.map(drop).map_err(refused);
    };
    if !is_made_for(&found, &wanted) {
        let place = format!("{namespace}/{name}");
        return Err(Fault::Foreign(format!("Secret {place} was not made for this app: rename or delete it")));
    }
    let mut values = json!(data);
    for key in found.data.iter().flat_map(|data| data.keys()).filter(|key| !data.contains_key(*key)) {
        values[key] = Value::Null;
    }
    let owner_references = &wanted.metadata.owner_references;
    let metadata = json!({ "labels": wanted.metadata.labels, "ownerReferences": owner_references });
    let patch = json!({ "metadata": metadata, "data": values });
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    secrets.patch(&name, &parameters, &Patch::Merge(patch)).await.map(drop).map_err(refused)
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// By the owner reference, else by the labels that the former operator gave.
fn is_made_for(found: &Secret, wanted: &Secret) -> bool {
    let owner = |secret: &Secret| {
        let owners = secret.metadata.owner_references.iter().flatten();
        owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
    };
    let label = |secret: &Secret, key: &str| secret.metadata.labels.as_ref().and_then(|all| all.get(key)).cloned();
    match owner(found) {
        Some(uid) => owner(wanted) == Some(uid),
        None => [labels::MANAGED_BY, labels::NAME, labels::INSTANCE].iter().all(|key| {
            let value = label(found, key);
            value.is_some() && value == label(wanted, key)
        }),
    }
}
