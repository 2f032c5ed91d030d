//! What the tests of the operator that Portreeve replaces assert of it (nebariapp A.11), without a ClusterIssuer for apps.
//!
//! Sign-in through an identity provider (#12 to #14) and the Deployment (#16) are not among these.

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Channel, eventually, fixtures};
use serde_json::{Value, json};

use crate::support::{
    CERTIFICATES, GATEWAY_API, NEBARI, Operator, PORT, Platform, Team, WAY, has, message, side_by_side,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_of_the_former_operator_holds() {
    let platform = Platform::start(Channel::Standard).await.unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", &[]).unwrap();
    operator.wait_ready().await.unwrap();
    side_by_side(
        vec![
            ("an_app_is_on_the_shared_https_listener", shared_https(&platform).boxed_local()),
            ("an_app_without_tls_is_on_the_http_listener", plain_http(&platform).boxed_local()),
            ("paths_become_matches_in_their_order", paths(&platform).boxed_local()),
            ("an_app_without_routing_is_ready_and_has_no_route", no_routing(&platform).boxed_local()),
            ("every_form_of_host_name_is_served", hostnames(&platform).boxed_local()),
            ("nothing_stays_of_an_app_that_is_deleted", deletion(&platform).boxed_local()),
            ("a_change_of_annotations_changes_no_condition", annotations(&platform).boxed_local()),
            ("an_app_without_its_service_says_so", missing_service(&platform).boxed_local()),
            ("the_api_server_refuses_what_cannot_be", refused_specs(&platform).boxed_local()),
            ("an_app_with_a_secret_of_its_own_has_its_own_listener", own_secret(&platform).boxed_local()),
            ("the_shared_gateway_stays_as_the_platform_made_it", gateway_fixture(&platform).boxed_local()),
        ],
        || operator.log(),
    )
    .await;
    operator.stop().await.unwrap();
}

/// nebariapp A.11 #1, #7, #8, #11, #17
async fn shared_https(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "default-tls").await?;
    team.apply("web", "default-tls.example.test", json!({"tls": {}})).await?;
    let app = team
        .wait(
            "web",
            &[
                ("Ready", "True", "ReconcileSuccess"),
                ("RoutingReady", "True", "HTTPRouteReady"),
                ("TLSReady", "False", "ClusterIssuerNotConfigured"),
                ("AuthReady", "False", "AuthDisabled"),
            ],
        )
        .await?;
    for condition in app["status"]["conditions"].as_array().context("there are conditions")? {
        for field in ["type", "status", "reason", "message", "lastTransitionTime"] {
            ensure!(condition[field].as_str().is_some_and(|text| !text.is_empty()), "no {field} in {condition}");
        }
    }
    let route = team.must_get(GATEWAY_API, "HTTPRoute", "web-route").await?;
    let parent = &route["spec"]["parentRefs"][0];
    assert_eq!(parent["name"], "nebari-gateway");
    assert_eq!(parent["namespace"], "envoy-gateway-system");
    assert_eq!(parent["sectionName"], "https");
    assert_eq!(route["spec"]["rules"][0]["backendRefs"][0]["name"], "web");
    let parents = route["status"]["parents"].as_array().context("the gateway says something of the route")?;
    assert_eq!(parents.len(), 1, "{route}");
    assert!(has(&parents[0], ("Accepted", "True", "Accepted")), "{route}");
    assert!(has(&parents[0], ("ResolvedRefs", "True", "ResolvedRefs")), "{route}");
    assert_eq!(team.get("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "web-security").await?, None);
    assert_eq!(team.get(GATEWAY_API, "ListenerSet", "web-listeners").await?, None);
    team.wait_served("default-tls.example.test").await?;
    Ok(())
}

/// nebariapp A.11 #2, #17
async fn plain_http(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "plain").await?;
    team.apply("web", "plain.example.test", json!({"tls": {"enabled": false}})).await?;
    team.wait("web", &[("Ready", "True", "ReconcileSuccess"), ("TLSReady", "False", "TLSDisabled")]).await?;
    let route = team.must_get(GATEWAY_API, "HTTPRoute", "web-route").await?;
    assert_eq!(route["spec"]["parentRefs"][0]["sectionName"], "http");
    assert_eq!(route["metadata"]["annotations"]["nebari.dev/tls-enabled"], "false");
    eventually("plain HTTP is served", WAY, async || {
        let answer = platform.http("plain.example.test", "/").await?;
        ensure!(team.is_own(&answer), "{answer:?}");
        Ok(())
    })
    .await?;
    let over_https = platform.https("plain.example.test", "/").await?;
    assert_eq!(over_https.status, 404, "{over_https:?}");
    Ok(())
}

/// nebariapp A.11 #3
async fn paths(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "paths").await?;
    let path = |kind: &str, path: &str| json!({"pathPrefix": path, "pathType": kind});
    let cases = [
        ("prefix", json!([path("PathPrefix", "/api")]), vec![("PathPrefix", "/api")]),
        ("exact", json!([path("Exact", "/health")]), vec![("Exact", "/health")]),
        (
            "mixed",
            json!([path("PathPrefix", "/api"), path("Exact", "/health"), {"pathPrefix": "/static"}]),
            vec![("PathPrefix", "/api"), ("Exact", "/health"), ("PathPrefix", "/static")],
        ),
        ("root", json!([path("PathPrefix", "/")]), vec![("PathPrefix", "/")]),
        ("none", json!([]), vec![("PathPrefix", "/")]),
    ];
    for (app, routes, _) in &cases {
        team.apply(app, &format!("{app}.paths.example.test"), json!({"tls": {}, "routes": routes})).await?;
    }
    for (app, _, wanted) in &cases {
        team.wait_ready(app).await?;
        let route = team.must_get(GATEWAY_API, "HTTPRoute", &format!("{app}-route")).await?;
        let matches = route["spec"]["rules"][0]["matches"].as_array().context("there are matches")?;
        let path = |one: &Value| (one["path"]["type"].clone(), one["path"]["value"].clone());
        let wanted: Vec<_> = wanted.iter().map(|(kind, path)| (json!(kind), json!(path))).collect();
        assert_eq!(matches.iter().map(path).collect::<Vec<_>>(), wanted, "{app}");
    }
    let served = async |path: &str| anyhow::Ok(platform.https("mixed.paths.example.test", path).await?.status);
    eventually("paths are served", WAY, async || {
        ensure!(served("/api/v1").await? == 200);
        Ok(())
    })
    .await?;
    for (path, status) in [("/health", 200), ("/health/deep", 404), ("/static/a.css", 200), ("/apiary", 404)] {
        assert_eq!(served(path).await?, status, "{path}");
    }
    Ok(())
}

