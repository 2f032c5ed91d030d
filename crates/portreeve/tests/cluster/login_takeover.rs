//! Apps with sign-in that the former operator left: nothing is made anew, and nobody loses a session.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context, ensure};
use hyper::Method;
use portreeve_testkit::keycloak::{PORT as KEYCLOAK_PORT, REALM, SERVICE};
use portreeve_testkit::{Bed, Channel, eventually};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::login::{app, arguments, hostname};
use crate::migration::add_former_entry;
use crate::support::{Browser, ENVOY_GATEWAY, GATEWAY_API, ISSUER, Intruder, NEBARI, Operator, PORT, Platform, Team};

/// How long an app may take to move, with the wait for old connections.
const LONG: Duration = Duration::from_mins(3);

#[tokio::test(flavor = "multi_thread")]
async fn apps_of_the_former_operator_keep_their_clients_and_sessions() {
    let platform = Platform::start_on(Bed::builder().with_keycloak().gateway_api(Channel::Standard)).await.unwrap();
    let outcome = takeover(&platform).await;
    outcome.unwrap();
    let outcome = moving(&platform).await;
    outcome.unwrap();
}

async fn takeover(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "former").await?;
    let name = hostname(&team, "web");
    let client = leave(platform, &team, &name, "https").await?;
    let url = format!("https://{name}/private");
    let mut alice = signed_in(platform, &url).await?;
    let before = (secret(&team).await?, policy(&team).await?);
    let intruder = Intruder::start(platform.bed.gateway_address(443)?, &name, "/private");

    let arguments = arguments(platform).await?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut operator = Operator::start(&platform.bed, "operator", &arguments)?;
    operator.wait_ready().await?;
    team.wait("web", &[("AuthReady", "True", "AuthConfigured"), ("Ready", "True", "ReconcileSuccess")]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
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

/// An app with sign-in moves from the former operator's listener to its own: alice is served all the time, and nobody gets
/// in who has not signed in. traps: 16.
async fn moving(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "moving").await?;
    let name = hostname(&team, "web");
    add_former_entry(&platform.bed, "tls-web-moving", &name, ("moving", "nebari-gateway-tls")).await?;
    leave(platform, &team, &name, "tls-web-moving").await?;
    let url = format!("https://{name}/private");
    let mut alice = signed_in(platform, &url).await?;
    let intruder = Intruder::start(platform.bed.gateway_address(443)?, &name, "/private");

    let mut arguments = arguments(platform).await?;
    arguments.extend(["--migrate-legacy-listeners=force".to_owned(), format!("--cluster-issuer={ISSUER}")]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut operator = Operator::start(&platform.bed, "mover", &arguments)?;
    operator.wait_ready().await?;
    let over = Cell::new(false);
    let move_over = async {
        let expected = [("TLSReady", "True", "TLSConfigured"), ("Ready", "True", "ReconcileSuccess")];
        let done = eventually("the app has moved", LONG, async || team.wait("web", &expected).await).await;
        over.set(true);
        done
    };
    let ask = async {
        let (mut asked, mut failures) = (0, Vec::new());
        while !over.get() {
            asked += 1;
            match alice.get(&url).await {
                Ok(page) if page.status == 200 && page.body.contains("Welcome to moving") => {}
                outcome => failures.push(format!("{outcome:?}")),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        ensure!(
            asked > 10 && failures.is_empty(),
            "{} of {asked} of alice's requests failed: {failures:#?}",
            failures.len()
        );
        Ok(())
    };
    let (moved, served) = tokio::join!(move_over, ask);
    moved.with_context(|| operator.log())?;
    served.with_context(|| operator.log())?;
    intruder.use_old_connections().await;
    ensure!(intruder.count(302) > 0, "{}", intruder.summary());
    intruder.assert_kept_out();
    let route = team.must_get(GATEWAY_API, "HTTPRoute", "web-route").await?;
    ensure!(route["spec"]["parentRefs"].as_array().map(Vec::len) == Some(1), "{route}");
    assert_eq!(route["spec"]["parentRefs"][0]["kind"], "ListenerSet", "{route}");
    team.wait_gone(GATEWAY_API, "HTTPRoute", "web-route.next").await?;
    operator.stop().await
}

/// A browser in which alice has signed in.
async fn signed_in<'p>(platform: &'p Platform, url: &str) -> anyhow::Result<Browser<'p>> {
    eventually("alice signs in before", Duration::from_mins(1), async || {
        let mut browser = Browser::new(platform);
        let page = browser.sign_in(url, "alice").await?;
        ensure!(page.status == 200 && page.body.contains("Welcome to"), "{page:?}");
        Ok(browser)
    })
    .await
}

async fn secret(team: &Team<'_>) -> anyhow::Result<Value> {
    team.must_get("v1", "Secret", "web-oidc-client").await
}

async fn policy(team: &Team<'_>) -> anyhow::Result<Value> {
    team.must_get(ENVOY_GATEWAY, "SecurityPolicy", "web-security").await
}

/// Everything as the former operator makes it (nebariapp A.6), served by a listener of the Gateway; returns the client.
async fn leave(platform: &Platform, team: &Team<'_>, name: &str, section: &str) -> anyhow::Result<Value> {
    let id = format!("{}-web", team.namespace);
    let bed = &platform.bed;
    let keycloak = bed.keycloak()?;
    let client = json!({
        "clientId": id, "name": "web OIDC Client", "secret": "0123456789abcdef0123456789abcdef", "enabled": true,
        "protocol": "openid-connect", "publicClient": false, "standardFlowEnabled": true, "directAccessGrantsEnabled": false,
        "redirectUris": [format!("https://{name}/oauth2/callback"), format!("http://{name}/oauth2/callback")],
        "webOrigins": ["*"], "attributes": {"post.logout.redirect.uris": format!("https://{name}/*##http://{name}/*")},
    });
    keycloak.admin(Method::POST, &format!("/{REALM}/clients"), Some(client)).await?;
    let client = keycloak.client(&id).await?.context("the client is there")?;
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
        "stringData": {"client-id": id, "client-secret": "0123456789abcdef0123456789abcdef", "issuer-url": ""}});
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
            "clientID": id,
            "clientSecret": {"group": "", "kind": "Secret", "name": "web-oidc-client", "namespace": team.namespace},
            "redirectURL": format!("https://{name}/oauth2/callback"), "logoutPath": "/logout",
            "scopes": ["openid", "profile", "email"],
        },
    }});
    policy["metadata"]["ownerReferences"] = owner.clone();
    let mut route = json!({"apiVersion": GATEWAY_API, "kind": "HTTPRoute", "metadata": meta("web-route"), "spec": {
        "parentRefs": [{"name": "nebari-gateway", "namespace": "envoy-gateway-system", "sectionName": section}],
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
