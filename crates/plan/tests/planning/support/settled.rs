//! What a settled cluster must show, read from its objects alone: laws 5, 6 and 8.

use std::collections::BTreeMap;

use portreeve_api::names::{labels, nebari_app as derived, tenant};
use portreeve_names::HostPattern;
use serde_json::{Value, json};

use super::{Cluster, Name, gateway};

const GATEWAY_API: &str = "gateway.networking.k8s.io";

impl Cluster {
    /// What others made: whole objects, and of Gateways all but the entries of tenants and apps. Namespaces do not count, since
    /// tenants get theirs by their labels.
    pub(super) fn of_others(&self) -> BTreeMap<Name, Value> {
        let others = self.objects.iter().filter(|((kind, ..), object)| {
            !matches!(kind.as_str(), "NebariApp" | "Tenant" | "Namespace") && !is_made(object)
        });
        others.map(|(name, object)| (name.clone(), of_others(&name.0, object))).collect()
    }

    /// Laws 5, 6 and 8 of every owner that stays.
    pub(super) fn assert_owners_know(&self) {
        for ((kind, namespace, name), owner) in &self.objects {
            let owner = Owner { cluster: self, namespace, name, spec: &owner["spec"], object: owner };
            match kind.as_str() {
                _ if !owner.object["metadata"]["deletionTimestamp"].is_null() => {}
                "NebariApp" if !owner.spec["routing"].is_null() => owner.assert_app(),
                "Tenant" => owner.assert_tenant(),
                _ => {}
            }
        }
    }

    fn is_foreign(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.object(kind, namespace, name).is_some_and(|object| !is_made(object))
    }

    fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }
}

/// By its controller; without one, by the contract's labels on what was applied, or bears a name that the former operators
/// gave. What the Helm client records is made for a tenant too.
pub(super) fn is_made(object: &Value) -> bool {
    const ENDINGS: [&str; 6] = ["-route", "-cert", "-tls", "-api", "-quota", "-limits"];
    if object["type"] == super::releases::RECORD {
        return true;
    }
    let metadata = &object["metadata"];
    let is_of_contract = object["kind"] == "Gateway"
        || ENDINGS.iter().any(|ending| text(&metadata["name"]).ends_with(ending))
        || text(&metadata["name"]).starts_with("tenant-api-");
    if metadata["ownerReferences"].is_null() && metadata["managedFields"].is_null() && !is_of_contract {
        return false;
    }
    match list(&metadata["ownerReferences"]).iter().find(|owner| owner["controller"] == true) {
        Some(owner) => owner["kind"] == "NebariApp" || owner["kind"] == "Tenant",
        None => [labels::NEBARI_OPERATOR, labels::KUBESPACES_OPERATOR]
            .iter()
            .any(|operator| metadata["labels"][labels::MANAGED_BY] == *operator),
    }
}

fn of_others(kind: &str, object: &Value) -> Value {
    if kind != "Gateway" {
        return object.clone();
    }
    let mut spec = object["spec"].clone();
    let is_of_owner =
        |listener: &Value| ["t-", "tls-"].iter().any(|prefix| text(&listener["name"]).starts_with(prefix));
    spec["listeners"] = list(&spec["listeners"]).iter().filter(|listener| !is_of_owner(listener)).cloned().collect();
    json!([spec, object["metadata"]["labels"], object["metadata"]["annotations"]])
}

struct Owner<'c> {
    cluster: &'c Cluster,
    namespace: &'c str,
    name: &'c str,
    spec: &'c Value,
    object: &'c Value,
}

