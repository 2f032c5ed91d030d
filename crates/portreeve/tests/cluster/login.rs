//! Sign-in in front of apps: the real Keycloak, Envoy Gateway and Envoy, a scripted browser, and clients that try to get
//! past it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use hyper::Method;
use portreeve_testkit::keycloak::{ADMIN, REALM};
use portreeve_testkit::{Bed, Channel, Part, eventually, fixtures};
use serde_json::{Value, json};

use crate::login_provider::{NEW_PASSWORD, REMOVAL, away, new_password};
use crate::support::{
    Browser, Chromium, ENVOY_GATEWAY, GATEWAY_API, Intruder, NEBARI, Operator, Page, Platform, Team, has, issuer,
    message, say, side_by_side,
};

/// How long a change may take from the API to the gateway's sockets, with the wait for old connections.
const WAY: Duration = Duration::from_mins(1);
/// Longer than the drain time of the bed's Envoy, so that the order of things is what keeps intruders out.
const DRAIN: &str = "--gateway-drain-time=6s";

#[tokio::test(flavor = "multi_thread")]
async fn visitors_sign_in() {
    let platform = Platform::start_on(Bed::builder().with_keycloak().gateway_api(Channel::Standard)).await.unwrap();
    let mut arguments = arguments(&platform).await.unwrap();
    arguments.push(REMOVAL.to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut operator = Operator::start(&platform.bed, "operator", &arguments).unwrap();
    operator.wait_ready().await.unwrap();
    side_by_side(
        vec![
            ("the_contract_of_the_former_operator_holds", contract(&platform).boxed_local()),
            ("an_app_without_its_secret_says_so", no_secret(&platform).boxed_local()),
            ("members_get_in_and_others_do_not", groups(&platform).boxed_local()),
            ("two_apps_in_two_tabs_do_not_disturb_each_other", tabs(&platform).boxed_local()),
            ("a_real_browser_signs_in_and_out_in_two_tabs", chromium(&platform).boxed_local()),
            ("clients_of_others_are_left_alone", foreign_client(&platform).boxed_local()),
            ("clients_go_with_their_app", leaving(&platform).boxed_local()),
            ("a_device_signs_in_and_its_token_is_exchanged", device(&platform).boxed_local()),
        ],
        || operator.log(),
    )
    .await;
    let outcome = new_password(&platform).await;
    outcome.unwrap_or_else(|error| panic!("{error:?}\n--- the operator ---\n{}", operator.log()));
    let outcome = away(&platform, &arguments).await;
    outcome.unwrap_or_else(|error| panic!("{error:?}\n--- the operator ---\n{}", operator.log()));
    let log = operator.log();
    assert!(![ADMIN.1, NEW_PASSWORD, "eyJ"].iter().any(|secret| log.contains(secret)), "a secret is in the log");
    operator.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gets_in_without_signing_in() {
    let platform = Platform::start_on(Bed::builder().with_keycloak().gateway_api(Channel::Standard)).await.unwrap();
    platform.bed.apply(&issuer("apps")).await.unwrap();
    let mut arguments = arguments(&platform).await.unwrap();
    arguments.push("--cluster-issuer=apps".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut operator = Operator::start(&platform.bed, "operator", &arguments).unwrap();
    operator.wait_ready().await.unwrap();
    let outcome = never_open(&platform, operator, &arguments).await;
    outcome.unwrap();
}

/// What the operator is told of the bed's Keycloak; makes the Secret of its administrator.
pub(crate) async fn arguments(platform: &Platform) -> anyhow::Result<Vec<String>> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": "keycloak", "name": "nebari-realm-admin-credentials"},
        "stringData": {"username": ADMIN.0, "password": ADMIN.1},
    });
    platform.bed.apply(&fixtures::namespace("keycloak")).await?;
    platform.bed.apply(&secret.to_string()).await?;
    let url = platform.bed.keycloak()?.url();
    Ok(vec![format!("--keycloak-url={url}"), format!("--keycloak-external-url={url}"), DRAIN.to_owned()])
}

/// An app with sign-in.
pub(crate) fn app(team: &Team<'_>, name: &str, routing: Value, auth: Value) -> Value {
    let mut app = team.app(name, &hostname(team, name), routing);
    app["spec"]["auth"] = auth;
    app
}

