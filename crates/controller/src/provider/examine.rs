//! What people should do about the identity provider.

use std::collections::BTreeSet;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use kube::Client;
use portreeve_api::names::labels::MADE_FOR;
use portreeve_plan::{Advice, Severity, World};
use serde_json::Value;
use tokio::time::timeout;

use super::{Admin, Fault, Http, KeycloakAdmin, http, secret};

/// What is asked to learn whether the administrator may do what apps need, below the realm.
const QUESTIONS: [&str; 4] = ["/clients?max=1", "/client-scopes", "/groups?max=1", "/users?max=1"];
/// The most clients of which it is found out whose they are.
const CLIENTS: usize = 2000;

/// Asks Keycloak, and changes nothing there. `browsers` is the realm's URL for them; `world` tells which apps there are.
pub async fn examine_keycloak(
    client: &Client,
    settings: &KeycloakAdmin,
    browsers: Option<&str>,
    world: &World,
) -> Vec<Advice> {
    let http = http();
    let mut found = Vec::new();
    match administrator(client, &http, settings).await {
        Ok(clients) => found.extend(left_behind(&clients, world)),
        Err(advice) => found.push(advice),
    }
    found.extend(issuer(&http, settings, browsers).await);
    found
}

/// The clients of the realm, where the administrator may do everything that is needed.
async fn administrator(client: &Client, http: &Http, settings: &KeycloakAdmin) -> Result<Value, Advice> {
    let to_do = |fault: &Fault| match fault {
        Fault::Unreachable(_) => "set KEYCLOAK_URL to where the operator reaches it, and see that it runs".to_owned(),
        Fault::Credentials | Fault::Secret(_) => {
            let (namespace, name) = &settings.secret;
            format!("put the username and password of an administrator of realm master into Secret {namespace}/{name}")
        }
        Fault::Refused { status: 404, .. } => format!("create realm {}, or set KEYCLOAK_REALM", settings.realm),
        Fault::Refused { status: 401 | 403, .. } => {
            format!("give the administrator the role of realm-admin of realm {}", settings.realm)
        }
        Fault::Refused { .. } | Fault::Unreadable(_) | Fault::Foreign(_) => "see what Keycloak logs".to_owned(),
    };
    let asked = async {
        let credentials = secret::credentials(client, settings).await?;
        let place = (settings.url.as_str(), settings.realm.as_str());
        let admin = Admin::sign_in(http, place, settings.patience, &credentials).await?;
        admin.get("").await?;
        for question in QUESTIONS {
            admin.get(question).await?;
        }
        admin.get(&format!("/clients?max={CLIENTS}")).await
    };
    asked.await.map_err(|fault| Advice::new(Severity::Required, "Keycloak", fault.to_string(), to_do(&fault)))
}

/// Clients of apps that are gone.
fn left_behind(clients: &Value, world: &World) -> Option<Advice> {
    let apps: BTreeSet<String> = world
        .apps
        .iter()
        .map(|app| {
            let (namespace, name) = (app.metadata.namespace.as_deref(), app.metadata.name.as_deref());
            format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
        })
        .collect();
    let is_orphan = |client: &&Value| client["attributes"][MADE_FOR].as_str().is_some_and(|app| !apps.contains(app));
    let orphans = clients.as_array().into_iter().flatten().filter(is_orphan);
    let names: Vec<_> = orphans.filter_map(|client| client["clientId"].as_str()).take(10).collect();
    (!names.is_empty()).then(|| {
        let finding = format!("it has clients of apps that are gone: {}", names.join(", "));
        Advice::new(Severity::Advised, "Keycloak", finding, "delete them")
    })
}

/// Whether browsers and apps see the issuer that they are told of.
async fn issuer(http: &Http, settings: &KeycloakAdmin, browsers: Option<&str>) -> Option<Advice> {
    let Some(expected) = browsers else {
        let finding = "browsers are not told where it is: the gateway asks it at every change, and Envoy Gateway 1.9 does \
                       so only over HTTPS";
        return Some(Advice::new(Severity::Advised, "Keycloak", finding, "set KEYCLOAK_EXTERNAL_URL"));
    };
    let inside = format!("{}/realms/{}", settings.url, settings.realm);
    // Tokens are asked for inside: what it calls itself there is what they say.
    let seen = match discovered_issuer(http, settings, &inside).await {
        Some(seen) => seen,
        None => discovered_issuer(http, settings, expected).await?,
    };
    (seen != expected).then(|| {
        let finding = format!("it calls itself {seen}, and browsers are told {expected}");
        Advice::new(
            Severity::Required,
            "Keycloak",
            finding,
            "set its hostname (KC_HOSTNAME) and KEYCLOAK_EXTERNAL_URL to the same URL",
        )
    })
}

/// Nothing where it cannot be asked: browsers may reach what the operator does not.
async fn discovered_issuer(http: &Http, settings: &KeycloakAdmin, realm: &str) -> Option<String> {
    let request = Request::get(format!("{realm}/.well-known/openid-configuration"));
    let request = request.body(Full::<Bytes>::default()).ok()?;
    let asked = async {
        let answer = http.request(request).await.ok()?;
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        serde_json::from_slice::<Value>(&body).ok()
    };
    let document = timeout(settings.patience, asked).await.ok()??;
    document["issuer"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn clients_of_apps_that_are_gone_are_named() {
        let clients = json!([
            {"clientId": "account"},
            {"clientId": "a-b", "attributes": {MADE_FOR: "a/b"}},
        ]);
        let found = left_behind(&clients, &World::default()).unwrap();
        assert_eq!(found.finding, "it has clients of apps that are gone: a-b");
        assert_eq!(left_behind(&json!([]), &World::default()), None);
    }
}
