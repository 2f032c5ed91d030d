//! The identity provider away or wrongly set up: what apps say, and what `portreeve doctor` finds.

use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::Method;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use portreeve_testkit::keycloak::ADMIN;
use portreeve_testkit::{Part, eventually};
use serde_json::{Value, json};

use crate::commands;
use crate::login::{app, hostname};
use crate::support::{Browser, NEBARI, Platform, Team, message};

/// How long a deleted app waits for the provider here.
pub(crate) const REMOVAL: &str = "--keycloak-removal-timeout=30s";
/// Of the administrator who comes later.
pub(crate) const NEW_PASSWORD: &str = "second-of-the-bed";
/// How long a change may take from the API to the gateway's sockets.
const WAY: Duration = Duration::from_mins(1);

/// An app is deleted while Keycloak is away: it says so, and goes after a while; what runs goes on, and doctor finds what
/// is left.
pub(crate) async fn away(platform: &Platform, arguments: &[&str]) -> anyhow::Result<()> {
    let team = Team::new(platform, "away").await?;
    for name in ["goes", "stays"] {
        platform.bed.apply(&app(&team, name, json!({"tls": {}}), json!({"enabled": true})).to_string()).await?;
    }
    for name in ["goes", "stays"] {
        team.wait_ready(name).await?;
    }
    doctor_on_a_wrong_setup(platform, arguments).await?;

    platform.bed.kill(Part::Keycloak);
    team.delete(NEBARI, "NebariApp", "goes").await?;
    let told = team.wait("goes", &[("AuthReady", "False", "ProvisioningFailed")]).await?;
    ensure!(message(&told, "AuthReady").contains("cannot be reached"), "{told}");
    ensure!(found(platform, arguments, &[]).await?.contains("cannot be reached"), "doctor does not say it");
    team.wait_gone(NEBARI, "NebariApp", "goes").await?;
    let events: Api<Event> = Api::namespaced(platform.bed.client(), &team.namespace);
    eventually("an event names what is left", WAY, async || {
        let events = events.list(&ListParams::default()).await?.items;
        let event = events.iter().find(|event| event.reason.as_deref() == Some("ClientsLeftBehind"));
        let text = event.and_then(|event| event.message.clone()).context("there is no such event")?;
        ensure!(text.contains("away-goes"), "{text}");
        Ok(())
    })
    .await?;
    let url = format!("https://{}/", hostname(&team, "stays"));
    let page = Browser::new(platform).get(&url).await?;
    ensure!(page.status == 302, "nobody is sent to sign in: {page:?}");

    platform.bed.start(Part::Keycloak).await?;
    let left = found(platform, arguments, &[]).await?;
    ensure!(left.contains("away-goes") && !left.contains("away-stays"), "{left}");
    let page = Browser::new(platform).sign_in(&url, "alice").await?;
    ensure!(page.status == 200 && page.body.contains("Welcome to away"), "{page:?}");
    Ok(())
}

/// The administrator gets another name and password while the operator runs: the Secret says so, and nothing is restarted.
pub(crate) async fn new_password(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "password").await?;
    let keycloak = platform.bed.keycloak()?;
    let user = json!({
        "username": "second", "enabled": true,
        "credentials": [{"type": "password", "value": NEW_PASSWORD, "temporary": false}],
    });
    keycloak.admin(Method::POST, "/master/users", Some(user)).await?;
    let found = keycloak.admin(Method::GET, "/master/users?username=second&exact=true", None).await?;
    let id = found[0]["id"].as_str().context("the user is there")?;
    let role = keycloak.admin(Method::GET, "/master/roles/admin", None).await?;
    let path = format!("/master/users/{id}/role-mappings/realm");
    keycloak.admin(Method::POST, &path, Some(json!([role]))).await?;
    let secret = |username: &str, password: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": "keycloak", "name": "nebari-realm-admin-credentials"},
            "stringData": {"username": username, "password": password},
        })
    };
    let auth = json!({"enabled": true});
    platform.bed.apply(&secret("second", "no longer this").to_string()).await?;
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), auth).to_string()).await?;
    let told = team.wait("web", &[("AuthReady", "False", "ProvisioningFailed")]).await?;
    ensure!(message(&told, "AuthReady").contains("refuses the administrator"), "{told}");
    platform.bed.apply(&secret("second", NEW_PASSWORD).to_string()).await?;
    team.wait("web", &[("AuthReady", "True", "AuthConfigured")]).await?;
    ensure!(keycloak.client("password-web").await?.is_some(), "the client is not there");
    platform.bed.apply(&secret(ADMIN.0, ADMIN.1).to_string()).await
}

/// Every mistake has a finding of its own.
async fn doctor_on_a_wrong_setup(platform: &Platform, arguments: &[&str]) -> anyhow::Result<()> {
    let well = found(platform, arguments, &[]).await?;
    ensure!(well.is_empty(), "nothing is wrong, and doctor says {well}");
    let nobody = json!({
        "username": "nobody", "enabled": true, "credentials": [{"type": "password", "value": "nobody", "temporary": false}],
    });
    platform.bed.keycloak()?.admin(Method::POST, "/master/users", Some(nobody)).await?;
    for (secret, username, password) in [("wrong", ADMIN.0, "wrong"), ("no-admin", "nobody", "nobody")] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "keycloak", "name": secret},
            "stringData": {"username": username, "password": password},
        });
        platform.bed.apply(&secret.to_string()).await?;
    }
    let mistakes: [(&[&str], &str, &str); 5] = [
        (&["--keycloak-url=http://127.0.0.1:9"], "cannot be reached", "set KEYCLOAK_URL"),
        (&["--keycloak-realm=nowhere"], "answers 404", "create realm nowhere"),
        (&["--keycloak-admin-secret-name=wrong"], "refuses the administrator", "Secret keycloak/wrong"),
        (&["--keycloak-admin-secret-name=no-admin"], "answers 403", "realm-admin"),
        (&["--keycloak-external-url=http://elsewhere.example.test"], "it calls itself http://", "KC_HOSTNAME"),
    ];
    for (mistake, finding, to_do) in mistakes {
        let said = found(platform, arguments, mistake).await?;
        ensure!(said.contains(finding) && said.contains(to_do), "{mistake:?}: doctor says {said}");
    }
    Ok(())
}

/// What doctor says about Keycloak; of two values of an option the later one counts.
async fn found(platform: &Platform, arguments: &[&str], mistake: &[&str]) -> anyhow::Result<String> {
    let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let is_replaced = |argument: &&&str| mistake.iter().any(|other| name(other) == name(argument));
    let kept = arguments.iter().filter(|argument| !is_replaced(argument));
    let arguments: Vec<&str> = ["-o", "json"].into_iter().chain(kept.chain(mistake).copied()).collect();
    let output = commands::portreeve(&platform.bed, "doctor", &platform.bed.kubeconfig(), &arguments).await?;
    let printed: Value = serde_json::from_slice(&output.stdout).with_context(|| commands::text(&output))?;
    let advice = printed["advice"].as_array().context("there is advice")?.iter();
    Ok(advice.filter(|one| one["subject"] == "Keycloak").map(Value::to_string).collect())
}