pub(crate) fn hostname(team: &Team<'_>, name: &str) -> String {
    format!("{name}.{}.example.test", team.namespace)
}

/// nebariapp A.11 #12, #14
async fn contract(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "sign-in").await?;
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), json!({"enabled": true})).to_string()).await?;
    let found =
        team.wait("web", &[("AuthReady", "True", "AuthConfigured"), ("Ready", "True", "ReconcileSuccess")]).await?;
    let hash = found["status"]["authConfigHash"].as_str().context("there is a hash")?.to_owned();
    ensure!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    let secret = team.must_get("v1", "Secret", "web-oidc-client").await?;
    ensure!(secret["data"]["client-secret"].as_str().is_some_and(|value| !value.is_empty()), "no client-secret");
    let policy = team.must_get(ENVOY_GATEWAY, "SecurityPolicy", "web-security").await?;
    let spec = &policy["spec"];
    assert_eq!(spec["targetRefs"][0]["name"], "web-route");
    assert_eq!(spec["oidc"]["clientSecret"]["name"], "web-oidc-client");
    let issuer = spec["oidc"]["provider"]["issuer"].as_str().unwrap_or_default();
    ensure!(issuer.contains("keycloak"), "{issuer}");
    for scope in ["openid", "profile", "email"] {
        ensure!(spec["oidc"]["scopes"].as_array().is_some_and(|scopes| scopes.contains(&json!(scope))), "no {scope}");
    }
    let client = platform.bed.keycloak()?.client("sign-in-web").await?.context("the client is there")?;
    assert_eq!(client["name"], "web OIDC Client");
    assert_eq!(client["redirectUris"].as_array().map(Vec::len), Some(2), "{client}");

    platform
        .bed
        .apply(&app(&team, "web", json!({"tls": {}}), json!({"enabled": true, "redirectURI": "/cb"})).to_string())
        .await?;
    let holds = |object: &Value| {
        object["status"]["authConfigHash"] != *hash && has(object, ("AuthReady", "True", "AuthConfigured"))
    };
    let name = team.named("web");
    platform.bed.wait_for(NEBARI, "NebariApp", &name, "has another hash", holds).await?;
    let client = platform.bed.keycloak()?.client("sign-in-web").await?.context("the client is there")?;
    ensure!(client["redirectUris"][0].as_str().is_some_and(|url| url.ends_with("/cb")), "{client}");

    let mut again = app(&team, "web", json!({"tls": {}}), json!({"enabled": true, "redirectURI": "/cb"}));
    again["metadata"]["annotations"] = json!({"nebari.dev/force-reprovision": "now"});
    platform.bed.apply(&again.to_string()).await?;
    let holds = |object: &Value| {
        let annotations = &object["metadata"]["annotations"];
        annotations["nebari.dev/force-reprovision"].is_null() && has(object, ("AuthReady", "True", "AuthConfigured"))
    };
    platform.bed.wait_for(NEBARI, "NebariApp", &name, "has lost the annotation", holds).await?;
    // The same value again, after somebody has changed the client at the provider.
    let keycloak = platform.bed.keycloak()?;
    let mut client = keycloak.client("sign-in-web").await?.context("the client is there")?;
    client["redirectUris"] = json!(["https://elsewhere.example.test/"]);
    let id = client["id"].as_str().context("it has an ID")?.to_owned();
    keycloak.admin(Method::PUT, &format!("/{REALM}/clients/{id}"), Some(client)).await?;
    platform.bed.apply(&again.to_string()).await?;
    platform.bed.wait_for(NEBARI, "NebariApp", &name, "has lost the annotation again", holds).await?;
    let client = keycloak.client("sign-in-web").await?.context("the client is there")?;
    ensure!(client["redirectUris"][0].as_str().is_some_and(|url| url.ends_with("/cb")), "not made again: {client}");
    let after = team.must_get("v1", "Secret", "web-oidc-client").await?;
    assert_eq!(after["data"]["client-secret"], secret["data"]["client-secret"], "the client keeps its secret");
    let page = Browser::new(platform).sign_in(&format!("https://{}/a?b=c", hostname(&team, "web")), "bob").await?;
    ensure!(page.status == 200 && page.body.contains("Welcome to sign-in"), "{page:?}");
    Ok(())
}

