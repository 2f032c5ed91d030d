//! The API server and the operator itself go away and come back; and nothing is written in peace.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use portreeve_testkit::{Bed, Channel, eventually};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{CERTIFICATES, GATEWAY_API, NEBARI, Operator, Platform, TLS_PORT, Team, has, say, side_by_side};

/// How long nothing may be written for.
const PEACE: Duration = Duration::from_secs(30);

/// How many apps are made while the API server goes away.
const LOAD: usize = 40;

const ARGUMENTS: &[&str] = &["--cluster-issuer=selfsigned-issuer", "--leader-elect", "--lease-namespace=kube-system"];

/// Gateway API's experimental channel, for once.
#[tokio::test(flavor = "multi_thread")]
async fn apps_outlive_the_api_server_and_the_operator() {
    let platform = Platform::start(Channel::Experimental).await.unwrap();
    let mut operator = Operator::start(&platform.bed, "operator", ARGUMENTS).unwrap();
    operator.wait_ready().await.unwrap();
    let log = || log_of(&platform.bed, &["operator", "second"]);
    side_by_side(
        vec![(
            "an_app_is_deleted_while_the_api_server_restarts",
            deleted_meanwhile(&platform, &operator).boxed_local(),
        )],
        log,
    )
    .await;
    side_by_side(
        vec![("the_api_server_is_down_under_load", down_under_load(&platform, &mut operator).boxed_local())],
        log,
    )
    .await;
    side_by_side(vec![("a_settled_cluster_sees_no_write", settled(&platform, &operator).boxed_local())], log).await;
    side_by_side(vec![("another_replica_takes_over", take_over(&platform, operator).boxed_local())], log).await;
}

/// The operator hears of the deletion only after the API server was away: it does not run when it happens.
async fn deleted_meanwhile(platform: &Platform, operator: &Operator) -> anyhow::Result<()> {
    let team = Team::new(platform, "deleted").await?;
    team.apply("web", "deleted.example.test", json!({"tls": {}})).await?;
    team.wait_ready("web").await?;
    team.wait_served("deleted.example.test").await?;
    operator.pause()?;
    team.delete(NEBARI, "NebariApp", "web").await?;
    platform.bed.stop_api_server();
    operator.resume()?;
    sleep(Duration::from_secs(2)).await;
    platform.bed.start_api_server().await?;
    for (api_version, kind, name) in [
        (NEBARI, "NebariApp", "web"),
        (GATEWAY_API, "HTTPRoute", "web-route"),
        (GATEWAY_API, "ListenerSet", "web-listeners"),
        (CERTIFICATES, "Certificate", "web-deleted-cert"),
    ] {
        team.wait_gone(api_version, kind, name).await?;
    }
    team.must_get("v1", "Secret", "web-deleted-tls").await?;
    team.wait_not_served("deleted.example.test").await
}

/// Apps are made while the API server goes away and comes back; one that was there before is served all the way.
async fn down_under_load(platform: &Platform, operator: &mut Operator) -> anyhow::Result<()> {
    let team = Team::new(platform, "load").await?;
    let hostname = |app: &str| format!("{app}.load.example.test");
    team.apply("first", &hostname("first"), json!({"tls": {}})).await?;
    team.wait_ready("first").await?;
    team.wait_served(&hostname("first")).await?;
    let apps: Vec<_> = (0..LOAD).map(|number| format!("app-{number}")).collect();
    team.served_throughout(
        &hostname("first"),
        async {
            for app in &apps {
                team.apply(app, &hostname(app), json!({"tls": {}})).await?;
            }
            platform.bed.stop_api_server();
            for _ in 0..5 {
                sleep(Duration::from_secs(1)).await;
                operator.ensure_alive().await?;
            }
            platform.bed.start_api_server().await?;
            for app in &apps {
                team.wait_served(&hostname(app)).await?;
            }
            Ok(())
        }
        .boxed_local(),
    )
    .await?;
    operator.ensure_alive().await?;
    quiet(platform).await?;
    let mut ready = 0;
    for app in &apps {
        ready += usize::from(is_ready_as_the_gateway_says(&team, app).await?);
    }
    say(&format!("{ready} of {LOAD} apps are Ready"));
    ensure!(ready > 0, "no app is Ready");
    // One that the gateway never answers is told so a minute after it was made, which is no settled cluster.
    for app in &apps {
        team.delete(NEBARI, "NebariApp", app).await?;
    }
    for app in &apps {
        team.wait_gone(NEBARI, "NebariApp", app).await?;
    }
    Ok(())
}

