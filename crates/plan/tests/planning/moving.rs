//! The way of a tenant from one apps Gateway to another, one write after the other: whoever follows the DNS record of any
//! moment of the last hour is served at every write.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::{Cluster, Name, lawful_plan, settle};
use portreeve_plan::Plan;

const CASE: &str = include_str!("../../cases/tenant-move/in.yaml");
const SECTION: &str = "t-acme";

/// The tenant at home, before anybody asks for anything. Its listener is Portreeve's.
fn at_home() -> Cluster {
    let lines = CASE.lines().filter(|line| !line.contains("- {name: t-acme"));
    let mut cluster = Cluster::read(&lines.collect::<Vec<_>>().join("\n"));
    ask(&mut cluster, "apps");
    for _ in 0..3 {
        settle(&mut cluster);
        cluster.answer();
    }
    settle(&mut cluster);
    cluster
}

fn ask(cluster: &mut Cluster, to: &str) {
    cluster.objects.get_mut(&tenant()).unwrap()["metadata"]["annotations"]["portreeve.dev/move-to"] = to.into();
}

/// More rounds than the whole way has.
const PATIENCE: usize = 60;

const CONTROLLERS: [&str; 2] = ["test.example/gateway", "gateway.envoyproxy.io/gatewayclass-controller"];

#[test]
fn a_tenant_is_served_at_every_write() {
    for controller in CONTROLLERS {
        let told = walk(&mut at_home(), controller, "apps-b", PATIENCE);
        let steps = ["MovePreparing", "MoveAwaitingDNS", "MoveAwaitingTTL", "MoveFollowing"].map(str::to_owned);
        assert_eq!(told, BTreeSet::from(steps), "{controller}");
    }
}

/// Whoever changes their mind on the way is taken home as safely.
#[test]
fn the_way_back_is_open_in_every_round() {
    CONTROLLERS.into_iter().for_each(the_way_back_is_open);
}

fn the_way_back_is_open(controller: &'static str) {
    for turn in 0..PATIENCE {
        let mut cluster = at_home();
        let mut travel = Travel::new(&cluster, controller);
        if (0..turn).any(|_| !travel.round(&mut cluster, "apps-b")) {
            assert!(turn > 5, "the way has steps to turn back at");
            return;
        }
        while travel.round(&mut cluster, "apps") {
            assert!(travel.rounds < 2 * PATIENCE, "there is no way back after {turn} rounds");
        }
        assert!(!has_listener(&cluster, "apps-b"), "after {turn} rounds");
    }
    panic!("the way has no end");
}

fn walk(cluster: &mut Cluster, controller: &'static str, to: &str, patience: usize) -> BTreeSet<String> {
    let mut travel = Travel::new(cluster, controller);
    while travel.round(cluster, to) {
        assert!(travel.rounds < patience, "the way has no end: {:#?}", cluster.objects[&tenant()]["status"]);
    }
    assert!(has_listener(cluster, to) && !has_listener(cluster, "apps"));
    let copies = cluster.objects.keys().filter(|(kind, _, name)| kind == "HTTPRoute" && name.ends_with("-moving"));
    assert_eq!(copies.count(), 0);
    travel.told
}

/// What clients may believe.
struct Travel {
    rounds: usize,
    told: BTreeSet<String>,
    /// The addresses to which DNS has led within its TTL.
    believed: BTreeSet<String>,
    /// Who signs the statuses of routes.
    controller: &'static str,
    /// When each route was answered for, as it is now.
    answered: BTreeMap<Name, (i64, Timestamp)>,
    /// By Gateway, as it was at the last look.
    served: BTreeMap<&'static str, Served>,
}

/// What Envoys know of a Gateway.
struct Served {
    /// The route that requests go to, and since when.
    first: Option<(String, Timestamp)>,
    /// Every route, and since when.
    routes: BTreeMap<String, Timestamp>,
}

/// How long Envoys may take until they know of a change.
const TAKEN_IN: SignedDuration = SignedDuration::from_secs(5);

impl Travel {
    fn new(cluster: &Cluster, controller: &'static str) -> Self {
        let believed = BTreeSet::from([address_in_dns(cluster)]);
        let (answered, served) = (BTreeMap::new(), BTreeMap::new());
        Self { rounds: 0, told: BTreeSet::new(), believed, controller, answered, served }
    }