/// nebariapp A.11 #13
async fn no_secret(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "no-secret").await?;
    let auth = json!({"enabled": true, "provisionClient": false});
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), auth).to_string()).await?;
    let found = team.wait("web", &[("AuthReady", "False", "ValidationFailed")]).await?;
    let text = message(&found, "AuthReady");
    ensure!(text.contains("secret") && text.contains("not found"), "{text}");
    Ok(())
}

/// Groups, public paths, redirects that are refused, signing out.
async fn groups(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "members").await?;
    let routing = json!({"tls": {}, "publicRoutes": [{"pathPrefix": "/public", "pathType": "PathPrefix"}]});
    let auth = json!({
        "enabled": true, "groups": ["staff"],
        "denyRedirect": [{"name": "X-Requested-With", "value": "XMLHttpRequest"}],
    });
    platform.bed.apply(&app(&team, "web", routing, auth).to_string()).await?;
    team.wait_ready("web").await?;
    members_only(platform, &hostname(&team, "web"), "Welcome to members").await
}

/// What every gateway does for an app of group `staff` with the public path `/public` and a header that forbids redirects.
pub(crate) async fn members_only(platform: &Platform, host: &str, welcome: &str) -> anyhow::Result<()> {
    let url = format!("https://{host}");
    let is_own = |body: &str| body.contains(welcome);

    let mut alice = Browser::new(platform);
    let page = eventually("alice signs in", WAY, async || {
        let page = Browser::new(platform).sign_in(&format!("{url}/private?a=b"), "alice").await?;
        ensure!(page.status == 200, "{page:?}");
        Ok(page)
    })
    .await?;
    ensure!(is_own(&page.body) && page.url == format!("{url}/private?a=b"), "{page:?}");
    let page = alice.sign_in(&format!("{url}/private"), "alice").await?;
    ensure!(is_own(&page.body), "{page:?}");
    let mut bob = Browser::new(platform);
    let page = bob.sign_in(&format!("{url}/private"), "bob").await?;
    ensure!(page.status == 403 && !is_own(&page.body), "{page:?}");

    let mut nobody = Browser::new(platform);
    let page = nobody.get(&format!("{url}/public/x")).await?;
    ensure!(page.status == 200 && is_own(&page.body), "{page:?}");
    for path in ["/public/../private", "/public/%2e%2e/private", "/publicity", "/public/..%2fprivate"] {
        let page = nobody.get(&format!("{url}{path}")).await?;
        ensure!(page.status != 200 && !is_own(&page.body), "{path}: {page:?}");
    }
    let mut script = Browser::new(platform).with_header("X-Requested-With", "XMLHttpRequest");
    for _ in 0..10 {
        let page = script.get(&format!("{url}/api")).await?;
        ensure!(page.status == 401, "{page:?}");
    }

    let page = alice.get(&format!("{url}/logout")).await?;
    ensure!((300..400).contains(&page.status), "{page:?}");
    let is_session = |name: &String| {
        let is_attempt = name.contains("-s0");
        name.starts_with("IdToken-") || name.starts_with("AccessToken-") || name.starts_with("__Host-") && !is_attempt
    };
    let left = alice.cookies(host);
    ensure!(!left.iter().any(is_session), "{left:?}");
    let page = alice.get(&format!("{url}/private")).await?;
    ensure!(page.status == 302 && !is_own(&page.body), "{page:?}");
    Ok(())
}

/// One browser, two apps: their sessions are two, whatever becomes of the other.
async fn tabs(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "tabs").await?;
    for name in ["one", "two"] {
        platform.bed.apply(&app(&team, name, json!({"tls": {}}), json!({"enabled": true})).to_string()).await?;
    }
    for name in ["one", "two"] {
        team.wait_ready(name).await?;
    }
    let url = |name: &str| format!("https://{}/private", hostname(&team, name));
    let is_in = |page: &Page| page.status == 200 && page.body.contains("Welcome to tabs");
    let mut alice = eventually("alice signs in at one", WAY, async || {
        let mut alice = Browser::new(platform);
        let page = alice.sign_in(&url("one"), "alice").await?;
        ensure!(is_in(&page), "{page:?}");
        Ok(alice)
    })
    .await?;
    // The provider knows her by now.
    let page = alice.open(&url("two")).await?;
    ensure!(is_in(&page), "{page:?}");
    let tokens = |alice: &Browser<'_>, name: &str| -> BTreeSet<String> {
        let names = alice.cookies(&hostname(&team, name)).into_iter();
        names.filter(|name| name.starts_with("IdToken-") || name.starts_with("AccessToken-")).collect()
    };
    let (one, two) = (tokens(&alice, "one"), tokens(&alice, "two"));
    ensure!(one.len() == 2 && two.len() == 2 && one.is_disjoint(&two), "{one:?} {two:?}");
    for name in ["one", "two", "one"] {
        let page = alice.get(&url(name)).await?;
        ensure!(is_in(&page), "{name}: {page:?}");
    }
    alice.get(&format!("https://{}/logout", hostname(&team, "one"))).await?;
    let page = alice.get(&url("one")).await?;
    ensure!(page.status == 302, "{page:?}");
    let page = alice.get(&url("two")).await?;
    ensure!(is_in(&page), "signing out of one ends two: {page:?}");
    Ok(())
}

