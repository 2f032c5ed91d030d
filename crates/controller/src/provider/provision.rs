//! Carries out what an app needs at Keycloak, in the order of the contract. Doing it again changes nothing.

use std::collections::BTreeSet;

use portreeve_api::names::labels::MADE_FOR;
use portreeve_api::names::nebari_app as derived;
use portreeve_plan::{ClientProvision, ClientRemoval, ProvidedClient, ProvidedGroup};
use rustls::crypto::aws_lc_rs;
use serde_json::{Value, json};

use super::admin::{Admin, Fault, encoded};

/// How long a new client's secret is, in characters.
const SECRET_LENGTH: usize = 32;
/// The alphabet of base64 for URLs: six bits each.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The most members of a group that are looked at.
const MEMBERS: usize = 1000;
/// What Keycloak calls the permission to exchange tokens.
const EXCHANGE: &str = "token-exchange";

/// What there is once everything is done.
pub(super) struct Done {
    /// The secret of the client.
    pub(super) secret: String,
    /// Groups that nobody was added to.
    pub(super) not_own: Vec<String>,
}

/// Makes, or puts in order, everything that is asked for.
pub(super) async fn provision(admin: &Admin<'_>, request: &ClientProvision) -> Result<Done, Fault> {
    let id = client(admin, &request.client).await?;
    let secret = admin.get(&format!("/clients/{id}/client-secret")).await?;
    let secret = secret["value"].as_str().filter(|secret| !secret.is_empty()).map(str::to_owned);
    let secret = secret.ok_or_else(|| Fault::Unreadable("GET client-secret".to_owned()))?;
    let mut not_own = Vec::new();
    for (name, group) in &request.groups {
        if !self::group(admin, name, group, &request.client.made_for).await? {
            not_own.push(name.clone());
        }
    }
    for public in [&request.spa, &request.device].into_iter().flatten() {
        client(admin, public).await?;
    }
    exchange(admin, &id, request.exchange.as_deref()).await?;
    for client_id in &request.obsolete {
        remove_client(admin, client_id, (&request.client.made_for, "")).await?;
    }
    Ok(Done { secret, not_own })
}

/// Deletes the clients that were made for an app.
pub(super) async fn remove(admin: &Admin<'_>, request: &ClientRemoval) -> Result<(), Fault> {
    for (client_id, name) in &request.clients {
        remove_client(admin, client_id, (&request.made_for, name)).await?;
    }
    Ok(())
}