    /// A change of a route is a change of its conditions, which tell its generation.
    fn answer(&mut self, cluster: &mut Cluster) {
        cluster.answer();
        let now = cluster.now();
        for (name, object) in cluster.objects.iter_mut().filter(|((kind, ..), _)| kind == "HTTPRoute") {
            let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
            let (seen, since) = self.answered.entry(name.clone()).or_insert((generation, now));
            if *seen != generation {
                (*seen, *since) = (generation, now);
            }
            for parent in object["status"]["parents"].as_array_mut().into_iter().flatten() {
                parent["controllerName"] = self.controller.into();
                for condition in parent["conditions"].as_array_mut().into_iter().flatten() {
                    condition["lastTransitionTime"] = since.to_string().into();
                }
            }
        }
        self.answered.retain(|name, _| cluster.objects.contains_key(name));
    }

    /// Asks for a move, plans, carries out write after write, and lets everybody else do their part. False when nothing
    /// is left to do.
    fn round(&mut self, cluster: &mut Cluster, to: &str) -> bool {
        self.rounds += 1;
        ask(cluster, to);
        let plan = lawful_plan(&cluster.world());
        for write in writes(&plan) {
            cluster.execute(&write);
            self.look(cluster);
        }
        let conditions = cluster.objects[&tenant()]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let moving = conditions.iter().find(|condition| condition["type"] == "Moving");
        self.told.extend(moving.map(|condition| condition["reason"].as_str().unwrap().to_owned()));
        self.answer(cluster);
        self.look(cluster);
        follow(cluster);
        self.look(cluster);
        self.answer(cluster);
        self.look(cluster);
        if moving.is_some_and(|condition| condition["reason"] == "MoveAwaitingTTL") {
            cluster.pass_an_hour();
            self.believed = BTreeSet::from([address_in_dns(cluster)]);
        } else if let Some(at) = plan.wake_at {
            cluster.wait_until(at);
        }
        !plan.is_empty() || moving.is_some() || !lawful_plan(&cluster.world()).is_empty()
    }

    fn look(&mut self, cluster: &Cluster) {
        self.look_at(cluster);
        for (gateway, address) in [("apps", "192.0.2.1"), ("apps-b", "192.0.2.2")] {
            let served = self.known(cluster, gateway);
            if self.controller == CONTROLLERS[1] && self.believed.contains(address) {
                self.look_at_routes(&served, gateway, cluster.now());
            }
            self.served.insert(gateway, served);
        }
    }

    fn look_at(&mut self, cluster: &Cluster) {
        self.believed.insert(address_in_dns(cluster));
        for address in &self.believed {
            let gateway = if address == "192.0.2.2" { "apps-b" } else { "apps" };
            let object = &cluster.objects[&gateway_name(gateway)];
            let entry =
                |list: &Value| list.as_array().is_some_and(|list| list.iter().any(|one| one["name"] == SECTION));
            let listens = entry(&object["spec"]["listeners"]) && entry(&object["status"]["listeners"]);
            let routed = cluster.objects.iter().any(|((kind, ..), route)| {
                kind == "HTTPRoute"
                    && route["spec"]["parentRefs"].as_array().unwrap().iter().any(|parent| parent["name"] == gateway)
                    && route["status"]["parents"].to_string().contains(&format!("{gateway:?}"))
            });
            assert!(listens && routed, "round {}: clients of {gateway} are lost", self.rounds);
        }
    }