/// Chromium with two tabs, each at an app of its own.
async fn chromium(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "chromium").await?;
    let routing = json!({"tls": {}, "publicRoutes": [{"pathPrefix": "/open"}]});
    let deny = json!([{"name": "X-Requested-With", "value": "XMLHttpRequest"}]);
    let auth = json!({"enabled": true, "groups": ["staff"], "denyRedirect": deny});
    for name in ["one", "two"] {
        platform.bed.apply(&app(&team, name, routing.clone(), auth.clone()).to_string()).await?;
    }
    for name in ["one", "two"] {
        team.wait_ready(name).await?;
    }
    let url = |name: &str, path: &str| format!("https://{}{path}", hostname(&team, name));
    // The scripted browser waits until the gateway has the provider's keys.
    for name in ["one", "two"] {
        eventually("a member gets in", WAY, async || {
            let page = Browser::new(platform).sign_in(&url(name, "/"), "alice").await?;
            ensure!(page.status == 200, "{page:?}");
            Ok(())
        })
        .await?;
    }
    let chromium = Chromium::start(platform).await?;
    let (mut one, mut two) = (chromium.tab().await?, chromium.tab().await?);
    one.go(&url("one", "/open")).await?;
    one.wait_for_text("Welcome to chromium").await?;
    one.go(&url("one", "/private?a=b")).await?;
    two.go(&url("two", "/private")).await?;
    // Both tabs ask at once; whoever signs in in one is known in the other.
    two.wait_for("document.querySelector('#kc-form-login') !== null").await?;
    one.sign_in("alice").await?;
    one.wait_for_text("Welcome to chromium").await?;
    ensure!(one.evaluate("location.pathname + location.search").await? == "/private?a=b", "another page");
    two.go(&url("two", "/private")).await?;
    two.wait_for_text("Welcome to chromium").await?;
    let script = "Promise.all([...Array(10).keys()].map(() => fetch('/private').then(answer => answer.status)))                  .then(all => all.join())";
    let well = [200_u16; 10].map(|status| status.to_string()).join(",");
    for tab in [&mut one, &mut two] {
        assert_eq!(tab.evaluate(script).await?, well.as_str(), "ten requests at once");
    }

    one.go(&url("one", "/logout")).await?;
    // The gateway ends its own session, and Keycloak may ask whether it is to end its own too.
    one.wait_for("document.querySelector('#kc-logout, #kc-form-login') !== null").await?;
    if one.evaluate("document.querySelector('#kc-logout') !== null").await? == true {
        one.evaluate("document.querySelector('#kc-logout').click()").await?;
    }
    let denied = "fetch('/private', {headers: {'X-Requested-With': 'XMLHttpRequest'}}).then(answer => answer.status)";
    one.go(&url("one", "/open")).await?;
    one.wait_for_text("Welcome to chromium").await?;
    assert_eq!(one.evaluate(denied).await?, 401, "a script of a page that nobody has signed in to");
    assert_eq!(two.evaluate(script).await?, well.as_str(), "signing out of one ends two");

    one.go(&url("one", "/private")).await?;
    one.sign_in("bob").await?;
    one.wait_for("!document.body.innerText.includes('Welcome to') && location.pathname === '/private'").await?;
    assert_eq!(one.evaluate("fetch('/private').then(answer => answer.status)").await?, 403, "bob is no member");
    Ok(())
}

