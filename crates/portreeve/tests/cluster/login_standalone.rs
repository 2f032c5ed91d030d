//! Sign-in by the embedded gateway: `portreeve up` on the address where Envoy would serve, and the real Keycloak.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::Method;
use portreeve_testkit::keycloak::{Keycloak, REALM};
use portreeve_testkit::servers::{self, Server};
use portreeve_testkit::{Bed, Part, Running, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::login::members_only;
use crate::support::{Browser, Intruder, Platform, say};

/// How long a change of the manifests may take to the gateway's sockets.
const WAY: Duration = Duration::from_secs(30);
/// How long a provider that answered may have gone before somebody who wants to sign in is told.
const NOTICED: Duration = Duration::from_secs(50);
/// Longer than the clocks of the provider and the gateway may differ.
const SKEW: Duration = Duration::from_secs(63);
/// How long the tokens of `short` hold, and longer.
const SHORT: (u64, Duration) = (8, Duration::from_secs(10));

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_gateway_signs_visitors_in() {
    let platform = Platform { bed: Bed::builder().with_keycloak().start().await.unwrap() };
    let mut up = Up::start(&platform).await.unwrap();
    let outcome = all(&platform, &mut up).await;
    let log = up.log();
    let without_requests = || log.lines().filter(|line| !line.contains(" NotSignedIn ")).collect::<Vec<_>>().join("\n");
    outcome.unwrap_or_else(|error| panic!("{error:?}\n--- portreeve ---\n{}", without_requests()));
    assert!(!log.contains("eyJ") && !log.contains("-secret-of-"), "a secret is in the log");
}

async fn all(platform: &Platform, up: &mut Up<'_>) -> anyhow::Result<()> {
    let keycloak = platform.bed.keycloak()?;
    let old = (access_token(&keycloak, "brief", "bob").await?, Instant::now());
    members_only(platform, &host("web"), "Welcome to web").await?;
    say("members only");
    two_tabs(platform).await?;
    two_apps(platform).await?;
    say("tabs and apps");
    what_backends_see(platform).await?;
    foreign_cookies(platform).await?;
    say("backends and cookies");
    refreshed(platform).await?;
    say("refreshed");
    bearer_tokens(platform, old).await?;
    say("bearer tokens");
    reloaded(platform, up).await?;
    say("reloaded");
    provider_away(platform).await
}

/// An app with sign-in, a user who may not be in its group, and what asks for its protection.
fn manifests(is_broken: bool) -> Vec<Value> {
    let app = |name: &str, auth: Value| {
        let mut all = json!({"enabled": true, "provider": "generic-oidc", "provisionClient": false});
        for (field, value) in auth.as_object().into_iter().flatten() {
            all[field] = value.clone();
        }
        json!({
            "apiVersion": "reconcilers.nebari.dev/v1", "kind": "NebariApp", "metadata": {"name": name, "namespace": "team"},
            "spec": {
                "hostname": host(name), "service": {"name": name, "port": 80}, "auth": all,
                "routing": {"publicRoutes": [{"pathPrefix": "/public", "pathType": "PathPrefix"}]},
            },
        })
    };
    let secret = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("{name}-client"), "namespace": "team"},
            "stringData": {"client-id": name, "client-secret": format!("the-secret-of-{name}")},
        })
    };
    let deny = json!([{"name": "X-Requested-With", "value": "XMLHttpRequest"}]);
    let mut all = vec![json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "team", "labels": {"nebari.dev/managed": "true"}},
    })];
    for (name, auth) in [
        ("web", json!({"groups": ["staff"], "denyRedirect": deny})),
        ("token", json!({"forwardAccessToken": true})),
        ("short", json!({})),
    ] {
        let mut app = app(name, auth);
        app["spec"]["auth"]["clientSecretRef"] = format!("{name}-client").into();
        app["spec"]["auth"]["issuerURL"] = ISSUER_HERE.into();
        all.push(app);
        if !is_broken || name != "web" {
            all.push(secret(name));
        }
    }
    all
}

/// Stands for the URL of the realm, which a bed chooses.
const ISSUER_HERE: &str = "https://issuer.invalid";

fn host(app: &str) -> String {
    format!("{app}.example.test")
}

/// A running `portreeve up`, with a backend for each app.
struct Up<'p> {
    platform: &'p Platform,
    folder: TempDir,
    process: Option<Running>,
    _backends: Vec<Server>,
}

