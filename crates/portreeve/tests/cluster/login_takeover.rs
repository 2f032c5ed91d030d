//! Apps with sign-in that the former operator left: nothing is made anew, and nobody loses a session.

use anyhow::{Context, ensure};
use hyper::Method;
use portreeve_testkit::keycloak::{PORT as KEYCLOAK_PORT, REALM, SERVICE};
use portreeve_testkit::{Bed, Channel};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::login::{app, arguments, hostname};
use crate::support::{Browser, ENVOY_GATEWAY, GATEWAY_API, Intruder, NEBARI, Operator, PORT, Platform, Team};

#[tokio::test(flavor = "multi_thread")]
async fn apps_of_the_former_operator_keep_their_clients_and_sessions() {
    let platform = Platform::start_on(Bed::builder().with_keycloak().gateway_api(Channel::Standard)).await.unwrap();
    let outcome = takeover(&platform).await;
    outcome.unwrap();
}

async fn takeover(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "former").await?;
    let name = hostname(&team, "web");
    let client = leave(platform, &team, &name).await?;
    let url = format!("https://{name}/private");
    let mut alice = Browser::new(platform);
    let page = portreeve_testkit::eventually("alice signs in before", std::time::Duration::from_mins(1), async || {
        let mut browser = Browser::new(platform);
        let page = browser.sign_in(&url, "alice").await?;
        ensure!(page.status == 200, "{page:?}");
        alice = browser;
        Ok(page)
    })
    .await?;
    ensure!(page.body.contains("Welcome to former"), "{page:?}");
    let before = (secret(&team).await?, policy(&team).await?);
    let intruder = Intruder::start(platform.bed.gateway_address(443)?, &name, "/private");

    let arguments = arguments(platform).await?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut operator = Operator::start(&platform.bed, "operator", &arguments)?;
    operator.wait_ready().await?;
    team.wait("web", &[("AuthReady", "True", "AuthConfigured"), ("Ready", "True", "ReconcileSuccess")]).await?;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let page = alice.get(&url).await?;
    ensure!(page.status == 200 && page.body.contains("Welcome to former"), "alice is not signed in any more: {page:?}");
    intruder.use_old_connections().await;
    intruder.assert_kept_out();
    ensure!(intruder.count(302) > 0 && intruder.count(500) == 0, "{}", intruder.summary());

    let after = (secret(&team).await?, policy(&team).await?);
    assert_eq!(
        after.0["metadata"]["resourceVersion"], before.0["metadata"]["resourceVersion"],
        "the Secret is as it was"
    );
    assert_eq!(after.1["metadata"]["uid"], before.1["metadata"]["uid"], "the policy is the same");
    let now = platform.bed.keycloak()?.client("former-web").await?.context("the client is there")?;
    assert_eq!(now, client, "the client is as it was");
    operator.stop().await
}

async fn secret(team: &Team<'_>) -> anyhow::Result<Value> {
    team.must_get("v1", "Secret", "web-oidc-client").await
}

async fn policy(team: &Team<'_>) -> anyhow::Result<Value> {
    team.must_get(ENVOY_GATEWAY, "SecurityPolicy", "web-security").await
}

/// Everything as the former operator makes it (nebariapp A.6); returns the client.
async fn leave(platform: &Platform, team: &Team<'_>, name: &str) -> anyhow::Result<Value> {
    let bed = &platform.bed;
    let keycloak = bed.keycloak()?;
    let client = json!({
        "clientId": "former-web", "name": "web OIDC Client", "secret": "0123456789abcdef0123456789abcdef", "enabled": true,
        "protocol": "openid-connect", "publicClient": false, "standardFlowEnabled": true, "directAccessGrantsEnabled": false,
        "redirectUris": [format!("https://{name}/oauth2/callback"), format!("http://{name}/oauth2/callback")],
        "webOrigins": ["*"], "attributes": {"post.logout.redirect.uris": format!("https://{name}/*##http://{name}/*")},
    });
    keycloak.admin(Method::POST, &format!("/{REALM}/clients"), Some(client)).await?;
    let client = keycloak.client("former-web").await?.context("the client is there")?;
    bed.apply(&app(team, "web", json!({"tls": {}}), json!({"enabled": true})).to_string()).await?;
    let found = team.must_get(NEBARI, "NebariApp", "web").await?;
    let owner = json!([{
        "apiVersion": NEBARI, "kind": "NebariApp", "name": "web", "uid": found["metadata"]["uid"], "controller": true,
        "blockOwnerDeletion": true,
    }]);
    let labels = json!({
        "app.kubernetes.io/name": "nebariapp", "app.kubernetes.io/instance": "web",
        "app.kubernetes.io/managed-by": "nebari-operator",
    });
    let meta = |object: &str| json!({"namespace": team.namespace, "name": object});
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta("web-oidc-client"),
        "stringData": {"client-id": "former-web", "client-secret": "0123456789abcdef0123456789abcdef", "issuer-url": ""}});
    secret["metadata"]["labels"] = labels.clone();
    let (inside, outside) =
        (format!("http://{SERVICE}:{KEYCLOAK_PORT}/realms/{REALM}"), format!("{}/realms/{REALM}", keycloak.url()));
    let mut policy = json!({"apiVersion": ENVOY_GATEWAY, "kind": "SecurityPolicy", "metadata": meta("web-security"), "spec": {
        "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web-route"}],
        "oidc": {
            "provider": {
                // Envoy Gateway 1.9 does not take what the former operator wrote, http.
                "issuer": inside.replacen("http", "https", 1),
                "tokenEndpoint": format!("{inside}/protocol/openid-connect/token"),
                "authorizationEndpoint": format!("{outside}/protocol/openid-connect/auth"),
                "endSessionEndpoint": format!("{outside}/protocol/openid-connect/logout"),
            },
            "clientID": "former-web",
            "clientSecret": {"group": "", "kind": "Secret", "name": "web-oidc-client", "namespace": team.namespace},
            "redirectURL": format!("https://{name}/oauth2/callback"), "logoutPath": "/logout",
            "scopes": ["openid", "profile", "email"],
        },
    }});
    policy["metadata"]["ownerReferences"] = owner.clone();
    let mut route = json!({"apiVersion": GATEWAY_API, "kind": "HTTPRoute", "metadata": meta("web-route"), "spec": {
        "parentRefs": [{"name": "nebari-gateway", "namespace": "envoy-gateway-system", "sectionName": "https"}],
        "hostnames": [name],
        "rules": [{"backendRefs": [{"name": "web", "port": PORT}]}],
    }});
    route["metadata"]["ownerReferences"] = owner;
    route["metadata"]["labels"] = labels;
    route["metadata"]["annotations"] = json!({"nebari.dev/tls-enabled": "true"});
    for object in [secret, policy, route] {
        bed.apply(&object.to_string()).await?;
    }
    let text = format!(
        "{{\"namespace\":\"{}\",\"name\":\"web\",\"hostname\":\"{name}\",\"provider\":\"keycloak\",\"redirectURI\":\"\",\
         \"issuerURL\":\"\",\"scopes\":null,\"groups\":null}}",
        team.namespace
    );
    let hash = Sha256::digest(text).iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    let status = json!({"apiVersion": NEBARI, "kind": "NebariApp", "metadata": meta("web"), "status": {
        "observedGeneration": 1, "hostname": name, "authConfigHash": hash,
        "conditions": [{"type": "AuthReady", "status": "True", "reason": "AuthConfigured", "observedGeneration": 1,
            "message": "Authentication configured with provider keycloak", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }});
    bed.apply_status(&status.to_string()).await?;
    Ok(client)
}
