//! NetworkPolicies, read as a network plugin does: whoever is selected by a policy is isolated.

use portreeve_api::names::labels;
use serde_json::{Value, json};

use super::Cluster;
use super::settled::{is_made, list, text};

/// The labels by which worlds tell pods apart.
const VALUES: [Option<&str>; 3] = [None, Some("1"), Some("2")];

impl Cluster {
    /// No policy of ours isolates a pod that no policy of others isolates, nor one where nobody has opted in.
    pub(super) fn assert_nobody_is_cut_off(&self) {
        let policies = self.objects.iter().filter(|((kind, ..), _)| kind == "NetworkPolicy");
        let of_tenant = |policy: &Value| policy["metadata"]["ownerReferences"][0]["kind"] == "Tenant";
        let of_apps = policies.clone().filter(|(_, policy)| is_made(policy) && !of_tenant(policy));
        for ((_, namespace, name), ours) in of_apps {
            let managed =
                &self.objects[&("Namespace".to_owned(), String::new(), namespace.clone())]["metadata"]["labels"];
            assert_eq!(managed[labels::MANAGED], "true", "{namespace}/{name}");
            let type_ = text(&ours["spec"]["policyTypes"][0]);
            for pod in pods().filter(|pod| selects(&ours["spec"]["podSelector"], pod)) {
                let isolated = policies.clone().any(|((_, home, _), other)| {
                    home == namespace
                        && !is_made(other)
                        && is_of_type(&other["spec"], type_)
                        && selects(&other["spec"]["podSelector"], &pod)
                });
                assert!(isolated, "{namespace}/{name} cuts off {pod}");
            }
        }
    }
}

fn pods() -> impl Iterator<Item = Value> {
    VALUES.iter().flat_map(|a| VALUES.iter().map(move |b| json!({ "a": a, "b": b })))
}

fn is_of_type(spec: &Value, type_: &str) -> bool {
    match list(&spec["policyTypes"]) {
        [] => type_ == "Ingress" || !list(&spec["egress"]).is_empty(),
        named => named.iter().any(|one| one == type_),
    }
}

fn selects(selector: &Value, pod: &Value) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| pod[key] == *value);
    let required = list(&selector["matchExpressions"]).iter().all(|one| {
        let found = &pod[text(&one["key"])];
        let listed = list(&one["values"]).contains(found);
        match text(&one["operator"]) {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => !found.is_null(),
            _ => found.is_null(),
        }
    });
    equal && required
}
