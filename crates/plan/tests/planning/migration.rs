//! The way of an app from the former layout to the present one, one write after the other, with a crash after any of
//! them: it is served all the way. traps: 16, 17.

use std::collections::BTreeSet;

use crate::support::{Cluster, lawful_plan};
use portreeve_plan::Plan;
use serde_json::Value;

const FORMER: &str = include_str!("../../cases/migration-1-copy/in.yaml");
const GATEWAY: (&str, &str, &str) = ("Gateway", "envoy-gateway-system", "nebari-gateway");
const LISTENERS: (&str, &str, &str) = ("ListenerSet", "shop", "web-listeners");
const SECTION: &str = "tls-web-shop";

/// More writes than the whole way has.
const PATIENCE: usize = 100;

#[test]
fn an_app_is_served_at_every_write() {
    let mut cluster = Cluster::read(FORMER);
    let told = walk(&mut cluster, PATIENCE);
    assert_arrived(&cluster);
    let reasons = ["Migrating", "Moved", "TLSConfigured"].map(str::to_owned);
    assert_eq!(told, BTreeSet::from(reasons), "what the app was told");
}

#[test]
fn a_crash_after_any_write_costs_nothing() {
    for writes in 1..6 {
        let mut cluster = Cluster::read(FORMER);
        walk(&mut cluster, writes);
        assert_arrived(&cluster);
    }
}

/// The app asks for sign-in, and the former operator has made its policy.
fn protected() -> Cluster {
    let text = FORMER.replacen("kind: Case\n", "kind: Case\nlogin: {}\n", 1);
    let text = text.replacen(
        "  routing: {}\n",
        "  routing: {publicRoutes: [{pathPrefix: /open}]}\n  auth: {enabled: true}\n",
        1,
    );
    let mut cluster = Cluster::read(&(text + PROTECTION));
    // The former operator's policy is in force.
    cluster.answer();
    cluster
}

const PROTECTION: &str = "
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: web-security, namespace: shop, ownerReferences: [{apiVersion: reconcilers.nebari.dev/v1, kind: NebariApp, name: web, uid: web-1, controller: true}]}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web-route}]
  oidc: {clientID: shop-web}
---
apiVersion: v1
kind: Secret
metadata: {name: web-oidc-client, namespace: shop, labels: {app.kubernetes.io/name: nebariapp, app.kubernetes.io/instance: web, app.kubernetes.io/managed-by: nebari-operator}}
data: {client-id: AA==, client-secret: AA==}
";

/// Law 7: no parent gets the backends before it has accepted the policy.
#[test]
fn a_protected_app_is_served_at_every_write_and_nowhere_without_its_policy() {
    for writes in [1, PATIENCE] {
        let mut cluster = protected();
        walk_on(&mut cluster, writes, &mut BTreeSet::new(), |cluster| {
            assert!(is_served(cluster), "the app is not served");
            assert_protected(cluster);
        });
        assert_arrived(&cluster);
        let is_waiting = |(kind, _, name): &crate::support::Name| kind == "HTTPRoute" && name == "web-route.next";
        assert!(!cluster.objects.keys().any(is_waiting), "a route is left over");
    }
}

fn assert_protected(cluster: &Cluster) {
    let main = &cluster.objects[&name(("HTTPRoute", "shop", "web-route"))];
    assert_ne!(main["spec"]["rules"][0]["backendRefs"], serde_json::json!([]), "the app is closed");
    let policy = &cluster.objects[&name(("SecurityPolicy", "shop", "web-security"))];
    let accepted: Vec<_> =
        policy["status"]["ancestors"].as_array().unwrap().iter().map(|one| &one["ancestorRef"]).collect();
    let routes = cluster.objects.iter().filter(|((kind, ..), _)| kind == "HTTPRoute");
    for (route, object) in
        routes.filter(|(_, object)| object["spec"]["rules"][0]["backendRefs"] != serde_json::json!([]))
    {
        for parent in object["spec"]["parentRefs"].as_array().unwrap() {
            let is_it =
                |one: &&&Value| ["kind", "name", "sectionName"].iter().all(|field| one[*field] == parent[*field]);
            assert!(accepted.iter().any(|one| is_it(&one)), "{route:?} leads to the app from {parent}");
        }
    }
}

/// Going back is possible at any point: without the flag, and with the entry put back where it is gone.
#[test]
fn the_way_back_is_open_at_every_write() {
    for turn in 0..PATIENCE {
        let mut cluster = Cluster::read(FORMER);
        let arrived = advance(&mut cluster, turn);
        cluster.settings.migrate = "off".to_owned();
        let entry = Cluster::read(FORMER).objects[&name(GATEWAY)]["spec"].clone();
        cluster.edit(&serde_json::json!({
            "kind": "Gateway", "metadata": { "namespace": GATEWAY.1, "name": GATEWAY.2 }, "spec": entry,
        }));
        walk_on(&mut cluster, 1, &mut BTreeSet::new(), |_| {});
        let told = &cluster.objects[&name(("NebariApp", "shop", "web"))]["status"]["conditions"];
        let tls = told.as_array().unwrap().iter().find(|condition| condition["type"] == "TLSReady").unwrap();
        assert_eq!(tls["reason"], "LegacyListener", "after {turn} writes");
        assert!(serves(&cluster, GATEWAY), "after {turn} writes");
        assert!(!cluster.objects.contains_key(&name(LISTENERS)), "after {turn} writes");
        if arrived {
            return;
        }
    }
    panic!("the way has no end");
}