/// nebariapp A.12 (12), (13)
async fn foreign_client(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "foreign").await?;
    let auth = json!({"enabled": true, "spaClient": {"enabled": true, "clientId": "account"}});
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), auth).to_string()).await?;
    let found = team.wait("web", &[("AuthReady", "False", "ProvisioningFailed")]).await?;
    ensure!(message(&found, "AuthReady").contains("was not made for this app"), "{found}");
    let route = team.must_get(GATEWAY_API, "HTTPRoute", "web-route").await?;
    assert_eq!(route["spec"]["rules"][0]["backendRefs"].as_array().map(Vec::len), Some(0), "{route}");
    let keycloak = platform.bed.keycloak()?;
    let account = keycloak.client("account").await?.context("Keycloak has it")?;
    ensure!(account["redirectUris"].to_string().contains("/realms/"), "{account}");

    // An ID that is another's while the app has it, and gone when the app has another.
    let page = |id: &str| json!({"enabled": true, "spaClient": {"enabled": true, "clientId": id}});
    platform.bed.apply(&app(&team, "page", json!({"tls": {}}), page("foreign-page-1")).to_string()).await?;
    team.wait("page", &[("AuthReady", "True", "AuthConfigured")]).await?;
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), page("foreign-page-1")).to_string()).await?;
    team.wait("web", &[("AuthReady", "False", "ClientConflict")]).await?;
    platform.bed.apply(&app(&team, "page", json!({"tls": {}}), page("foreign-page-2")).to_string()).await?;
    eventually("the client of before goes to the app that waits for it", WAY, async || {
        ensure!(keycloak.client("foreign-page-2").await?.is_some(), "the new one is not there");
        let client = keycloak.client("foreign-page-1").await?.context("nobody has it")?;
        ensure!(client["attributes"]["nebari.dev/app"] == "foreign/web", "{client}");
        Ok(())
    })
    .await?;
    team.wait("web", &[("AuthReady", "True", "AuthConfigured")]).await?;
    Ok(())
}

/// nebariapp A.12 (9): the clients go also when sign-in was switched off before.
async fn leaving(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "leaving").await?;
    let auth = json!({"enabled": true, "deviceFlowClient": {"enabled": true}, "spaClient": {"enabled": true}});
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), auth).to_string()).await?;
    team.wait("web", &[("AuthReady", "True", "AuthConfigured")]).await?;
    let keycloak = platform.bed.keycloak()?;
    let clients = ["leaving-web", "leaving-web-spa", "leaving-web-device"];
    for client in clients {
        ensure!(keycloak.client(client).await?.is_some(), "{client} is not there");
    }
    platform.bed.apply(&app(&team, "web", json!({"tls": {}}), json!({"enabled": false})).to_string()).await?;
    team.wait("web", &[("AuthReady", "False", "AuthDisabled"), ("Ready", "True", "ReconcileSuccess")]).await?;
    team.wait_gone(ENVOY_GATEWAY, "SecurityPolicy", "web-security").await?;
    team.delete(NEBARI, "NebariApp", "web").await?;
    team.wait_gone(NEBARI, "NebariApp", "web").await?;
    for client in clients {
        ensure!(keycloak.client(client).await?.is_none(), "{client} is still there");
    }
    Ok(())
}

/// A device of one app signs in, and that app gets a token of another, which allows it.
async fn device(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "device").await?;
    let auth = json!({"enabled": true, "deviceFlowClient": {"enabled": true}});
    platform.bed.apply(&app(&team, "asks", json!({"tls": {}}), auth).to_string()).await?;
    let auth = json!({"enabled": true, "tokenExchange": {"enabled": true}});
    platform.bed.apply(&app(&team, "gives", json!({"tls": {}}), auth).to_string()).await?;
    for name in ["asks", "gives"] {
        team.wait(name, &[("AuthReady", "True", "AuthConfigured")]).await?;
    }
    let keycloak = platform.bed.keycloak()?;
    let text = |value: &Value, field: &str| value[field].as_str().map(str::to_owned).context(format!("no {field}"));
    let code = keycloak.post_form("auth/device", &[("client_id", "device-asks-device"), ("scope", "openid")]).await?;
    let mut alice = Browser::new(platform);
    let page = alice.sign_in(&text(&code, "verification_uri_complete")?, "alice").await?;
    alice.accept(&page).await?;
    let device_code = text(&code, "device_code")?;
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", "device-asks-device"),
        ("device_code", &device_code),
    ];
    let token = text(&keycloak.post_form("token", &form).await?, "access_token")?;
    let client = keycloak.client("device-asks").await?.context("the client is there")?;
    let secret = text(&client, "secret")?;
    // Who gives is asked again once there is another client.
    eventually("the token is exchanged", WAY, async || {
        let form = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
            ("client_id", "device-asks"),
            ("client_secret", &secret),
            ("subject_token", &token),
            ("audience", "device-gives"),
        ];
        text(&keycloak.post_form("token", &form).await?, "access_token")
    })
    .await?;
    Ok(())
}