impl<'p> Up<'p> {
    async fn start(platform: &'p Platform) -> anyhow::Result<Self> {
        let keycloak = platform.bed.keycloak()?;
        for (name, life) in [("web", 300), ("token", 300), ("short", SHORT.0), ("brief", 1), ("other", 300)] {
            make_client(&keycloak, name, life).await?;
        }
        let node = platform.bed.node();
        let backends = [("web", 9001), ("token", 9002), ("short", 9003)];
        let backends = backends.map(|(name, port)| servers::echo(node, port, &format!("Welcome to {name}")));
        let backends = backends.into_iter().collect::<anyhow::Result<_>>()?;
        let mut up = Self { platform, folder: TempDir::new()?, process: None, _backends: backends };
        std::fs::create_dir(up.folder.path().join("manifests"))?;
        up.write(&manifests(false))?;
        up.run()?;
        eventually("the app sends visitors to sign in", WAY, async || {
            let page = Browser::new(platform).get(&format!("https://{}/", host("web"))).await?;
            ensure!(page.status == 302, "{page:?}");
            Ok(())
        })
        .await?;
        Ok(up)
    }

    /// Starts the program, in place of the one that runs.
    fn run(&mut self) -> anyhow::Result<()> {
        self.process = None;
        let gateway = self.platform.bed.gateway_address(443)?.ip();
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let mut command = self.platform.bed.host("gateway")?.command(env!("CARGO_BIN_EXE_portreeve"));
        command.arg("up").arg(self.folder.path().join("manifests")).arg("--default-gateways");
        command.arg("--state-dir").arg(self.folder.path().join("state"));
        for port in [80, 443] {
            command.arg("--listen").arg(format!("envoy-gateway-system/nebari-gateway:{port}={gateway}:{port}"));
        }
        let node = self.platform.bed.node().address();
        for (name, port) in [("web", 9001), ("token", 9002), ("short", 9003)] {
            command.arg("--backend").arg(format!("team/{name}:80={node}:{port}"));
        }
        command.stdout(log.try_clone()?).stderr(log);
        self.process = Some(self.platform.bed.host("gateway")?.spawn(command)?);
        Ok(())
    }

    /// Replaces the manifests.
    fn write(&self, manifests: &[Value]) -> anyhow::Result<()> {
        let issuer = format!("{}/realms/{REALM}", self.platform.bed.keycloak()?.url());
        let text: Vec<_> =
            manifests.iter().map(|manifest| manifest.to_string().replace(ISSUER_HERE, &issuer)).collect();
        self.write_text(&text.join("\n---\n"))
    }

    fn write_text(&self, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.folder.path().join("manifests/apps.yaml"), text)?)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// A client as somebody makes it for an app: it tells groups, and names the app `web` or itself as the audience of its tokens.
