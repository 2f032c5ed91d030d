//! Law 3: what a plan leaves behind has no fault. Nothing here shares a decision with planning; it reads objects only.

mod protection;

use std::collections::{BTreeMap, BTreeSet};

use gateway_api::gateways::GatewayListeners;
use portreeve_api::names::{labels, nebari_app as derived};
use portreeve_names::HostPattern;
use serde_json::Value;

use crate::arbitrate::NameIndex;
use crate::claim::{GatewayName, OwnerKind};
use crate::object::{Key, Kind};
use crate::output::{ObjectRef, Plan};
use crate::view::View;
use crate::world::World;

/// Something that no plan may lead to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An object would be written where its owner has no business.
    OutsideOwnersNamespaces(ObjectRef),
    /// A Gateway would get fields other than entries of tenants.
    GatewayWritten(ObjectRef),
    /// A listener would serve nobody that exists.
    ListenerWithoutOwner(ObjectRef, String),
    /// Two owners would have the same name, or overlapping ones.
    NameOfTwoOwners(ObjectRef, String),
    /// Two owners would have a port that one of them needs alone.
    PortOfTwoOwners(ObjectRef, u16),
    /// A route would have a ListenerSet or a Gateway for parent that lacks its listener.
    RouteWithoutListener(ObjectRef, String),
    /// Visitors would get past sign-in.
    Unprotected(ObjectRef),
}

/// Everything that is wrong with the world once the plan has been carried out; empty for every plan that
/// [`crate::plan()`] makes of this world.
pub fn audit(world: &World, plan: &Plan) -> Vec<Fault> {
    let view = View::new(world);
    let audit = Audit { view: &view, after: after(&view, plan), owners: owners(world) };
    let removed = removed(plan);
    let removals = audit.removals(&removed);
    let releases = audit.releases(plan);
    [releases, audit.namespaces(), audit.gateways(), removals, audit.listeners(), audit.routes(), audit.protection()]
        .concat()
}

struct Audit<'a> {
    view: &'a View<'a>,
    /// What Portreeve has made, once the plan has been carried out; of Gateways only what it applies.
    after: BTreeMap<ObjectRef, Value>,
    /// By uid: kind, namespaces in which it may have objects, name.
    owners: BTreeMap<&'a str, (OwnerKind, Vec<&'a str>, &'a str)>,
}

/// Who has a listener or a route, for the question whether two are one owner.
type Group = (OwnerKind, String);

fn after(view: &View<'_>, plan: &Plan) -> BTreeMap<ObjectRef, Value> {
    let mut after = BTreeMap::new();
    for (kind, live) in view.all_live() {
        if live.is_made() {
            let metadata = live.metadata();
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let key = Key::new(kind, namespace, metadata.name.as_deref().unwrap_or_default());
            after.insert(named(&key.object_ref("")), live.to_value());
        }
    }
    for apply in &plan.apply {
        after.insert(named(&apply.object), apply.body.clone());
    }
    for object in &plan.delete {
        after.remove(&named(object));
    }
    after
}

/// The places in `spec.listeners` that patches take out, by the object that they patch.
fn removed(plan: &Plan) -> BTreeMap<&ObjectRef, Vec<Option<usize>>> {
    let place = |operation: &Value| -> Option<usize> {
        operation["path"].as_str()?.strip_prefix("/spec/listeners/")?.parse().ok()
    };
    let removals = |operations: &[Value]| {
        let changes = operations.iter().filter(|operation| operation["op"] != "test");
        changes.map(|operation| place(operation).filter(|_| operation["op"] == "remove")).collect()
    };
    // What is taken out of metadata is Portreeve's own, or what it was asked by.
    let is_of_metadata =
        |operation: &Value| operation["path"].as_str().is_some_and(|path| path.starts_with("/metadata/"));
    let of_specs = plan.patches.iter().filter(|patch| !patch.operations.iter().all(is_of_metadata));
    of_specs.map(|patch| (&patch.object, removals(&patch.operations))).collect()
}

/// Without the version, of which there may be several.
fn named(object: &ObjectRef) -> ObjectRef {
    ObjectRef { api_version: String::new(), ..object.clone() }
}

