use serde_json::{Value, json};

use super::{Cluster, Name};

impl Cluster {
    /// A gateway and an issuer that serve all they are asked for.
    pub(crate) fn answer(&mut self) {
        let names: Vec<Name> = self.objects.keys().cloned().collect();
        for name in names {
            let status = match name.0.as_str() {
                "Gateway" => self.gateway_status(&name),
                "ListenerSet" => self.set_status(&name),
                "SecurityPolicy" => self.policy_status(&name),
                "HTTPRoute" | "TLSRoute" => route_status(&self.objects[&name]),
                "DNSEndpoint" => {
                    json!({ "observedGeneration": self.objects[&name]["metadata"]["generation"] })
                }
                "Certificate" => {
                    self.issue(&name);
                    let generation = &self.objects[&name]["metadata"]["generation"];
                    json!({ "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": generation }] })
                }
                _ => continue,
            };
            self.objects.get_mut(&name).expect("it is there")["status"] = status;
        }
    }

    /// The issuer keeps a Secret that is there.
    fn issue(&mut self, certificate: &Name) {
        let spec = &self.objects[certificate]["spec"];
        let (namespace, secret) = (&certificate.1, &spec["secretName"]);
        self.author(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": secret, "namespace": namespace, "labels": spec["secretTemplate"]["labels"] },
            "data": { "tls.crt": "aXNzdWVk", "tls.key": "aXNzdWVk" },
        }));
    }

    fn gateway_status(&self, name: &Name) -> Value {
        let gateway = &self.objects[name];
        json!({
            "addresses": [{ "type": "IPAddress", "value": address(gateway) }],
            "conditions": conditions(gateway, &["Accepted", "Programmed"]),
            "listeners": entries(gateway),
        })
    }

    /// For each parent of the routes that it protects.
    fn policy_status(&self, name: &Name) -> Value {
        let policy = &self.objects[name];
        let targets = policy["spec"]["targetRefs"].as_array().cloned().unwrap_or_default();
        let routes = targets
            .iter()
            .filter_map(|target| self.objects.get(&("HTTPRoute".to_owned(), name.1.clone(), text(&target["name"]))));
        let parents = routes.flat_map(|route| route["spec"]["parentRefs"].as_array().cloned().unwrap_or_default());
        let ancestors = parents.map(|parent| {
            json!({
                "ancestorRef": parent,
                "controllerName": "test.example/gateway",
                "conditions": conditions(policy, &["Accepted"]),
            })
        });
        json!({ "ancestors": ancestors.collect::<Vec<_>>() })
    }

    fn set_status(&self, name: &Name) -> Value {
        let set = &self.objects[name];
        let parent = &set["spec"]["parentRef"];
        let gateway = ("Gateway".to_owned(), text(&parent["namespace"]), text(&parent["name"]));
        let Some(gateway) = self.objects.get(&gateway) else { return Value::Null };
        let namespaces = &gateway["spec"]["allowedListeners"]["namespaces"];
        let labels = &self.objects[&("Namespace".to_owned(), String::new(), name.1.clone())]["metadata"]["labels"];
        let selected = || {
            let selector = namespaces["selector"]["matchLabels"].as_object().expect("a selector by labels");
            selector.iter().all(|(key, value)| labels[key] == *value)
        };
        let same = namespaces["from"] == "Same" && text(&gateway["metadata"]["namespace"]) == name.1;
        if namespaces["from"] == "All" || same || namespaces["from"] == "Selector" && selected() {
            let mut listeners = entries(set);
            let specs = set["spec"]["listeners"].as_array().expect("listeners");
            for (entry, _) in listeners.iter_mut().zip(specs).filter(|(_, listener)| has_twin(gateway, listener)) {
                refuse(entry);
            }
            json!({ "conditions": conditions(set, &["Accepted", "Programmed"]), "listeners": listeners })
        } else {
            let mut refused = conditions(set, &["Accepted"]);
            refused[0]["status"] = "False".into();
            refused[0]["reason"] = "NotAllowed".into();
            json!({ "conditions": refused })
        }
    }
}

/// What the Gateway's annotation says, else the one that all have.
fn address(gateway: &Value) -> &str {
    gateway["metadata"]["annotations"]["test.example/address"].as_str().unwrap_or("192.0.2.1")
}

fn entries(object: &Value) -> Vec<Value> {
    let listeners = object["spec"]["listeners"].as_array().expect("listeners");
    let entry = |listener: &Value| {
        json!({
            "name": listener["name"],
            "attachedRoutes": 1,
            "conditions": conditions(object, &["Accepted", "Programmed", "ResolvedRefs"]),
        })
    };
    listeners.iter().map(entry).collect()
}

/// A Gateway's own listeners come before those of ListenerSets.
fn has_twin(gateway: &Value, listener: &Value) -> bool {
    let own = gateway["spec"]["listeners"].as_array().expect("listeners");
    own.iter().any(|own| own["port"] == listener["port"] && own["hostname"] == listener["hostname"])
}

/// As Envoy Gateway says it of a listener that lost against another.
fn refuse(entry: &mut Value) {
    let conditions = entry["conditions"].as_array_mut().expect("conditions");
    let mut conflicted = conditions[0].clone();
    conflicted["type"] = "Conflicted".into();
    conflicted["reason"] = "HostnameConflict".into();
    for (condition, reason) in conditions.iter_mut().zip(["HostnameConflict", "Invalid"]) {
        condition["status"] = "False".into();
        condition["reason"] = reason.into();
    }
    conditions.push(conflicted);
}

fn route_status(route: &Value) -> Value {
    let parents = route["spec"]["parentRefs"].as_array().expect("parents").iter();
    let parent = |parent: &Value| {
        json!({
            "parentRef": parent,
            "controllerName": "test.example/gateway",
            "conditions": conditions(route, &["Accepted", "ResolvedRefs"]),
        })
    };
    json!({ "parents": parents.map(parent).collect::<Vec<_>>() })
}

fn conditions(object: &Value, types: &[&str]) -> Value {
    let condition = |type_: &&str| {
        json!({
            "type": type_, "status": "True", "reason": type_, "message": "",
            "observedGeneration": object["metadata"]["generation"],
            "lastTransitionTime": "2026-08-01T12:00:00Z",
        })
    };
    types.iter().map(condition).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