/// Whether an app is Ready. It has to be where the gateway says that its listener and its route serve.
///
/// Envoy Gateway does not repeat a status that it could not write while the API server was away, though it serves: such an
/// app says what the gateway says.
async fn is_ready_as_the_gateway_says(team: &Team<'_>, app: &str) -> anyhow::Result<bool> {
    let object = team.must_get(NEBARI, "NebariApp", app).await?;
    let set = team.must_get(GATEWAY_API, "ListenerSet", &format!("{app}-listeners")).await?;
    let route = team.must_get(GATEWAY_API, "HTTPRoute", &format!("{app}-route")).await?;
    for made in [&set, &route] {
        assert_eq!(made["metadata"]["generation"], 1, "it was written once: {made}");
    }
    let serves = has(&set["status"]["listeners"][0], ("Programmed", "True", "Programmed"))
        && has(&route["status"]["parents"][0], ("Accepted", "True", "Accepted"));
    let is_ready = has(&object, ("Ready", "True", "ReconcileSuccess"));
    ensure!(is_ready == serves, "the gateway says {set} and {route} of {object}");
    Ok(is_ready)
}

/// Counted by the API server, for everybody: the operator's own leases are all that is left out. Nothing else runs that
/// writes when nothing changes.
async fn settled(platform: &Platform, operator: &Operator) -> anyhow::Result<()> {
    let team = Team::new(platform, "settled").await?;
    let _server = team.tls_service("tls.settled.example.test").await?;
    let tcp = json!([
        {"name": "pass", "listener": {"port": 9201}, "sniHostnames": ["tls.settled.example.test"],
            "service": {"name": "tls", "port": TLS_PORT}},
        {"name": "raw", "listener": {"port": 9202}},
    ]);
    team.apply("web", "settled.example.test", json!({"tls": {}, "tcp": tcp})).await?;
    team.wait_ready("web").await?;
    // One that cannot be served must not be written again and again either.
    let mut broken = team.app("broken", "broken.settled.example.test", json!({"tls": {}}));
    broken["spec"]["service"]["name"] = "nowhere".into();
    platform.bed.apply(&broken.to_string()).await?;
    team.wait("broken", &[("Ready", "False", "ServiceNotFound")]).await?;
    quiet(platform).await?;
    let (before, sent_before) = (mutations(&platform.bed).await?, operator.writes().await?);
    sleep(PEACE).await;
    let (after, sent_after) = (mutations(&platform.bed).await?, operator.writes().await?);
    let more: Vec<_> = after.iter().filter(|(series, count)| before.get(*series) != Some(count)).collect();
    ensure!(more.is_empty(), "in {} s: {more:#?}", PEACE.as_secs());
    assert_eq!(sent_after, sent_before);
    Ok(())
}

/// Waits until cert-manager, the gateway and the garbage collector have come to rest: nothing waits to be collected, and three
/// seconds without a write.
async fn quiet(platform: &Platform) -> anyhow::Result<()> {
    eventually("the cluster comes to rest", Duration::from_mins(1), async || {
        let certificates = list(&platform.bed, "Certificate").await?;
        let is_there = |uid: &str| certificates.iter().any(|one| one.uid().as_deref() == Some(uid));
        let requests = list(&platform.bed, "CertificateRequest").await?;
        let orphan = requests.iter().find(|one| one.owner_references().iter().any(|owner| !is_there(&owner.uid)));
        ensure!(orphan.is_none(), "{orphan:?} is not collected yet");
        let before = mutations(&platform.bed).await?;
        sleep(Duration::from_secs(3)).await;
        let after = mutations(&platform.bed).await?;
        let more: Vec<_> = after.iter().filter(|(series, count)| before.get(*series) != Some(count)).collect();
        ensure!(more.is_empty(), "{more:?}");
        Ok(())
    })
    .await
}

async fn list(bed: &Bed, kind: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    Ok(Api::<DynamicObject>::all_with(bed.client(), &resource).list(&ListParams::default()).await?.items)
}