impl Owner<'_> {
    fn assert_app(&self) {
        let routing = &self.spec["routing"];
        let entries = list(&routing["tcp"]);
        let is_of_entry =
            |port: &Value| !is_http(port) && entries.iter().any(|entry| entry["listener"]["port"] == *port);
        let hostname = normal(&self.spec["hostname"]);
        let has_host = self.holds(hostname.as_deref(), |port| !is_of_entry(port));
        if has_host {
            self.assert_told_of_foreign_web(routing);
        } else {
            self.assert_refused("RoutingReady");
        }
        for (place, entry) in entries.iter().enumerate() {
            // The record does not say which of two entries has what both want; one of them has it not.
            let wants_the_same = |other: &Value| {
                other["listener"] == entry["listener"] && names(other).iter().any(|name| names(entry).contains(name))
            };
            if entries.iter().enumerate().any(|(other, twin)| other != place && wants_the_same(twin)) {
                self.assert_refused("TCPRoutingReady");
            } else {
                self.assert_entry(entry);
            }
        }
        if self.condition("Ready")["status"] == "True" {
            self.assert_web_is_served(routing);
            for entry in entries {
                self.assert_entry_is_served(entry);
            }
        }
    }

    fn assert_entry(&self, entry: &Value) {
        let granted = |name: &Option<String>| {
            self.holds(name.as_deref(), |port| !is_http(port) && *port == entry["listener"]["port"])
        };
        if !names(entry).iter().all(granted) {
            self.assert_refused("TCPRoutingReady");
            for status in self.entry_status(entry) {
                assert!(is_refusal(condition(status, "Ready")), "law 5: {} is not told: {status}", self.name);
            }
            return;
        }
        let route = derived::tls_route(self.name, text(&entry["name"]));
        let set = self.foreign_set();
        if !set && !self.cluster.settings.lacks("ListenerSet") {
            self.assert_told_of_clients(entry);
            self.assert_told_of_imports(entry);
        }
        let route = !entry["service"].is_null()
            && !self.cluster.settings.lacks("TLSRoute")
            && self.cluster.is_foreign("TLSRoute", self.namespace, &route);
        if set || route {
            let status = self.entry_status(entry).next().expect("an entry that is granted has a status");
            assert_eq!(condition(status, "Ready")["reason"], "ForeignObject", "law 8: {} is not told", self.name);
        }
    }

    /// Law 5, for the clients of an entry that is granted.
    fn assert_told_of_clients(&self, entry: &Value) {
        let told = self.entry_status(entry).all(|status| !condition(status, "ClientsReady").is_null());
        assert!(list(&entry["clients"]).is_empty() || told, "law 5: {} is not told of its clients", self.name);
    }

    /// Law 5, for the imports of an entry that is granted: each rule is a route, or another entry's, or told of.
    fn assert_told_of_imports(&self, entry: &Value) {
        let unsupported = ["TLSRoute", "IngressRouteTCP"].iter().any(|kind| self.cluster.settings.lacks(kind));
        if entry["routeImport"] != "TraefikIngressRouteTCP" || !entry["service"].is_null() || unsupported {
            return;
        }
        let entries = list(&self.spec["routing"]["tcp"]).iter();
        let importers = entries.filter(|entry| entry["routeImport"] == "TraefikIngressRouteTCP").count();
        let status = self.entry_status(entry).next().expect("an entry that is granted has a status");
        let sources = self
            .cluster
            .objects
            .iter()
            .filter(|((kind, home, _), _)| kind == "IngressRouteTCP" && home == self.namespace);
        for ((_, _, name), source) in sources {
            for rule in list(&source["spec"]["routes"]) {
                let told = list(&status["notImported"])
                    .iter()
                    .any(|one| one["name"] == **name && one["match"] == rule["match"]);
                let is_route = self.cluster.objects.iter().any(|((kind, home, _), route)| {
                    let owner = &route["metadata"]["ownerReferences"][0];
                    let hostname = text(&route["spec"]["hostnames"][0]);
                    kind == "TLSRoute"
                        && home == self.namespace
                        && owner["uid"] == source["metadata"]["uid"]
                        && text(&rule["match"]).contains(hostname)
                });
                assert!(told || is_route || importers > 1, "law 5: {} is not told of {rule}: {status}", self.name);
            }
        }
    }

    /// Law 8, for what an app with a granted host name wants.
    fn assert_told_of_foreign_web(&self, routing: &Value) {
        let own = self.has_own_listener(routing);
        let issued = own && routing["tls"]["secretName"].is_null() && !self.cluster.settings.lacks("Certificate");
        let certificate = derived::certificate(self.name, self.namespace);
        let no_set = own && self.foreign_set();
        if no_set || issued && self.cluster.is_foreign("Certificate", self.namespace, &certificate) {
            assert_eq!(self.condition("TLSReady")["reason"], "ForeignObject", "law 8: {} is not told", self.name);
        }
        let auth = &self.spec["auth"];
        let routes = routing["routeManagement"] != "App" && !(own && self.cluster.settings.lacks("ListenerSet"));
        let foreign = |name: String| self.cluster.is_foreign("HTTPRoute", self.namespace, &name);
        let public = auth["enabled"] == true && !list(&routing["publicRoutes"]).is_empty();
        let no_route =
            foreign(derived::http_route(self.name)) || public && foreign(derived::public_http_route(self.name));
        if no_set || routes && no_route {
            let reason = &self.condition("RoutingReady")["reason"];
            // Without a policy no route is wanted yet, and no public one before it is in force.
            let waits = reason == "PolicyMissing" || reason == "Pending" && !foreign(derived::http_route(self.name));
            let unprotected = waits && auth["enabled"] == true && !no_set;
            assert!(reason == "ForeignObject" || unprotected, "law 8: {} is not told, but {reason}", self.name);
        }
    }

    /// Law 6, for the host name.
    fn assert_web_is_served(&self, routing: &Value) {
        let https = &self.object["status"]["https"];
        let (parent, section) = if routing["tls"]["enabled"] == false {
            (self.gateway(), "http")
        } else if self.is_on_legacy() {
            (self.gateway(), text(&https["sectionName"]))
        } else {
            (name_of(&https["listenerRef"]), text(&https["sectionName"]))
        };
        self.assert_listener(&parent, section, &https["generation"]);
        if routing["routeManagement"] != "App" {
            self.assert_route("HTTPRoute", &derived::http_route(self.name), &parent, section);
        }
    }

    /// Law 6, for an entry.
    fn assert_entry_is_served(&self, entry: &Value) {
        let status = self.entry_status(entry).next().expect("law 6: an entry of a Ready app has a status");
        let set = name_of(&status["listenerRef"]);
        for name in names(entry) {
            let listener = list(&status["listeners"]).iter().find(|listener| normal(&listener["hostname"]) == name);
            let listener = listener.unwrap_or_else(|| panic!("law 6: {} is Ready without {name:?}", self.name));
            let section = text(&listener["name"]);
            assert!(listener["generation"].is_i64(), "law 6: no generation is recorded: {listener}");
            self.assert_listener(&set, section, &listener["generation"]);
            if !entry["service"].is_null() {
                self.assert_route("TLSRoute", &derived::tls_route(self.name, text(&entry["name"])), &set, section);
            }
        }
    }

    /// The listener is there; one of a ListenerSet is programmed as it was recorded.
    fn assert_listener(&self, parent: &Name, section: &str, recorded: &Value) {
        let named = |listener: &&Value| listener["name"] == *section;
        let object = self.cluster.objects.get(parent).unwrap_or(&Value::Null);
        let why = format!("law 6: {} is Ready, {section} of {parent:?} is not: {object}", self.name);
        assert!(list(&object["spec"]["listeners"]).iter().any(|listener| named(&listener)), "{why}");
        if parent.0 == "ListenerSet" {
            let entry = list(&object["status"]["listeners"]).iter().find(named).unwrap_or(&Value::Null);
            let programmed = condition(entry, "Programmed");
            let current = programmed["observedGeneration"].as_i64() >= recorded.as_i64();
            assert!(programmed["status"] == "True" && recorded.is_i64() && current, "{why}");
        }
    }

    fn assert_route(&self, kind: &str, name: &str, parent: &Name, section: &str) {
        let route = self.cluster.object(kind, self.namespace, name).unwrap_or(&Value::Null);
        let attached = list(&route["spec"]["parentRefs"])
            .iter()
            .any(|found| name_of(found) == *parent && found["sectionName"] == *section);
        assert!(attached && is_made(route), "law 6: {} is Ready without {kind} {name} on {section}", self.name);
    }

    fn assert_tenant(&self) {
        let settings = &self.cluster.settings;
        let namespace = self.spec["targetNamespace"].as_str().map(str::to_owned);
        let namespace = namespace.unwrap_or_else(|| tenant::default_namespace(self.name));
        if let Some(api) = &settings.tenant_api {
            let home = gateway(&api.gateway).namespace;
            let foreign = !settings.lacks("TLSRoute")
                && (self.cluster.is_foreign("ReferenceGrant", &namespace, tenant::API_REFERENCE_GRANT)
                    || self.cluster.is_foreign("TLSRoute", &home, &tenant::api_tls_route(self.name)));
            self.assert_part("APIRoutingReady", &tenant::api_hostname(self.name, &api.domain), foreign);
        }
        if let Some(apps) = &settings.tenant_apps {
            let home = gateway(&apps.gateway).namespace;
            let foreign = !settings.lacks("Certificate")
                && self.cluster.is_foreign("Certificate", &home, &tenant::apps_certificate(self.name));
            self.assert_part("AppsRoutingReady", &tenant::apps_domain(self.name, &apps.domain), foreign);
        }
    }

    fn assert_part(&self, type_: &str, name: &str, foreign: bool) {
        if !self.holds(Some(name), |_| true) {
            assert!(is_refusal(self.condition(type_)), "law 5: Tenant {} is not told of {name}", self.name);
        } else if foreign {
            assert_eq!(self.condition(type_)["reason"], "ForeignObject", "law 8: Tenant {} is not told", self.name);
        }
    }

    /// Law 5: what an app is not granted is no matter of choice.
    fn assert_refused(&self, type_: &str) {
        for type_ in [type_, "Ready"] {
            let condition = self.condition(type_);
            let told = is_refusal(condition) && condition["reason"] != "RoutingNotConfigured";
            assert!(told, "law 5: {} is not told what it is not granted: {}", self.name, self.object["status"]);
        }
    }

    /// Whether a name, or every name, is recorded with a place.
    fn holds(&self, name: Option<&str>, port: impl Fn(&Value) -> bool) -> bool {
        list(&self.object["status"]["claims"])
            .iter()
            .any(|claim| claim["name"].as_str() == name && !claim["port"].is_null() && port(&claim["port"]))
    }

    fn has_own_listener(&self, routing: &Value) -> bool {
        let issuer = self.cluster.settings.cluster_issuer.as_ref().is_some_and(|issuer| !issuer.is_empty());
        !self.is_on_legacy()
            && routing["tls"]["enabled"] != false
            && (issuer || !routing["tls"]["secretName"].is_null())
    }

    /// Whether the former operator's listener is to serve the app, which may be told of another that is coming, or of what
    /// is wrong with that listener.
    fn is_on_legacy(&self) -> bool {
        let section = derived::https_listener(self.name, self.namespace);
        let gateway = self.cluster.objects.get(&self.gateway());
        let listeners = gateway.map(|gateway| list(&gateway["spec"]["listeners"])).unwrap_or_default();
        let is_there = listeners
            .iter()
            .any(|listener| listener["name"] == section && listener["hostname"] == self.spec["hostname"]);
        let told = ["LegacyListener", "Migrating", "MigrationBlocked"];
        is_there || told.contains(&text(&self.condition("TLSReady")["reason"]))
    }

    fn foreign_set(&self) -> bool {
        let name = derived::listener_set(self.name);
        !self.cluster.settings.lacks("ListenerSet") && self.cluster.is_foreign("ListenerSet", self.namespace, &name)
    }

    fn gateway(&self) -> Name {
        let internal = self.spec["gateway"] == "internal";
        let name = if internal { "nebari-internal-gateway" } else { "nebari-gateway" };
        ("Gateway".to_owned(), "envoy-gateway-system".to_owned(), name.to_owned())
    }

    fn condition(&self, type_: &str) -> &Value {
        condition(&self.object["status"], type_)
    }

    fn entry_status(&self, entry: &Value) -> impl Iterator<Item = &Value> {
        list(&self.object["status"]["tcp"]).iter().filter(move |status| status["name"] == entry["name"])
    }
}

/// The server names of an entry in the form of the record; `None` is every name, also for a pattern.
fn names(entry: &Value) -> Vec<Option<String>> {
    let names = list(&entry["sniHostnames"]);
    if names.is_empty() { vec![None] } else { names.iter().map(normal).collect() }
}

/// No entry is granted such a port.
fn is_http(port: &Value) -> bool {
    *port == 80 || *port == 443
}

fn normal(name: &Value) -> Option<String> {
    HostPattern::parse(name.as_str()?).ok().map(|hosts| hosts.to_string())
}

fn condition<'v>(status: &'v Value, type_: &str) -> &'v Value {
    list(&status["conditions"]).iter().find(|condition| condition["type"] == type_).unwrap_or(&Value::Null)
}

fn is_refusal(condition: &Value) -> bool {
    condition["status"] == "False" && !text(&condition["reason"]).is_empty() && !text(&condition["message"]).is_empty()
}

fn name_of(reference: &Value) -> Name {
    assert_eq!(reference["group"], GATEWAY_API, "a reference to a listener: {reference}");
    (text(&reference["kind"]).to_owned(), text(&reference["namespace"]).to_owned(), text(&reference["name"]).to_owned())
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