async fn make_client(keycloak: &Keycloak, name: &str, life: u64) -> anyhow::Result<()> {
    let mapper = |name: &str, kind: &str, config: Value| json!({"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config});
    let audience = match name {
        "brief" => "web",
        "other" => "account",
        name => name,
    };
    let client = json!({
        "clientId": name, "secret": format!("the-secret-of-{name}"), "publicClient": false,
        "standardFlowEnabled": true, "directAccessGrantsEnabled": true,
        "redirectUris": [format!("https://{}/oauth2/callback", host(name))],
        "attributes": {
            "post.logout.redirect.uris": format!("https://{}/*", host(name)), "access.token.lifespan": life.to_string(),
            "pkce.code.challenge.method": "S256",
        },
        "protocolMappers": [
            mapper("groups", "oidc-group-membership-mapper", json!({
                "full.path": "false", "claim.name": "groups", "id.token.claim": "true", "access.token.claim": "true",
            })),
            mapper("audience", "oidc-audience-mapper", json!({
                "included.client.audience": audience, "access.token.claim": "true",
            })),
        ],
    });
    keycloak.admin(Method::POST, &format!("/{REALM}/clients"), Some(client)).await.map(drop)
}

async fn tokens(keycloak: &Keycloak, client: &str, user: &str) -> anyhow::Result<Value> {
    let secret = format!("the-secret-of-{client}");
    let form = [
        ("grant_type", "password"),
        ("client_id", client),
        ("client_secret", &secret),
        ("username", user),
        ("password", user),
        ("scope", "openid"),
    ];
    keycloak.post_form("token", &form).await
}

async fn access_token(keycloak: &Keycloak, client: &str, user: &str) -> anyhow::Result<String> {
    let tokens = tokens(keycloak, client, user).await?;
    Ok(tokens["access_token"].as_str().context("there is a token")?.to_owned())
}

/// Two sign-ins begin before either ends, and each leads to what was asked for.
async fn two_tabs(platform: &Platform) -> anyhow::Result<()> {
    let mut alice = Browser::new(platform);
    let (one, other) = (format!("https://{}/one?a=b", host("web")), format!("https://{}//evil.test/two", host("web")));
    let first = alice.get(&one).await?;
    let second = alice.get(&other).await?;
    let form = alice.follow(first).await?;
    let page = alice.fill_in(form, "alice").await?;
    ensure!(page.status == 200 && page.url == one, "{page:?}");
    let page = alice.follow(second).await?;
    ensure!(page.status == 200 && page.url == other, "{page:?}");
    // What has led to a session once leads to no other.
    let attempt = alice.get(&format!("https://{}/oauth2/callback?code=x&state=y", host("web"))).await?;
    ensure!(attempt.status == 400, "{attempt:?}");
    let mut mallory = Browser::new(platform);
    let begun = mallory.get(&one).await?;
    let page = mallory.open(begun.location.as_deref().context("to Keycloak")?).await?;
    mallory.jar(&host("web")).clear();
    let page = mallory.fill_in(page, "alice").await?;
    ensure!(page.status == 400, "a browser that did not begin a sign-in ends it: {page:?}");
    Ok(())
}

/// Signing in to one app, and out of it, is nothing to another.
async fn two_apps(platform: &Platform) -> anyhow::Result<()> {
    let mut alice = Browser::new(platform);
    let page = alice.sign_in(&format!("https://{}/", host("web")), "alice").await?;
    ensure!(page.body.contains("Welcome to web"), "{page:?}");
    let page = alice.open(&format!("https://{}/", host("token"))).await?;
    ensure!(page.body.contains("Welcome to token"), "Keycloak knows her: {page:?}");
    let page = alice.open(&format!("https://{}/logout", host("web"))).await?;
    ensure!(page.url.contains("/realms/") || page.url.contains("/protocol/"), "she is sent on to Keycloak: {page:?}");
    let page = alice.get(&format!("https://{}/", host("web"))).await?;
    ensure!(page.status == 302, "{page:?}");
    let page = alice.get(&format!("https://{}/", host("token"))).await?;
    ensure!(page.status == 200, "{page:?}");
    let page = alice.open(&format!("https://{}/", host("web"))).await?;
    ensure!(page.body.contains("kc-form-login"), "Keycloak asks her again: {page:?}");
    Ok(())
}

/// The access token only when asked for, and never what is the gateway's.
async fn what_backends_see(platform: &Platform) -> anyhow::Result<()> {
    for (app, is_forwarded) in [("web", false), ("token", true)] {
        let mut alice = Browser::new(platform).with_header("Authorization", "Basic YTpi");
        let page = alice.sign_in(&format!("https://{}/", host(app)), "alice").await?;
        let seen: Value = serde_json::from_str(&page.body).with_context(|| page.body.clone())?;
        let token = seen["headers"]["authorization"].as_str();
        ensure!(token.is_some_and(|token| token.starts_with("Bearer eyJ")) == is_forwarded, "{app}: {token:?}");
        ensure!(is_forwarded || token.is_none(), "{app}: {token:?}");
        for path in ["/", "/public/x"] {
            let page = alice.get(&format!("https://{}{path}", host(app))).await?;
            ensure!(page.status == 200 && !page.body.contains("__Host-portreeve"), "{page:?}");
        }
        let kept = alice.jar(&host(app)).clone();
        ensure!(kept.iter().all(|(name, value)| name.starts_with("__Host-") && !value.contains("eyJ")), "{kept:?}");
    }
    Ok(())
}

/// A session is good in its own app, whole and unchanged, and nowhere else.
async fn foreign_cookies(platform: &Platform) -> anyhow::Result<()> {
    let session = |browser: &mut Browser<'_>, app: &str| {
        let jar = browser.jar(&host(app)).clone();
        jar.into_iter().filter(|(name, _)| !name.contains("-s0")).collect::<Vec<_>>()
    };
    let mut alice = Browser::new(platform);
    alice.sign_in(&format!("https://{}/", host("web")), "alice").await?;
    alice.open(&format!("https://{}/", host("token"))).await?;
    let (web, token) = (session(&mut alice, "web"), session(&mut alice, "token"));
    ensure!(!web.is_empty() && !token.is_empty(), "{web:?} {token:?}");
    let asked = async |app: &str, cookies: Vec<(String, String)>| {
        let mut browser = Browser::new(platform);
        browser.jar(&host(app)).extend(cookies);
        anyhow::Ok(browser.get(&format!("https://{}/", host(app))).await?.status)
    };
    assert_eq!(asked("web", web.clone()).await?, 200, "her own session");
    assert_eq!(asked("web", token.clone()).await?, 302, "that of another app");
    let names = token.iter().map(|(name, _)| name.clone());
    let renamed = names.zip(web.iter().map(|(_, value)| value.clone())).collect();
    assert_eq!(asked("token", renamed).await?, 302, "that of another app by another name");
    for place in [0, 20, web[0].1.len() - 1] {
        let mut tampered = web.clone();
        let old = tampered[0].1.as_bytes()[place];
        tampered[0].1.replace_range(place..=place, if old == b'A' { "B" } else { "A" });
        assert_eq!(asked("web", tampered).await?, 302, "with another byte {place}");
    }
    Ok(())
}

/// Tokens that have become old are replaced without anybody's help, as long as Keycloak agrees.
async fn refreshed(platform: &Platform) -> anyhow::Result<()> {
    let url = format!("https://{}/", host("short"));
    let mut alice = Browser::new(platform);
    alice.sign_in(&url, "alice").await?;
    let before = alice.jar(&host("short")).clone();
    tokio::time::sleep(SHORT.1).await;
    let page = alice.get(&url).await?;
    ensure!(page.status == 200, "{page:?}");
    ensure!(*alice.jar(&host("short")) != before, "nothing was refreshed");
    let keycloak = platform.bed.keycloak()?;
    let users = keycloak.admin(Method::GET, &format!("/{REALM}/users?username=alice&exact=true"), None).await?;
    let id = users[0]["id"].as_str().context("alice is there")?;
    keycloak.admin(Method::POST, &format!("/{REALM}/users/{id}/logout"), Some(json!({}))).await?;
    tokio::time::sleep(SHORT.1).await;
    let page = alice.get(&url).await?;
    ensure!(page.status == 302, "Keycloak has ended the session: {page:?}");
    Ok(())
}

async fn bearer_tokens(platform: &Platform, (old, made): (String, Instant)) -> anyhow::Result<()> {
    let keycloak = platform.bed.keycloak()?;
    let asked = async |app: &str, token: &str| {
        let value: &'static str = Box::leak(format!("Bearer {token}").into_boxed_str());
        let mut program = Browser::new(platform).with_header("Authorization", value);
        program.get(&format!("https://{}/api", host(app))).await
    };
    let alices = tokens(&keycloak, "web", "alice").await?;
    let token = alices["access_token"].as_str().context("there is a token")?;
    let page = asked("web", token).await?;
    ensure!(page.status == 200 && page.body.contains("Welcome to web") && !page.body.contains(token), "{page:?}");
    let page = asked("web", &access_token(&keycloak, "web", "bob").await?).await?;
    ensure!(page.status == 403, "bob is no member: {page:?}");
    let own = access_token(&keycloak, "token", "bob").await?;
    let page = asked("token", &own).await?;
    ensure!(page.status == 200 && page.body.contains(&own), "it asks for tokens: {page:?}");
    let (head, signature) = token.rsplit_once('.').context("a token has three parts")?;
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", head.split('.').nth(1).unwrap_or_default());
    let tokens = [
        ("of another audience", access_token(&keycloak, "other", "alice").await?),
        ("of another app", own),
        ("an identity", alices["id_token"].as_str().context("there is an identity")?.to_owned()),
        ("a refresh token", alices["refresh_token"].as_str().context("there is one")?.to_owned()),
        ("forged", forged),
        ("unsigned", unsigned),
        ("no token at all", "x".to_owned()),
    ];
    for (what, token) in tokens {
        let page = asked("web", &token).await?;
        ensure!(page.status == 401 && !page.body.contains("Welcome"), "{what}: {page:?}");
    }
    // It names `web` as its audience, and holds for a second: what is refused is its age.
    let young = access_token(&keycloak, "brief", "bob").await?;
    ensure!(asked("web", &young).await?.status == 403, "bob is told apart by his group, not by his token");
    tokio::time::sleep(SKEW.saturating_sub(made.elapsed())).await;
    let page = asked("web", &old).await?;
    ensure!(page.status == 401, "an old token: {page:?}");

    let realm = keycloak.admin(Method::GET, &format!("/{REALM}"), None).await?;
    let new_key = json!({
        "name": "new", "providerId": "rsa-generated", "providerType": "org.keycloak.keys.KeyProvider",
        "parentId": realm["id"], "config": {"priority": ["200"], "enabled": ["true"], "active": ["true"]},
    });
    keycloak.admin(Method::POST, &format!("/{REALM}/components"), Some(new_key)).await?;
    let new = access_token(&keycloak, "web", "alice").await?;
    ensure!(new.split('.').next() != token.split('.').next(), "it is signed with another key");
    let page = asked("web", &new).await?;
    ensure!(page.status == 200, "{page:?}");
    let page = asked("web", token).await?;
    ensure!(page.status == 200, "the old key is still good: {page:?}");
    Ok(())
}

/// Manifests change, break and lose the client's Secret, and the program is restarted: nobody gets in, and nobody who has
/// signed in has to do so again.
async fn reloaded(platform: &Platform, up: &mut Up<'_>) -> anyhow::Result<()> {
    let intruder = Intruder::start(platform.bed.gateway_address(443)?, &host("web"), "/private");
    let url = format!("https://{}/", host("web"));
    let mut alice = Browser::new(platform);
    alice.sign_in(&url, "alice").await?;
    let mut regrouped = manifests(false);
    for app in &mut regrouped {
        if app["kind"] == "NebariApp" && app["metadata"]["name"] == "web" {
            app["spec"]["auth"]["groups"] = json!(["others"]);
        }
    }
    let asked = async |alice: &mut Browser<'_>, status: u16| {
        eventually(&format!("alice gets {status}"), WAY, async || {
            let page = alice.get(&url).await?;
            ensure!(page.status == status, "{page:?}");
            Ok(())
        })
        .await
    };
    for _ in 0..3 {
        up.write(&regrouped)?;
        asked(&mut alice, 403).await?;
        up.write(&manifests(false))?;
        asked(&mut alice, 200).await?;
        up.write_text("{ no manifest")?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        up.write(&manifests(true))?;
        eventually("without its Secret the app is closed", WAY, async || {
            let page = alice.get(&url).await?;
            ensure!(page.status == 404 || page.status == 500, "{page:?}");
            Ok(())
        })
        .await?;
        up.write(&manifests(false))?;
        asked(&mut alice, 200).await?;
    }
    let old = intruder.use_old_connections().await;
    ensure!(old > 0, "no connection was open all the time");
    up.run()?;
    eventually("the program serves again", WAY, async || {
        let page = alice.get(&url).await?;
        ensure!(page.status == 200, "{page:?}");
        Ok(())
    })
    .await?;
    say(&format!("{}, of these {old} on old connections", intruder.summary()));
    intruder.assert_kept_out();
    ensure!(intruder.count(302) > 100, "{}", intruder.summary());
    Ok(())
}

/// Whoever has signed in goes on, also when the tokens grow old; others are told.
async fn provider_away(platform: &Platform) -> anyhow::Result<()> {
    let urls = ["web", "short"].map(|app| format!("https://{}/", host(app)));
    let mut alice = Browser::new(platform);
    alice.sign_in(&urls[0], "alice").await?;
    alice.open(&urls[1]).await?;
    platform.bed.kill(Part::Keycloak);
    tokio::time::sleep(SHORT.1).await;
    for url in &urls {
        let page = alice.get(url).await?;
        ensure!(page.status == 200, "{page:?}");
    }
    eventually("others are told", NOTICED, async || {
        let page = Browser::new(platform).get(&urls[0]).await?;
        ensure!(page.status == 503 && page.body.contains("identity provider cannot be reached"), "{page:?}");
        Ok(())
    })
    .await?;
    platform.bed.start(Part::Keycloak).await?;
    eventually("people sign in again", WAY, async || {
        let page = Browser::new(platform).sign_in(&urls[0], "alice").await?;
        ensure!(page.status == 200, "{page:?}");
        Ok(())
    })
    .await?;
    for url in &urls {
        let page = alice.open(url).await?;
        ensure!(page.status == 200, "{page:?}");
    }
    Ok(())
}