/// The requests that write which the API server has answered, by their labels; without those for leases, and without the
/// patches by which the recorders of others count an event that is repeated: the operator only creates events.
async fn mutations(bed: &Bed) -> anyhow::Result<BTreeMap<String, u64>> {
    let request = hyper::Request::get("/metrics").body(Vec::new())?;
    let text = bed.client().request_text(request).await?;
    let verbs = ["APPLY", "PATCH", "POST", "PUT", "DELETE", "DELETECOLLECTION"];
    let writes = |line: &&str| {
        let verb = verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        let repeated = line.contains("resource=\"events\"") && line.contains("verb=\"PATCH\"");
        line.starts_with("apiserver_request_total{") && verb && !line.contains("resource=\"leases\"") && !repeated
    };
    let series = text.lines().filter(writes).map(|line| {
        let (labels, count) = line.rsplit_once(' ').context("a series has a value")?;
        Ok((labels.to_owned(), count.parse()?))
    });
    let series: BTreeMap<_, _> = series.collect::<anyhow::Result<_>>()?;
    ensure!(!series.is_empty(), "the API server counts no writes");
    Ok(series)
}

/// The leader is killed, and an app is made before another replica leads.
async fn take_over(platform: &Platform, leader: Operator) -> anyhow::Result<()> {
    let mut second = Operator::start(&platform.bed, "second", ARGUMENTS)?;
    second.wait_ready().await?;
    let team = Team::new(platform, "replicas").await?;
    team.apply("before", "before.replicas.example.test", json!({"tls": {}})).await?;
    team.wait_ready("before").await?;
    let written = ours(&team, "before").await?;
    ensure!(leads(&leader).await? && !leads(&second).await?, "one leads");
    assert_eq!(second.writes().await?, 0);
    team.wait_served("before.replicas.example.test").await?;
    team.served_throughout(
        "before.replicas.example.test",
        async {
            leader.kill();
            team.apply("after", "after.replicas.example.test", json!({"tls": {}})).await?;
            team.wait_ready("after").await?;
            Ok(())
        }
        .boxed_local(),
    )
    .await?;
    ensure!(leads(&second).await?, "the other leads");
    team.wait_served("after.replicas.example.test").await?;
    assert_eq!(ours(&team, "before").await?, written);
    let applied = second.metrics().await?;
    for kind in ["HTTPRoute", "ListenerSet", "Certificate"] {
        let line = format!("portreeve_writes_total{{kind=\"{kind}\",verb=\"apply\",result=\"ok\"}} 1");
        ensure!(applied.contains(&line), "not one {kind}: {applied:#?}");
    }
    // One that is told to end gives its leases back.
    let mut third = Operator::start(&platform.bed, "third", ARGUMENTS)?;
    third.wait_ready().await?;
    second.stop().await?;
    eventually("the third leads before the leases run out", Duration::from_secs(13), async || {
        ensure!(leads(&third).await?);
        Ok(())
    })
    .await?;
    third.stop().await
}

async fn leads(operator: &Operator) -> anyhow::Result<bool> {
    Ok(operator.metrics().await?.contains(&"portreeve_leader 1".to_owned()))
}

/// What the operator has written for an app, and when: its entries of `managedFields`, and the app's resourceVersion.
async fn ours(team: &Team<'_>, app: &str) -> anyhow::Result<Vec<Value>> {
    let certificate = format!("{app}-{}-cert", team.namespace);
    let mut written = vec![team.must_get(NEBARI, "NebariApp", app).await?["metadata"]["resourceVersion"].clone()];
    for (api_version, kind, name) in [
        (GATEWAY_API, "HTTPRoute", format!("{app}-route")),
        (GATEWAY_API, "ListenerSet", format!("{app}-listeners")),
        (CERTIFICATES, "Certificate", certificate),
    ] {
        let object = team.must_get(api_version, kind, &name).await?;
        let managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let ours: Vec<_> = managers.into_iter().filter(|manager| manager["manager"] == "portreeve").collect();
        ensure!(!ours.is_empty(), "{object}");
        written.extend(ours);
    }
    Ok(written)
}

fn log_of(bed: &Bed, operators: &[&str]) -> String {
    let read = |name: &&str| std::fs::read_to_string(bed.folder().join(format!("{name}.log"))).unwrap_or_default();
    operators.iter().map(read).collect()
}
