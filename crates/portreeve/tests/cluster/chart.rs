//! The chart, installed by the real Helm; the operator runs as exactly the account that it makes, with the arguments that
//! it gives.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::time::Duration;

use anyhow::{Context, ensure};
use portreeve_testkit::{Bed, condition, eventually, fixtures, servers, tls};
use serde_json::{Value, json};

use crate::support::release::{NAMESPACE, chart, helm, start};
use crate::support::{NEBARI, Operator, Platform};

const FORMER_NAMESPACE: &str = "nebari-operator-system";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const LONG: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_runs_with_the_rights_of_the_chart_and_says_which_one_is_missing() {
    // As where the former operator is: its definitions, and its namespace with the lease.
    let parts = Bed::builder().with_controller_manager().with_envoy_gateway();
    let Platform { bed } = Platform::bare(parts).await.unwrap();
    let _backend = platform(&bed).await;
    bed.apply(&fixtures::namespace(FORMER_NAMESPACE)).await.unwrap();
    let former = format!("replaces.nebariOperatorNamespace={FORMER_NAMESPACE}");
    let install = ["upgrade", "--install", "portreeve", &chart(), "--create-namespace", "--set", &former];
    let refused = helm(&bed, &install).unwrap_err().to_string();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    let install = [&install[..], &["--take-ownership"]].concat();
    helm(&bed, &install).unwrap();
    helm(&bed, &install).unwrap();

    let deployment = bed.get("apps/v1", "Deployment", &format!("{NAMESPACE}/portreeve")).await.unwrap().unwrap();
    // nebariapp A.11 #16
    let names = deployment["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
    for name in ["KEYCLOAK_ENABLED", "KEYCLOAK_URL", "KEYCLOAK_REALM", "KEYCLOAK_ADMIN_SECRET_NAME"] {
        assert!(names.contains(name), "no {name} in {names}");
    }
    let mut running = start(&bed, &deployment, "first").await.unwrap();
    running.wait_ready().await.unwrap();
    bed.apply(&app("web")).await.unwrap();
    wait_until_ready(&bed, "shop/web").await;
    let lease = format!("{FORMER_NAMESPACE}/d77e3dc7.nebari.dev");
    let lease = bed.get("coordination.k8s.io/v1", "Lease", &lease).await.unwrap();
    assert!(
        lease.is_some_and(|lease| lease["spec"]["holderIdentity"].is_string()),
        "the former operator's lease is held"
    );
    let log = running.log();
    assert!(log.contains("Serving metrics server") && !log.contains("config error"), "{log}");
    assert!(!log.contains("refuses") && !log.contains("forbidden"), "{log}");

    // What it is not let write, it says.
    take_verb(&bed, "httproutes", "patch").await;
    bed.apply(&app("other")).await.unwrap();
    wait_for_log(&running, r#"cannot patch resource "httproutes""#).await;
    drop(running);

    // What it is not let read, it says where it is asked whether it is ready.
    take_verb(&bed, "services", "list").await;
    take_verb(&bed, "services", "watch").await;
    let running = start(&bed, &deployment, "second").await.unwrap();
    wait_until_it_says(&running, r#"cannot watch resource "services""#).await;
    drop(running);

    helm(&bed, &["uninstall", "portreeve"]).unwrap();
    bed.wait_gone("apps/v1", "Deployment", &format!("{NAMESPACE}/portreeve")).await.unwrap();
    bed.wait_gone(RBAC, "ClusterRole", "portreeve").await.unwrap();
    let app = bed.get(NEBARI, "NebariApp", "shop/web").await.unwrap();
    assert!(app.is_some(), "the definitions and the apps stay");
}

/// A Gateway, and a Service in an opted-in namespace.
async fn platform(bed: &Bed) -> servers::Server {
    let wildcard = tls::Identity::new(&["*.example.com"]).unwrap();
    bed.apply(&fixtures::tls_secret("envoy-gateway-system", "nebari-gateway-tls", &wildcard)).await.unwrap();
    bed.apply(&fixtures::shared_gateway(true)).await.unwrap();
    bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[80, 443]).await.unwrap();
    bed.apply(&fixtures::opted_in_namespace("shop")).await.unwrap();
    let host = bed.host("backend").unwrap();
    bed.apply(&fixtures::service_at("shop", "web", 8000, host.address())).await.unwrap();
    servers::echo(&host, 8000, "web").unwrap()
}

fn app(name: &str) -> String {
    format!(
        "\
apiVersion: {NEBARI}
kind: NebariApp
metadata: {{name: {name}, namespace: shop}}
spec: {{hostname: {name}.example.com, service: {{name: web, port: 8000}}, routing: {{}}}}
"
    )
}

async fn wait_until_ready(bed: &Bed, name: &str) {
    let ready = |app: &Value| condition(app, "Ready") == Some("True");
    bed.wait_for(NEBARI, "NebariApp", name, "is ready", ready).await.unwrap();
}

/// Takes a verb on a resource out of the operator's `ClusterRole`.
async fn take_verb(bed: &Bed, resource: &str, verb: &str) {
    let mut found = bed.get(RBAC, "ClusterRole", "portreeve").await.unwrap().unwrap();
    let rules = found["rules"].as_array_mut().unwrap();
    let rule = rules.iter_mut().find(|rule| rule["resources"] == json!([resource])).unwrap();
    rule["verbs"].as_array_mut().unwrap().retain(|one| one != verb);
    rules.retain(|rule| rule["verbs"] != json!([]));
    let kept =
        json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "portreeve"}, "rules": found["rules"]});
    bed.apply(&kept.to_string()).await.unwrap();
}

async fn wait_until_it_says(operator: &Operator, wanted: &str) {
    let says = eventually("readyz names the permission", LONG, async || {
        let answer = operator.readyz().await?;
        ensure!(answer.status != 200 && answer.body.contains(wanted), "it says {}: {}", answer.status, answer.body);
        Ok(())
    });
    says.await.with_context(|| operator.log()).unwrap();
}

/// The text as it stands in a log of JSON.
async fn wait_for_log(operator: &Operator, wanted: &str) {
    let escaped = wanted.replace('"', "\\\"");
    let says = eventually("the log names the permission", LONG, async || {
        ensure!(operator.log().contains(&escaped), "it is\n{}", operator.log());
        Ok(())
    });
    says.await.unwrap();
}