/// Plans, carries out so many writes of each plan, lets the gateway answer, and so on until nothing is left to do. The
/// app is served after each write. Says what `TLSReady` said on the way.
fn walk(cluster: &mut Cluster, writes: usize) -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    walk_on(cluster, writes, &mut told, |cluster| assert!(is_served(cluster), "the app is not served"));
    told
}

fn walk_on(cluster: &mut Cluster, writes: usize, told: &mut BTreeSet<String>, check: fn(&Cluster)) {
    for _ in 0..PATIENCE {
        let plan = lawful_plan(&cluster.world());
        for write in singly(&plan).into_iter().take(writes) {
            cluster.execute(&write);
            check(cluster);
            told.extend(reason(cluster));
        }
        // A gateway that takes its time: it answers when nothing else is left to do.
        let before = cluster.objects.clone();
        if plan.is_empty() {
            cluster.answer();
        }
        if plan.is_empty() && cluster.objects == before {
            return;
        }
    }
    panic!("the way has no end");
}

/// The first so many writes of the way; whether that was all of it.
fn advance(cluster: &mut Cluster, mut writes: usize) -> bool {
    while writes > 0 {
        let plan = lawful_plan(&cluster.world());
        let due = singly(&plan);
        let before = cluster.objects.clone();
        for write in due.iter().take(writes) {
            cluster.execute(write);
        }
        writes = writes.saturating_sub(due.len());
        if writes > 0 {
            cluster.answer();
        }
        if due.is_empty() && cluster.objects == before {
            return true;
        }
    }
    false
}

/// A plan for each write, in the order in which they are carried out.
fn singly(plan: &Plan) -> Vec<Plan> {
    let copies = plan.copies.iter().map(|copy| Plan { copies: vec![copy.clone()], ..Plan::default() });
    let applies = plan.apply.iter().map(|apply| Plan { apply: vec![apply.clone()], ..Plan::default() });
    let patches = plan.patches.iter().map(|patch| Plan { patches: vec![patch.clone()], ..Plan::default() });
    let deletes = plan.delete.iter().map(|object| Plan { delete: vec![object.clone()], ..Plan::default() });
    let provision = plan.provision.iter().map(|one| Plan { provision: vec![one.clone()], ..Plan::default() });
    let statuses = plan.statuses.iter().map(|write| Plan { statuses: vec![write.clone()], ..Plan::default() });
    copies.chain(applies).chain(patches).chain(deletes).chain(provision).chain(statuses).collect()
}

/// Whether the listener that takes connections for the app's name has the app's route. The Gateway's own entry comes
/// first; that of the ListenerSet needs its certificate.
fn is_served(cluster: &Cluster) -> bool {
    if serves_name(cluster, GATEWAY) {
        return serves(cluster, GATEWAY);
    }
    let secret = cluster.objects.contains_key(&name(("Secret", "shop", "web-shop-tls")));
    serves_name(cluster, LISTENERS) && serves(cluster, LISTENERS) && secret
}

fn serves_name(cluster: &Cluster, object: (&str, &str, &str)) -> bool {
    let object = cluster.objects.get(&name(object)).unwrap_or(&Value::Null);
    let mut listeners = object["spec"]["listeners"].as_array().into_iter().flatten();
    listeners.any(|listener| listener["hostname"] == "web.example.com")
}

/// Whether the app's route is attached to its listener of this object.
fn serves(cluster: &Cluster, object: (&str, &str, &str)) -> bool {
    let route = cluster.objects.get(&name(("HTTPRoute", "shop", "web-route"))).unwrap_or(&Value::Null);
    let mut parents = route["spec"]["parentRefs"].as_array().into_iter().flatten();
    parents.any(|parent| parent["kind"] == object.0 && parent["name"] == object.2 && parent["sectionName"] == SECTION)
}

fn assert_arrived(cluster: &Cluster) {
    assert!(!serves_name(cluster, GATEWAY), "the former entry is there");
    assert!(!serves(cluster, GATEWAY), "the route is still at the former entry");
    assert!(is_served(cluster));
    let copy = &cluster.objects[&name(("Secret", "shop", "web-shop-tls"))];
    assert_eq!(copy["data"]["tls.crt"], "b2xk", "the Secret was not taken over");
    let certificate =
        |namespace: &str| cluster.objects.contains_key(&name(("Certificate", namespace, "web-shop-cert")));
    assert!(certificate("shop") && !certificate(GATEWAY.1), "the Certificate did not move");
    assert!(cluster.objects.contains_key(&name(("Secret", GATEWAY.1, "web-shop-tls"))), "there is no way back");
    assert_eq!(reason(cluster).as_deref(), Some("TLSConfigured"));
}

fn reason(cluster: &Cluster) -> Option<String> {
    let conditions = &cluster.objects[&name(("NebariApp", "shop", "web"))]["status"]["conditions"];
    let tls = conditions.as_array()?.iter().find(|condition| condition["type"] == "TLSReady")?;
    tls["reason"].as_str().map(str::to_owned)
}

fn name((kind, namespace, name): (&str, &str, &str)) -> (String, String, String) {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}