/// nebariapp A.11 #4
async fn no_routing(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "no-routing").await?;
    team.apply("web", "no-routing.example.test", Value::Null).await?;
    let expected = [("Ready", "True", "ReconcileSuccess"), ("RoutingReady", "False", "RoutingNotConfigured")];
    let app = team.wait("web", &expected).await?;
    ensure!(!message(&app, "RoutingReady").is_empty(), "{app}");
    assert_eq!(team.get(GATEWAY_API, "HTTPRoute", "web-route").await?, None);
    Ok(())
}

/// nebariapp A.11 #5
async fn hostnames(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "hostnames").await?;
    let names =
        ["simple.test", "sub.domain.test", "many.levels.of.names.test", "with-some-hyphens.test", "app123.test"];
    for (number, hostname) in names.iter().enumerate() {
        team.apply(&format!("app-{number}"), hostname, json!({"tls": {}})).await?;
    }
    for (number, hostname) in names.iter().enumerate() {
        let app = team.wait_ready(&format!("app-{number}")).await?;
        assert_eq!(app["status"]["hostname"], *hostname);
        let route = team.must_get(GATEWAY_API, "HTTPRoute", &format!("app-{number}-route")).await?;
        assert_eq!(route["spec"]["hostnames"], json!([hostname]));
        team.wait_served(hostname).await?;
    }
    Ok(())
}

/// nebariapp A.11 #6. The policy is as the former operator leaves it behind: owned by the app.
async fn deletion(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "deletion").await?;
    team.apply("web", "deletion.example.test", json!({"tls": {}})).await?;
    let app = team.wait_ready("web").await?;
    assert_eq!(app["metadata"]["finalizers"], json!(["apps.nebari.dev/finalizer"]));
    team.wait_served("deletion.example.test").await?;
    let policy = json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "SecurityPolicy",
        "metadata": {"namespace": team.namespace, "name": "web-security", "ownerReferences": [{
            "apiVersion": NEBARI, "kind": "NebariApp", "name": "web", "uid": app["metadata"]["uid"],
            "controller": true}]},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "web-route"}],
            "cors": {"allowOrigins": ["https://example.test"]}}});
    platform.bed.apply(&policy.to_string()).await?;
    team.delete(NEBARI, "NebariApp", "web").await?;
    team.wait_gone(NEBARI, "NebariApp", "web").await?;
    team.wait_gone(GATEWAY_API, "HTTPRoute", "web-route").await?;
    team.wait_gone("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "web-security").await?;
    team.wait_not_served("deletion.example.test").await
}

/// nebariapp A.11 #7
async fn annotations(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "annotations").await?;
    team.apply("web", "annotations.example.test", json!({"tls": {}})).await?;
    let before = team.wait_ready("web").await?;
    let mut app = team.app("web", "annotations.example.test", json!({"tls": {}}));
    app["metadata"]["annotations"] = json!({"example.test/touched": "yes"});
    platform.bed.apply(&app.to_string()).await?;
    // A second app makes the operator take the first change in too.
    team.apply("other", "other.annotations.example.test", json!({"tls": {}})).await?;
    team.wait_ready("other").await?;
    let after = team.wait_ready("web").await?;
    assert_eq!(after["metadata"]["annotations"]["example.test/touched"], "yes");
    assert_eq!(after["status"], before["status"]);
    assert_eq!(after["status"]["observedGeneration"], after["metadata"]["generation"]);
    Ok(())
}