    /// What Envoys know once they know of the routes that there are.
    fn known(&self, cluster: &Cluster, gateway: &'static str) -> Served {
        let before = self.served.get(gateway);
        // What was there at the first look was there before.
        let now = before.map_or(Timestamp::MIN, |_| cluster.now());
        let names = |route: &(&Name, &Value)| {
            let parents = route.1["spec"]["parentRefs"].as_array().into_iter().flatten();
            route.0.0 == "HTTPRoute" && parents.clone().any(|parent| parent["name"] == gateway)
        };
        let attached: Vec<(&Name, &Value)> = cluster.objects.iter().filter(names).collect();
        let since = |name: &str| before.and_then(|before| before.routes.get(name).copied()).unwrap_or(now);
        let routes = attached.iter().map(|((.., name), _)| (name.clone(), since(name))).collect();
        let first = attached.iter().min_by_key(|((.., name), route)| {
            (!route["spec"]["rules"].to_string().contains(r#""name":"host""#), name.ends_with("-moving"))
        });
        let was_first = before.and_then(|before| before.first.clone());
        let first = first.map(|((.., name), _)| match was_first {
            Some((was, since)) if was == *name => (was, since),
            _ => (name.clone(), now),
        });
        Served { first, routes }
    }

    /// Requests are led to a route that Envoys know, from one that stays until they know that it is first no more.
    fn look_at_routes(&self, served: &Served, gateway: &str, now: Timestamp) {
        let Some(Served { first: Some((was, since)), routes }) = self.served.get(gateway) else { return };
        let first = served.first.as_ref().map(|(first, _)| first);
        if first != Some(was) {
            let is_known = first.and_then(|first| routes.get(first)).is_some_and(|since| *since + TAKEN_IN <= now);
            assert!(is_known, "round {}: on {gateway} requests go from {was} to {first:?} at once", self.rounds);
        }
        for gone in routes.keys().filter(|name| !served.routes.contains_key(*name)) {
            let is_idle = gone != was && *since + TAKEN_IN <= now;
            assert!(is_idle, "round {}: {gone} goes from {gateway} while requests may go there", self.rounds);
        }
    }
}

/// The virtual cluster shows its Gateway to its tenant, so that the routes follow.
fn follow(cluster: &mut Cluster) {
    let shown = cluster.objects[&tenant()]["status"]["appsGateway"]["name"].clone();
    let route = ("HTTPRoute".to_owned(), "kubespaces-tenant-acme".to_owned(), "web-x-default-x-acme".to_owned());
    let mut object = cluster.objects[&route].clone();
    if !shown.is_null() && object["spec"]["parentRefs"][0]["name"] != shown {
        object["spec"]["parentRefs"][0]["name"] = shown;
        cluster.edit(&object);
    }
}

/// By the record of the tenant's own, once external-dns has taken it in; else by the wildcard.
fn address_in_dns(cluster: &Cluster) -> String {
    let record =
        cluster.objects.get(&("DNSEndpoint".to_owned(), "kubespaces-system".to_owned(), "acme-apps".to_owned()));
    let record = record.filter(|record| record["status"]["observedGeneration"] == record["metadata"]["generation"]);
    record.map_or("192.0.2.1", |record| record["spec"]["endpoints"][0]["targets"][0].as_str().unwrap()).to_owned()
}

/// One plan for each write, in the order in which the shell makes them.
fn writes(plan: &Plan) -> Vec<Plan> {
    let applies = plan.apply.iter().map(|apply| Plan { apply: vec![apply.clone()], ..Plan::default() });
    let deletes = plan.delete.iter().map(|object| Plan { delete: vec![object.clone()], ..Plan::default() });
    let statuses = plan.statuses.iter().map(|status| Plan { statuses: vec![status.clone()], ..Plan::default() });
    applies.chain(deletes).chain(statuses).collect()
}

fn has_listener(cluster: &Cluster, gateway: &str) -> bool {
    let listeners = cluster.objects[&gateway_name(gateway)]["spec"]["listeners"].as_array().unwrap();
    listeners.iter().any(|listener| listener["name"] == SECTION)
}

fn tenant() -> Name {
    ("Tenant".to_owned(), String::new(), "acme".to_owned())
}

fn gateway_name(name: &str) -> Name {
    ("Gateway".to_owned(), "kubespaces-system".to_owned(), name.to_owned())
}

#[test]
fn the_copies_have_the_tenants_own_names_only() {
    let mut cluster = at_home();
    let mut travel = Travel::new(&cluster, CONTROLLERS[0]);
    travel.round(&mut cluster, "apps-b");
    travel.round(&mut cluster, "apps-b");
    let copy = ("HTTPRoute".to_owned(), "kubespaces-tenant-acme".to_owned(), "web-x-default-x-acme-moving".to_owned());
    assert_eq!(cluster.objects[&copy]["spec"]["hostnames"], json!(["web.acme.apps.example.com"]));
}