/// Deletes a client, if it is there and was made for the app.
async fn remove_client(admin: &Admin<'_>, client_id: &str, (made_for, name): (&str, &str)) -> Result<(), Fault> {
    match find(admin, client_id).await? {
        Some(found) if is_made_for(&found, made_for, name) => {
            admin.delete(&format!("/clients/{}", id_of(&found)?)).await
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes a client, or writes those of its fields that Portreeve keeps; returns its ID.
async fn client(admin: &Admin<'_>, wanted: &ProvidedClient) -> Result<String, Fault> {
    let found = find(admin, &wanted.client_id).await?;
    let id = if let Some(found) = &found {
        let name = wanted.body["name"].as_str().unwrap_or_default();
        if !is_made_for(found, &wanted.made_for, name) || !is_for_the_same_hosts(found, wanted) {
            return Err(Fault::Foreign(format!(
                "the identity provider has a client {} that was not made for this app: rename or delete it, or choose \
                 another name",
                wanted.client_id
            )));
        }
        let id = id_of(found)?;
        admin.put(&format!("/clients/{id}"), &kept(found, wanted)).await?;
        id
    } else {
        let mut body = wanted.body.clone();
        if body["publicClient"] == false {
            body["secret"] = new_secret()?.into();
        }
        admin.post("/clients", &body).await?
    };
    scopes(admin, &id, &wanted.scopes).await?;
    mappers(admin, &id, &wanted.mappers).await?;
    Ok(id)
}

async fn find(admin: &Admin<'_>, client_id: &str) -> Result<Option<Value>, Fault> {
    let found = admin.get(&format!("/clients?clientId={}", encoded(client_id))).await?;
    let found = found.as_array().into_iter().flatten().find(|client| client["clientId"] == client_id);
    Ok(found.cloned())
}

/// By the attribute; one without it, by the name that the former operator gave, if it gave one.
fn is_made_for(client: &Value, made_for: &str, name: &str) -> bool {
    match client["attributes"][MADE_FOR].as_str() {
        Some(owner) => owner == made_for,
        None => !name.is_empty() && client["name"] == name,
    }
}

/// A client without the attribute that an app names itself, and not by a name that is derived from the app's, may be one that
/// another app of that name has named: then browsers are sent to other hosts.
fn is_for_the_same_hosts(client: &Value, wanted: &ProvidedClient) -> bool {
    let derived = wanted.made_for.split_once('/').is_some_and(|(namespace, app)| {
        [
            derived::oidc_client(app, namespace),
            derived::spa_client(app, namespace),
            derived::device_client(app, namespace),
        ]
        .contains(&wanted.client_id)
    });
    let hosts = |client: &Value| -> BTreeSet<String> {
        let uris = client["redirectUris"].as_array().into_iter().flatten().filter_map(Value::as_str);
        uris.filter_map(|uri| Some(uri.split_once("://")?.1.split(['/', ':']).next()?.to_owned())).collect()
    };
    derived || client["attributes"][MADE_FOR].is_string() || hosts(client).is_subset(&hosts(&wanted.body))
}

fn kept(found: &Value, wanted: &ProvidedClient) -> Value {
    let mut client = found.clone();
    for field in &wanted.kept {
        let value = wanted.body[field].clone();
        if *field == "attributes" {
            for (name, value) in value.as_object().into_iter().flatten() {
                client["attributes"][name] = value.clone();
            }
        } else {
            client[*field] = value;
        }
    }
    client
}

/// Every scope that is not there is made; all become default scopes of the client.
async fn scopes(admin: &Admin<'_>, client: &str, wanted: &[String]) -> Result<(), Fault> {
    if wanted.is_empty() {
        return Ok(());
    }
    let all = admin.get("/client-scopes").await?;
    let defaults = admin.get(&format!("/clients/{client}/default-client-scopes")).await?;
    for name in wanted {
        let named = |list: &Value| list.as_array()?.iter().find(|scope| scope["name"] == **name).cloned();
        let id = if let Some(scope) = named(&all) {
            id_of(&scope)?
        } else {
            let scope = json!({
                "name": name,
                "description": "Managed by nebari-operator",
                "protocol": "openid-connect",
                "attributes": { "include.in.token.scope": "true" },
            });
            admin.post("/client-scopes", &scope).await?
        };
        if named(&defaults).is_none() {
            admin.put(&format!("/clients/{client}/default-client-scopes/{id}"), &json!({})).await?;
        }
    }
    Ok(())
}

async fn mappers(admin: &Admin<'_>, client: &str, wanted: &[Value]) -> Result<(), Fault> {
    if wanted.is_empty() {
        return Ok(());
    }
    let path = format!("/clients/{client}/protocol-mappers/models");
    let present = admin.get(&path).await?;
    for mapper in wanted {
        match present.as_array().into_iter().flatten().find(|one| one["name"] == mapper["name"]) {
            Some(found) => {
                let id = id_of(found)?;
                let mut mapper = mapper.clone();
                mapper["id"] = id.as_str().into();
                admin.put(&format!("{path}/{id}"), &mapper).await?;
            }
            None => drop(admin.post(&path, mapper).await?),
        }
    }
    Ok(())
}

/// False when there are users to add, and the group is not one to which they may be added.
async fn group(admin: &Admin<'_>, name: &str, wanted: &ProvidedGroup, made_for: &str) -> Result<bool, Fault> {
    let found = admin.get(&format!("/groups?search={}&exact=true&briefRepresentation=false", encoded(name))).await?;
    let found = found.as_array().into_iter().flatten().find(|group| group["name"] == name).cloned();
    let (id, is_own) = if let Some(found) = found {
        let id = id_of(&found)?;
        let found = admin.get(&format!("/groups/{id}")).await?;
        let owners = found["attributes"][MADE_FOR].as_array();
        (id, owners.is_some_and(|owners| owners.iter().any(|owner| owner == made_for)))
    } else {
        let group = json!({ "name": name, "attributes": { MADE_FOR: [made_for] } });
        (admin.post("/groups", &group).await?, true)
    };
    if wanted.members.is_empty() {
        return Ok(true);
    }
    if !is_own && !wanted.shared {
        return Ok(false);
    }
    let present = admin.get(&format!("/groups/{id}/members?max={MEMBERS}")).await?;
    for user in &wanted.members {
        if present.as_array().into_iter().flatten().any(|member| member["username"] == **user) {
            continue;
        }
        let users = admin.get(&format!("/users?username={}&exact=true", encoded(user))).await?;
        if let Some(user) = users.get(0) {
            admin.put(&format!("/users/{}/groups/{id}", id_of(user)?), &json!({})).await?;
        }
    }
    Ok(true)
}

/// Lets the clients of `peers` that are there exchange their tokens for tokens of this client; without, nobody may.
async fn exchange(admin: &Admin<'_>, client: &str, peers: Option<&[String]>) -> Result<(), Fault> {
    let path = format!("/clients/{client}/management/permissions");
    let Some(peers) = peers else {
        // A provider that has no such permissions has none to take back.
        return match admin.get(&path).await {
            Ok(permissions) if permissions["enabled"] == true => {
                admin.put(&path, &json!({ "enabled": false })).await.map(drop)
            }
            Ok(_) | Err(Fault::Refused { status: 404 | 501, .. }) => Ok(()),
            Err(fault) => Err(fault),
        };
    };
    let permissions = admin.put(&path, &json!({ "enabled": true })).await?;
    let unreadable = || Fault::Unreadable(format!("PUT {path}"));
    let resource = permissions["resource"].as_str().ok_or_else(unreadable)?;
    let permission = permissions["scopePermissions"][EXCHANGE].as_str().ok_or_else(unreadable)?;
    let management = find(admin, "realm-management").await?.ok_or_else(unreadable)?;
    let server = format!("/clients/{}/authz/resource-server", id_of(&management)?);
    let scopes = admin.get(&format!("{server}/scope?name={EXCHANGE}")).await?;
    let scope = scopes.as_array().into_iter().flatten().find(|scope| scope["name"] == EXCHANGE);
    let scope = id_of(scope.ok_or_else(unreadable)?)?;
    let mut policies = Vec::new();
    for peer in peers {
        if let Some(found) = find(admin, peer).await? {
            policies.push(peer_policy(admin, &server, peer, &id_of(&found)?).await?);
        }
    }
    let path = format!("{server}/permission/scope/{permission}");
    let mut body = admin.get(&path).await?;
    body["decisionStrategy"] = "AFFIRMATIVE".into();
    body["resources"] = json!([resource]);
    body["scopes"] = json!([scope]);
    body["policies"] = json!(policies);
    admin.put(&path, &body).await.map(drop)
}

/// The policy that is true of one client.
async fn peer_policy(admin: &Admin<'_>, server: &str, peer: &str, id: &str) -> Result<String, Fault> {
    let name = format!("{peer}-{EXCHANGE}");
    let body = json!({ "name": name, "type": "client", "logic": "POSITIVE", "clients": [id] });
    match admin.post(&format!("{server}/policy/client"), &body).await {
        Err(Fault::Refused { status: 409, .. }) => {
            let found = admin.get(&format!("{server}/policy?name={}", encoded(&name))).await?;
            let found = found.as_array().into_iter().flatten().find(|policy| policy["name"] == name).cloned();
            let found = id_of(&found.ok_or_else(|| Fault::Unreadable(format!("GET {server}/policy")))?)?;
            // The client may have been made anew since.
            let mut body = body;
            body["id"] = found.as_str().into();
            admin.put(&format!("{server}/policy/client/{found}"), &body).await?;
            Ok(found)
        }
        outcome => outcome,
    }
}

fn id_of(object: &Value) -> Result<String, Fault> {
    let id = object["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| Fault::Unreadable("a question for an ID".to_owned()))
}

fn new_secret() -> Result<String, Fault> {
    let mut bytes = [0; SECRET_LENGTH];
    let random = aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| Fault::Secret("the system has no random numbers".to_owned()))?;
    Ok(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_attribute_and_else_by_the_former_operators_name() {
        let made = |attributes: Value, name: &str| json!({ "attributes": attributes, "name": name });
        assert!(is_made_for(&made(json!({ MADE_FOR: "a/b" }), "renamed"), "a/b", "b OIDC Client"));
        assert!(!is_made_for(&made(json!({ MADE_FOR: "c/d" }), "b OIDC Client"), "a/b", "b OIDC Client"));
        assert!(is_made_for(&made(json!({}), "b OIDC Client"), "a/b", "b OIDC Client"));
        assert!(!is_made_for(&made(json!({}), "${client_account}"), "a/b", "b SPA Client"));
        // Keycloak's console leaves the name empty.
        assert!(!is_made_for(&made(json!({}), ""), "a/b", ""));
    }

    #[test]
    fn what_a_client_has_beside_what_is_asked_for_stays() {
        let wanted = ProvidedClient {
            client_id: "a-b".to_owned(),
            made_for: "a/b".to_owned(),
            body: json!({ "redirectUris": ["x"], "publicClient": false, "attributes": { "k": "v" } }),
            kept: vec!["redirectUris", "attributes"],
            scopes: Vec::new(),
            mappers: Vec::new(),
        };
        let found = json!({ "id": "1", "secret": "s", "publicClient": true, "attributes": { "own": "1" } });
        let written = kept(&found, &wanted);
        assert_eq!(written["attributes"], json!({ "own": "1", "k": "v" }));
        assert_eq!((&written["secret"], &written["publicClient"]), (&json!("s"), &json!(true)));
        assert_eq!(written["redirectUris"], json!(["x"]));
    }

    #[test]
    fn a_new_secret_is_of_the_contracts_form() {
        let secret = new_secret().unwrap();
        assert!(secret.len() == SECRET_LENGTH && secret.bytes().all(|byte| ALPHABET.contains(&byte)), "{secret}");
        assert_ne!(secret, new_secret().unwrap());
    }
}