fn owners(world: &World) -> BTreeMap<&str, (OwnerKind, Vec<&str>, &str)> {
    let apps = world.apps.iter().map(|app| {
        let metadata = &app.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let namespaces = vec![metadata.namespace.as_deref().unwrap_or_default()];
        (metadata.uid.as_deref().unwrap_or_default(), (OwnerKind::NebariApp, namespaces, name))
    });
    let config = &world.config;
    let api = config.tenant_api.as_ref().map(|api| api.gateway_namespace.as_str());
    let gateways: Vec<&str> =
        api.into_iter().chain(config.tenant_apps.as_ref().map(|apps| apps.gateway_namespace.as_str())).collect();
    let tenants = world.tenants.iter().map(|tenant| {
        let name = tenant.metadata.name.as_deref().unwrap_or_default();
        let owner = (OwnerKind::Tenant, gateways.clone(), name);
        (tenant.metadata.uid.as_deref().unwrap_or_default(), owner)
    });
    apps.chain(tenants).collect()
}

impl Audit<'_> {
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (&ObjectRef, &Value)> {
        self.after.iter().filter(move |(object, _)| object.kind == kind.as_str())
    }

    fn owner(&self, body: &Value) -> Option<&(OwnerKind, Vec<&str>, &str)> {
        let owners = body["metadata"]["ownerReferences"].as_array()?;
        let owner = owners.iter().find(|owner| owner["controller"] == true)?;
        self.owners.get(owner["uid"].as_str()?)
    }

    /// An app's objects are in its own namespace, or by right elsewhere; a tenant's in its namespace and in those of the
    /// gateways.
    fn namespaces(&self) -> Vec<Fault> {
        let faults = self.after.iter().filter(|(object, body)| {
            let Some((kind, namespaces, name)) = self.owner(body) else {
                return !self.is_elsewhere_by_right(object, body);
            };
            let namespace = object.namespace.as_deref().unwrap_or_default();
            let tenants_own =
                *kind == OwnerKind::Tenant && (namespace.is_empty() || self.is_of_tenant(namespace, name));
            !namespaces.contains(&namespace) && !tenants_own
        });
        faults.map(|(object, _)| Fault::OutsideOwnersNamespaces(object.clone())).collect()
    }

    /// Releases are in the namespaces of the tenants for which they are, and each has one step at most.
    fn releases(&self, plan: &Plan) -> Vec<Fault> {
        let mut seen = BTreeSet::new();
        let faults = plan.releases.iter().filter(|step| {
            let is_first = seen.insert((&step.namespace, &step.name));
            !is_first || !self.is_of_tenant(&step.namespace, &step.owner.name)
        });
        faults.map(|step| Fault::OutsideOwnersNamespaces(step.owner.clone())).collect()
    }

    /// What an app may have outside its namespace: NetworkPolicies where the namespace has opted in, `ReferenceGrant`s
    /// for Services that name the app's namespace.
    fn is_elsewhere_by_right(&self, object: &ObjectRef, body: &Value) -> bool {
        let Some(home) = body["metadata"]["labels"][labels::NEBARI_APP_NAMESPACE].as_str() else { return true };
        let there = object.namespace.as_deref().unwrap_or_default();
        if home == there {
            return true;
        }
        let consents = |to: &Value| {
            let service = self.view.service(there, to["name"].as_str().unwrap_or_default());
            let annotations = service.and_then(|service| service.metadata.annotations.as_ref());
            let allowed = annotations.and_then(|all| all.get(labels::ALLOW_FROM));
            allowed.is_some_and(|allowed| allowed.split(',').map(str::trim).any(|one| one == home))
        };
        let each = |field: &str| body["spec"][field].as_array().into_iter().flatten();
        match object.kind.as_str() {
            "NetworkPolicy" => {
                let labels = self.view.namespace_labels(there);
                labels.and_then(|labels| labels.get(labels::MANAGED)).is_some_and(|value| value == labels::TRUE)
            }
            "ReferenceGrant" => each("to").all(consents) && each("from").all(|from| from["namespace"] == home),
            _ => false,
        }
    }

    /// By the namespace's label, as it is or is going to be.
    fn is_of_tenant(&self, namespace: &str, tenant: &str) -> bool {
        let key = Key::new(Kind::Namespace, "", namespace).object_ref("");
        let coming = self.after.get(&key).and_then(|body| body["metadata"]["labels"][labels::TENANT].as_str());
        let present = self.view.namespace_labels(namespace).and_then(|found| found.get(labels::TENANT));
        coming.or(present.map(String::as_str)) == Some(tenant)
    }

    /// Law 4: only of the Gateways of tenants' apps, and of those only entries of tenants that exist; what Portreeve has
    /// made itself is its own.
    fn gateways(&self) -> Vec<Fault> {
        let apps = self.view.world.config.tenant_apps.as_ref();
        let tidy = |object: &ObjectRef, body: &Value| {
            if is_shard_of_ours(body) {
                return true;
            }
            let of_tenants = apps.is_some_and(|apps| {
                let labels = self.labels_of_gateway(object);
                let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
                let selected = !apps.gateway_labels.is_empty() && apps.gateway_labels.iter().all(has);
                object.namespace.as_ref() == Some(&apps.gateway_namespace)
                    && (object.name == apps.gateway_name || apps.more_gateways.contains(&object.name) || selected)
            });
            let mut listeners = body["spec"]["listeners"].as_array().into_iter().flatten();
            let gateway = GatewayName::new(object.namespace.as_deref().unwrap_or_default(), &object.name);
            let gateway = self.view.gateway(&gateway);
            let only_entries = listeners.all(|entry| {
                let name = entry["name"].as_str().unwrap_or_default();
                // A Gateway that is no longer configured keeps those that it has.
                let has = gateway.is_some_and(|gateway| gateway.section(name).is_some());
                (of_tenants || has) && self.listener_group(body, Kind::Gateway, name).is_some()
            });
            let only_listeners =
                body["spec"].as_object().is_none_or(|spec| spec.keys().all(|field| field == "listeners"));
            only_entries && only_listeners
        };
        let faults = self.of_kind(Kind::Gateway).filter(|(object, body)| !tidy(object, body));
        faults.map(|(object, _)| Fault::GatewayWritten(object.clone())).collect()
    }

    fn labels_of_gateway(&self, object: &ObjectRef) -> Option<&BTreeMap<String, String>> {
        let name = GatewayName::new(object.namespace.as_deref().unwrap_or_default(), &object.name);
        self.view.gateway(&name)?.object.metadata.labels.as_ref()
    }

    /// Law 4: what is taken out of a Gateway is an entry of the former operator for an app that is there, and no route
    /// has nothing else for parent.
    fn removals(&self, removed: &BTreeMap<&ObjectRef, Vec<Option<usize>>>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut gone = BTreeSet::new();
        // From ListenerSets of apps goes what others have put there.
        for (object, places) in removed.iter().filter(|(object, _)| object.kind != Kind::ListenerSet.as_str()) {
            let gateway = GatewayName::new(object.namespace.as_deref().unwrap_or_default(), &object.name);
            let listeners = self.view.gateway(&gateway).map_or(&[][..], |gateway| &gateway.object.spec.listeners);
            for place in places {
                let entry = place.and_then(|place| listeners.get(place));
                match entry.filter(|entry| object.kind == Kind::Gateway.as_str() && self.is_of_an_app(entry)) {
                    Some(entry) => _ = gone.insert((&*object.name, entry.name.as_str())),
                    None => faults.push(Fault::GatewayWritten((*object).clone())),
                }
            }
        }
        for (object, body) in self.of_kind(Kind::HttpRoute) {
            let parents = body["spec"]["parentRefs"].as_array().map_or(&[][..], Vec::as_slice);
            let is_gone = |parent: &Value| {
                let text = |field: &str| parent[field].as_str().unwrap_or_default();
                text("kind") == Kind::Gateway.as_str() && gone.contains(&(text("name"), text("sectionName")))
            };
            if !parents.is_empty() && parents.iter().all(is_gone) {
                faults.push(Fault::RouteWithoutListener(object.clone(), String::new()));
            }
        }
        faults
    }

    /// By the entry's name and the namespace of which it takes routes.
    fn is_of_an_app(&self, entry: &GatewayListeners) -> bool {
        let namespaces = entry.allowed_routes.as_ref().and_then(|routes| routes.namespaces.as_ref());
        let labels = namespaces.and_then(|namespaces| namespaces.selector.as_ref()?.match_labels.as_ref());
        let namespace = labels.and_then(|labels| labels.get(labels::NAMESPACE_NAME));
        self.owners.values().any(|(kind, homes, name)| {
            let home = homes.first().copied().unwrap_or_default();
            *kind == OwnerKind::NebariApp
                && namespace.is_some_and(|namespace| namespace == home)
                && entry.name == derived::https_listener(name, home)
        })
    }

    /// Every listener has an owner, and no two owners meet.
    fn listeners(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut names = Names::default();
        let mut ports: BTreeMap<(String, u16), BTreeMap<Group, bool>> = BTreeMap::new();
        for kind in [Kind::ListenerSet, Kind::Gateway] {
            for (object, body) in self.of_kind(kind) {
                for listener in body["spec"]["listeners"].as_array().into_iter().flatten() {
                    let name = listener["name"].as_str().unwrap_or_default();
                    if kind == Kind::Gateway && is_shard_of_ours(body) && !name.starts_with("t-") {
                        continue;
                    }
                    let Some(group) = self.listener_group(body, kind, name) else {
                        faults.push(Fault::ListenerWithoutOwner(object.clone(), name.to_owned()));
                        continue;
                    };
                    faults.extend(names.add(&group, &listener["hostname"], object));
                    let gateway = gateway_of(object, body, kind);
                    let port = listener["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
                    let alone = listener["protocol"] == "TLS" && listener["hostname"].is_null();
                    *ports.entry((gateway, port)).or_default().entry(group).or_default() |= alone;
                    let holders = &ports[&(gateway_of(object, body, kind), port)];
                    if holders.len() > 1 && holders.values().any(|alone| *alone) {
                        faults.push(Fault::PortOfTwoOwners(object.clone(), port));
                    }
                }
            }
        }
        for kind in [Kind::HttpRoute, Kind::TlsRoute] {
            for (object, body) in self.of_kind(kind) {
                let Some(group) = self.group(body) else { continue };
                for hostname in body["spec"]["hostnames"].as_array().into_iter().flatten() {
                    faults.extend(names.add(&group, hostname, object));
                }
            }
        }
        faults
    }

    fn listener_group(&self, body: &Value, kind: Kind, entry: &str) -> Option<Group> {
        if kind == Kind::ListenerSet {
            return self.group(body);
        }
        let tenant = entry.strip_prefix("t-")?;
        let exists = self.owners.values().any(|(kind, _, name)| *kind == OwnerKind::Tenant && *name == tenant);
        exists.then(|| (OwnerKind::Tenant, tenant.to_owned()))
    }

    fn group(&self, body: &Value) -> Option<Group> {
        let (kind, namespaces, name) = self.owner(body)?;
        Some(match kind {
            OwnerKind::NebariApp => (*kind, namespaces.concat()),
            OwnerKind::Tenant => (*kind, (*name).to_owned()),
        })
    }

    /// Every ListenerSet that a route names has the listener that it names, and so has every Gateway that is there. A
    /// route may wait for a Gateway that is away, as when it is made anew.
    fn routes(&self) -> Vec<Fault> {
        let mut listeners = BTreeSet::new();
        for (object, body) in self.of_kind(Kind::ListenerSet) {
            let namespace = object.namespace.as_deref().unwrap_or_default();
            for listener in body["spec"]["listeners"].as_array().into_iter().flatten() {
                listeners.insert((namespace, object.name.as_str(), listener["name"].as_str()));
            }
        }
        let mut faults = Vec::new();
        for (object, body) in self.of_kind(Kind::HttpRoute).chain(self.of_kind(Kind::TlsRoute)) {
            for parent in body["spec"]["parentRefs"].as_array().into_iter().flatten() {
                let text = |field: &str| parent[field].as_str().unwrap_or_default();
                let named = (text("namespace"), text("name"), parent["sectionName"].as_str());
                let in_set = text("kind") != Kind::ListenerSet.as_str() || listeners.contains(&named);
                let gateway = GatewayName::new(named.0, named.1);
                let gateway = self.view.gateway(&gateway).filter(|_| text("kind") == Kind::Gateway.as_str());
                let on_gateway =
                    gateway.zip(named.2).is_none_or(|(gateway, section)| gateway.section(section).is_some());
                if !in_set || !on_gateway {
                    faults.push(Fault::RouteWithoutListener(object.clone(), text("sectionName").to_owned()));
                }
            }
        }
        faults
    }
}

fn is_shard_of_ours(body: &Value) -> bool {
    body["metadata"]["labels"][labels::SHARD] == labels::TRUE
}

fn gateway_of(object: &ObjectRef, body: &Value, kind: Kind) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if kind == Kind::Gateway {
        return format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), object.name);
    }
    let parent = &body["spec"]["parentRef"];
    format!("{}/{}", text(&parent["namespace"]), text(&parent["name"]))
}

/// Names with their owners.
#[derive(Default)]
struct Names {
    index: NameIndex,
    groups: BTreeMap<Group, usize>,
}

impl Names {
    fn add(&mut self, group: &Group, hostname: &Value, object: &ObjectRef) -> Option<Fault> {
        let hosts = HostPattern::parse(hostname.as_str()?).ok()?;
        let next = self.groups.len();
        let group = *self.groups.entry(group.clone()).or_insert(next);
        if self.index.conflict(group, &hosts).is_some() {
            return Some(Fault::NameOfTwoOwners(object.clone(), hosts.to_string()));
        }
        self.index.insert(0, group, &hosts);
        None
    }
}