/// Intruders ask a hundred times a second, from before there is an app, through everything that can go wrong.
async fn never_open(platform: &Platform, operator: Operator, arguments: &[&str]) -> anyhow::Result<()> {
    let team = Team::new(platform, "closed").await?;
    let (new, switched) = (hostname(&team, "new"), hostname(&team, "switched"));
    let gateway = platform.bed.gateway_address(443)?;
    let intruders = [Intruder::start(gateway, &new, "/private"), Intruder::start(gateway, &switched, "/private")];
    let [at_new, at_switched] = &intruders;
    let routing = json!({"tls": {}, "publicRoutes": [{"pathPrefix": "/health"}]});

    team.apply("switched", &switched, routing.clone()).await?;
    team.wait_ready("switched").await?;
    eventually("the open app is served", WAY, async || {
        ensure!(at_switched.count(200) > 10, "it is not");
        Ok(())
    })
    .await?;
    platform.bed.apply(&app(&team, "switched", routing.clone(), json!({"enabled": true})).to_string()).await?;
    platform.bed.apply(&app(&team, "new", routing.clone(), json!({"enabled": true})).to_string()).await?;
    eventually("the app that was open is closed", WAY, async || {
        at_switched.forget();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // It answers 500 until the policy is in force, which may be for less than a second.
        let refused = at_switched.count(500) + at_switched.count(302);
        ensure!(at_switched.count(200) == 0 && refused > 0, "{}", at_switched.summary());
        Ok(())
    })
    .await?;
    for name in ["new", "switched"] {
        team.wait_ready(name).await?;
    }
    settle(platform, &team, &intruders, "switched on").await?;

    team.delete(ENVOY_GATEWAY, "SecurityPolicy", "new-security").await?;
    settle(platform, &team, &intruders, "the policy was deleted").await?;

    platform.bed.kill(Part::Keycloak);
    at_new.next_phase();
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(at_new.count(302) > 0, "nobody is sent to sign in while Keycloak is away: {}", at_new.summary());
    platform.bed.start(Part::Keycloak).await?;
    settle(platform, &team, &intruders, "Keycloak was restarted").await?;

    operator.kill();
    // Nobody is there who could close the app: the policy has to stay.
    team.delete(ENVOY_GATEWAY, "SecurityPolicy", "switched-security").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for intruder in &intruders {
        intruder.assert_kept_out();
    }
    let mut operator = Operator::start(&platform.bed, "operator", arguments)?;
    operator.wait_ready().await?;
    settle(platform, &team, &intruders, "the operator was killed").await?;
    operator.stop().await
}

/// Waits until people get in again, lets the intruders use what they have kept, and counts.
async fn settle(platform: &Platform, team: &Team<'_>, intruders: &[Intruder], what: &str) -> anyhow::Result<()> {
    for name in ["new", "switched"] {
        let url = format!("https://{}/private", hostname(team, name));
        eventually(&format!("alice gets in at {name} after {what}"), WAY, async || {
            let page = Browser::new(platform).sign_in(&url, "alice").await?;
            ensure!(page.status == 200 && page.body.contains("Welcome to closed"), "{page:?}");
            // Public paths are there while the rest is protected.
            let page = Browser::new(platform).get(&format!("https://{}/health", hostname(team, name))).await?;
            ensure!(page.status == 200, "{page:?}");
            Ok(())
        })
        .await?;
    }
    for intruder in intruders {
        let old = intruder.use_old_connections().await;
        say(&format!("{what}: {}, of these {old} on old connections", intruder.summary()));
        intruder.next_phase();
        eventually(&format!("visitors are sent to sign in after {what}"), WAY, async || {
            ensure!(intruder.count(302) > 0, "{}", intruder.summary());
            Ok(())
        })
        .await?;
        intruder.next_phase();
    }
    Ok(())
}