/// nebariapp A.11 #9
async fn missing_service(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "missing-service").await?;
    let mut app = team.app("web", "missing-service.example.test", json!({"tls": {}}));
    app["spec"]["service"]["name"] = "nowhere".into();
    platform.bed.apply(&app.to_string()).await?;
    let app = team.wait("web", &[("Ready", "False", "ServiceNotFound")]).await?;
    ensure!(message(&app, "Ready").contains("nowhere"), "{app}");
    let mut app = team.app("port", "port.missing-service.example.test", json!({"tls": {}}));
    app["spec"]["service"]["port"] = (PORT + 1).into();
    platform.bed.apply(&app.to_string()).await?;
    team.wait("port", &[("Ready", "False", "ServiceNotFound")]).await?;
    Ok(())
}

/// nebariapp A.11 #10. What cannot be read at all never comes to the operator for the same reason: the schema keeps it out.
async fn refused_specs(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "refused").await?;
    let good = json!({"hostname": "refused.example.test", "service": {"name": "web", "port": PORT}});
    let with = |field: &str, value: Value| {
        let mut spec = good.clone();
        spec[field] = value;
        spec
    };
    let cases = [
        ("an upper-case host name", with("hostname", json!("Upper.example.test"))),
        ("a leading hyphen", with("hostname", json!("-a.example.test"))),
        ("port 99999", with("service", json!({"name": "web", "port": 99_999}))),
        ("port 0", with("service", json!({"name": "web", "port": 0}))),
        ("a path without slash", with("routing", json!({"routes": [{"pathPrefix": "api"}]}))),
        (
            "a token that nobody forwards",
            with("auth", json!({"enabled": true, "forwardAccessToken": true, "enforceAtGateway": false})),
        ),
        ("a number for a name", with("hostname", json!(7))),
    ];
    for (what, spec) in cases {
        let mut app = team.app("web", "refused.example.test", Value::Null);
        app["spec"] = spec;
        ensure!(platform.bed.apply(&app.to_string()).await.is_err(), "{what} is taken");
    }
    assert_eq!(team.get(NEBARI, "NebariApp", "web").await?, None);
    team.apply("web", "refused.example.test", Value::Null).await
}

/// nebariapp A.11 #15: the listener is in the app's ListenerSet now.
async fn own_secret(platform: &Platform) -> anyhow::Result<()> {
    let team = Team::new(platform, "own-secret").await?;
    let identity = Identity::new(&["own-secret.example.test"])?;
    platform.bed.apply(&fixtures::tls_secret("own-secret", "mine", &identity)).await?;
    team.apply("web", "own-secret.example.test", json!({"tls": {"secretName": "mine"}})).await?;
    let expected = [("Ready", "True", "ReconcileSuccess"), ("TLSReady", "True", "UserProvidedSecretReady")];
    let app = team.wait("web", &expected).await?;
    assert_eq!(team.get(CERTIFICATES, "Certificate", "web-own-secret-cert").await?, None);
    let set = team.must_get(GATEWAY_API, "ListenerSet", "web-listeners").await?;
    let listener = &set["spec"]["listeners"][0];
    assert_eq!(listener["name"], "tls-web-own-secret");
    assert_eq!(listener["port"], 443);
    assert_eq!(listener["tls"]["certificateRefs"][0]["name"], "mine");
    let route = team.must_get(GATEWAY_API, "HTTPRoute", "web-route").await?;
    let parent = &route["spec"]["parentRefs"][0];
    assert_eq!((&parent["kind"], &parent["name"]), (&json!("ListenerSet"), &json!("web-listeners")));
    assert_eq!(app["status"]["https"]["sectionName"], "tls-web-own-secret");
    let answer = team.wait_served("own-secret.example.test").await?;
    assert_eq!(answer.certificate.as_ref(), Some(identity.certificate()));
    Ok(())
}

/// nebariapp A.11 #18, and that the operator has not touched it.
async fn gateway_fixture(platform: &Platform) -> anyhow::Result<()> {
    let gateway = platform.bed.get(GATEWAY_API, "Gateway", "envoy-gateway-system/nebari-gateway").await?;
    let gateway = gateway.context("the shared Gateway is there")?;
    assert_eq!(gateway["spec"]["gatewayClassName"], "envoy-gateway");
    let listeners = gateway["spec"]["listeners"].as_array().context("it has listeners")?;
    assert_eq!(listeners.iter().map(|listener| &listener["name"]).collect::<Vec<_>>(), ["http", "https"]);
    assert_eq!(listeners[1]["tls"]["certificateRefs"][0]["name"], "nebari-gateway-tls");
    platform.wait_issued("envoy-gateway-system/nebari-gateway-cert").await?;
    let managers = gateway["metadata"]["managedFields"].as_array().context("it has managers")?;
    ensure!(managers.iter().all(|manager| manager["manager"] != "portreeve"), "{gateway}");
    Ok(())
}
