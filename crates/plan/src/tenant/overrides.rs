//! What a tenant may change in the values of its virtual cluster, and how that is merged.
//!
//! The chart has many ways round isolation: other kinds that are synced, patches, plugins, rules of RBAC, images, hosts'
//! paths, names. So there is a list of what may be set, and everything else is refused.

use serde_json::{Map, Value};

use crate::text::list;

/// What every tenant may set, with everything below it. The image of CoreDNS is not in it, nor are priority classes, which
/// could push other tenants' pods away, nor volumes, which could be the node's.
const ALLOWED: [&str; 25] = [
    "controlPlane.backingStore.etcd.deploy.statefulSet.persistence.volumeClaim",
    "controlPlane.backingStore.etcd.deploy.statefulSet.resources",
    "controlPlane.coredns.deployment.affinity",
    "controlPlane.coredns.deployment.nodeSelector",
    "controlPlane.coredns.deployment.replicas",
    "controlPlane.coredns.deployment.resources",
    "controlPlane.coredns.deployment.tolerations",
    "controlPlane.coredns.deployment.topologySpreadConstraints",
    "controlPlane.coredns.enabled",
    CORE_FILE,
    "controlPlane.distro.k8s.resources",
    DISTRO_TAG,
    DISTRO_VERSION,
    "controlPlane.statefulSet.highAvailability",
    "controlPlane.statefulSet.persistence.volumeClaim.accessModes",
    "controlPlane.statefulSet.persistence.volumeClaim.enabled",
    "controlPlane.statefulSet.persistence.volumeClaim.retentionPolicy",
    "controlPlane.statefulSet.persistence.volumeClaim.size",
    "controlPlane.statefulSet.persistence.volumeClaim.storageClass",
    "controlPlane.statefulSet.resources",
    "controlPlane.statefulSet.scheduling.affinity",
    "controlPlane.statefulSet.scheduling.nodeSelector",
    "controlPlane.statefulSet.scheduling.podManagementPolicy",
    "controlPlane.statefulSet.scheduling.tolerations",
    "controlPlane.statefulSet.scheduling.topologySpreadConstraints",
];
/// Whole parts of the chart's values that tenants may set.
const ALLOWED_PARTS: [&str; 2] = ["logging", "sleep"];

const CORE_FILE: &str = "controlPlane.coredns.overwriteConfig";
const DISTRO_TAG: &str = "controlPlane.distro.k8s.image.tag";
const DISTRO_VERSION: &str = "controlPlane.distro.k8s.version";

/// The most characters of a path that a message shows.
const MAX_SHOWN: usize = 120;

/// What is wrong with overrides, for people; nothing when they may be. `more` are the paths that the platform allows too.
pub(crate) fn fault(overrides: &Map<String, Value>, more: &[String]) -> Option<String> {
    let allowed: Vec<Vec<&str>> = ALLOWED
        .into_iter()
        .chain(ALLOWED_PARTS)
        .chain(more.iter().map(String::as_str))
        .map(|path| path.split('.').collect())
        .collect();
    let mut walk = Walk { allowed, refused: Vec::new(), malformed: Vec::new() };
    walk.object(&mut Vec::new(), overrides);
    if !walk.refused.is_empty() {
        return Some(format!(
            "spec.vcluster.valuesOverrides may not set {}: tenants may set resources, persistence, replicas, scheduling, \
             coredns, logging, sleep, the version of the distro, and what the platform allows beside these",
            list(&walk.refused)
        ));
    }
    (!walk.malformed.is_empty()).then(|| {
        format!(
            "spec.vcluster.valuesOverrides has line breaks, other control characters or no version in {}: correct it",
            list(&walk.malformed)
        )
    })
}

/// Whether a text is a version, or the tag of an image, and nothing else that a template could take for more.
pub(crate) fn is_version(text: &str) -> bool {
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || b"._+-".contains(&letter);
    text.len() <= 128 && text.bytes().all(plain) && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

struct Walk<'a> {
    allowed: Vec<Vec<&'a str>>,
    refused: Vec<String>,
    malformed: Vec<String>,
}

impl<'v> Walk<'_> {
    fn object(&mut self, path: &mut Vec<&'v str>, fields: &'v Map<String, Value>) {
        for (name, value) in fields {
            path.push(name);
            self.value(path, value);
            path.pop();
        }
    }

    /// What is on the way to something that may be set is looked into; of what may be set, whatever is below it.
    fn value(&mut self, path: &mut Vec<&'v str>, value: &'v Value) {
        let is_allowed = self.allowed.iter().any(|allowed| path.starts_with(allowed));
        let is_on_the_way = self.allowed.iter().any(|allowed| allowed.starts_with(path));
        match value {
            _ if is_allowed => {
                if !is_well_formed(path, value) {
                    self.malformed.push(shown(path));
                }
            }
            Value::Object(fields) if is_on_the_way || !fields.is_empty() => self.object(path, fields),
            _ => self.refused.push(shown(path)),
        }
    }
}

/// A value that breaks out of its line could become another field of what the chart makes.
fn is_well_formed(path: &[&str], value: &Value) -> bool {
    let is_at = |other: &str| path.iter().copied().eq(other.split('.'));
    match value {
        _ if is_at(CORE_FILE) => true,
        Value::String(text) if is_at(DISTRO_TAG) || is_at(DISTRO_VERSION) => is_version(text),
        value => is_plain(value),
    }
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.contains(char::is_control),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(fields) => fields.iter().all(|(name, value)| !name.contains(char::is_control) && is_plain(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Names of fields may have dots of their own; then they are quoted.
fn shown(path: &[&str]) -> String {
    let quoted = |name: &&str| {
        let is_plain = name.bytes().all(|letter| letter.is_ascii_alphanumeric() || b"-_/".contains(&letter));
        if is_plain && !name.is_empty() { (*name).to_owned() } else { format!("{name:?}") }
    };
    let path = path.iter().map(quoted).collect::<Vec<_>>().join(".");
    if path.chars().count() <= MAX_SHOWN {
        return path;
    }
    format!("{}…", path.chars().take(MAX_SHOWN).collect::<String>())
}

/// Helm's `CoalesceTables`: `over` wins over `under`, tables merge deeply, lists are replaced, and a `null` takes away
/// what is under it.
pub(crate) fn coalesce(mut over: Map<String, Value>, mut under: Map<String, Value>) -> Map<String, Value> {
    for name in over.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name) {
        under.insert(name.clone(), Value::Null);
    }
    for (name, below) in under {
        match over.remove(&name) {
            Some(Value::Null) => {}
            Some(Value::Object(above)) => {
                let merged = if let Value::Object(below) = below { coalesce(above, below) } else { above };
                over.insert(name, merged.into());
            }
            above => _ = over.insert(name, above.unwrap_or(below)),
        }
    }
    over
}

/// Makes `values` say what `law` says, whatever they said there before.
pub(crate) fn enforce(values: &mut Map<String, Value>, law: Map<String, Value>) {
    for (name, law) in law {
        match (values.get_mut(&name), law) {
            (Some(Value::Object(values)), Value::Object(law)) => enforce(values, law),
            (_, law) => _ = values.insert(name, law),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        if let Value::Object(map) = value { map } else { panic!("no object: {value}") }
    }

    fn fault_of(overrides: Value) -> Option<String> {
        fault(&map(overrides), &[])
    }

    #[test]
    fn what_every_tenant_may_set_is_taken() {
        let overrides = json!({
            "controlPlane": {
                "statefulSet": {
                    "resources": {"limits": null, "requests": {"cpu": "1", "a.b/c": 1}},
                    "highAvailability": {"replicas": 3},
                    "persistence": {"volumeClaim": {"size": "10Gi", "storageClass": "fast"}},
                    "scheduling": {"nodeSelector": {"kubernetes.io/arch": "arm64"}, "tolerations": [{"key": "x"}]},
                },
                "coredns": {"enabled": true, "overwriteConfig": ".:53 {\n}\n", "deployment": {"replicas": 2}},
                "distro": {"k8s": {"image": {"tag": "v1.34.1"}, "version": "1.34"}},
                "backingStore": {},
            },
            "logging": {"encoding": "json"},
            "sleep": {"auto": {"afterInactivity": "1h"}},
        });
        assert_eq!(fault_of(overrides), None);
    }

    /// Each of these would be a way out of the tenant's namespace, or into the platform's.
    #[test]
    fn everything_else_is_refused_by_its_path() {
        for (overrides, path) in [
            (json!({"sync": {"toHost": {"ingresses": {"enabled": true}}}}), "sync.toHost.ingresses.enabled"),
            (
                json!({"sync": {"toHost": {"customResources": {"a.b.c": {"enabled": true}}}}}),
                r#"sync.toHost.customResources."a.b.c".enabled"#,
            ),
            (json!({"plugins": {"p": {"image": "x"}}}), "plugins.p.image"),
            (json!({"rbac": {"role": {"extraRules": [{"verbs": ["*"]}]}}}), "rbac.role.extraRules"),
            (
                json!({"exportKubeConfig": {"secret": {"namespace": "kube-system"}}}),
                "exportKubeConfig.secret.namespace",
            ),
            (
                json!({"controlPlane": {"proxy": {"extraSANs": ["other.api.example.com"]}}}),
                "controlPlane.proxy.extraSANs",
            ),
            (
                json!({"controlPlane": {"statefulSet": {"image": {"repository": "evil"}}}}),
                "controlPlane.statefulSet.image.repository",
            ),
            (
                json!({"controlPlane": {"distro": {"k8s": {"image": {"registry": "evil"}}}}}),
                "controlPlane.distro.k8s.image.registry",
            ),
            (
                json!({"controlPlane": {"distro": {"k8s": {"apiServer": {"extraArgs": ["--x"]}}}}}),
                "controlPlane.distro.k8s.apiServer.extraArgs",
            ),
            (
                json!({"controlPlane": {"coredns": {"deployment": {"image": "evil"}}}}),
                "controlPlane.coredns.deployment.image",
            ),
            (json!({"controlPlane": {"coredns": {"embedded": true}}}), "controlPlane.coredns.embedded"),
            (
                json!({"controlPlane": {"statefulSet": {"persistence": {"addVolumes": [{"hostPath": {}}]}}}}),
                "controlPlane.statefulSet.persistence.addVolumes",
            ),
            (
                json!({"controlPlane": {"statefulSet": {"scheduling": {"priorityClassName": "system-node-critical"}}}}),
                "controlPlane.statefulSet.scheduling.priorityClassName",
            ),
            // Names of fields with dots are no paths, and names are compared as they are written.
            (json!({"controlPlane.statefulSet.resources": {"x": 1}}), r#""controlPlane.statefulSet.resources".x"#),
            (json!({"controlPlane": {"statefulSet.resources": 1}}), r#"controlPlane."statefulSet.resources""#),
            (json!({"Sync": true}), "Sync"),
            (json!({"controlPlane": {"StatefulSet": {"resources": {"x": 1}}}}), "controlPlane.StatefulSet.resources.x"),
            // Whole tables, emptied or made into something else.
            (json!({"controlPlane": null}), "controlPlane"),
            (json!({"controlPlane": {"statefulSet": []}}), "controlPlane.statefulSet"),
            (json!({"controlPlane": {"statefulSet": {"scheduling": null}}}), "controlPlane.statefulSet.scheduling"),
            (json!({"sync": {}}), "sync"),
            (json!({"sync": {"fromHost": {"gateways": {}}}}), "sync.fromHost.gateways"),
            (json!({"": 1}), r#""""#),
        ] {
            let fault = fault_of(overrides).unwrap_or_default();
            assert!(fault.contains(&format!("may not set {path}: ")), "{path}: {fault}");
        }
    }

    #[test]
    fn a_value_that_breaks_out_of_its_line_is_refused() {
        for (overrides, path) in [
            (
                json!({"controlPlane": {"distro": {"k8s": {"image": {"tag": "1\n hostNetwork: true"}}}}}),
                "controlPlane.distro.k8s.image.tag",
            ),
            (
                json!({"controlPlane": {"distro": {"k8s": {"image": {"tag": "1@sha256:0"}}}}}),
                "controlPlane.distro.k8s.image.tag",
            ),
            (
                json!({"controlPlane": {"statefulSet": {"resources": {"a\nb": 1}}}}),
                "controlPlane.statefulSet.resources",
            ),
            (json!({"logging": [{"encoding": "a\r"}]}), "logging"),
        ] {
            let fault = fault_of(overrides).unwrap_or_default();
            assert!(fault.contains(&format!("no version in {path}: ")), "{path}: {fault}");
        }
    }

    #[test]
    fn the_platform_can_allow_more() {
        let overrides = map(json!({"sync": {"toHost": {"ingresses": {"enabled": true}}}}));
        assert_eq!(fault(&overrides, &["sync.toHost.ingresses".to_owned()]), None);
        assert!(fault(&overrides, &["sync.toHost.ingresses.patches".to_owned()]).is_some());
        assert!(fault(&overrides, &[String::new()]).is_some(), "an empty path is no path");
    }

    #[test]
    fn a_long_path_is_cut() {
        let fault = fault_of(json!({"x".repeat(5000): 1})).unwrap();
        assert!(fault.len() < 500, "{fault}");
    }

    /// What Helm 3's chartutil.CoalesceTables gives.
    #[test]
    fn overrides_merge_as_helm_does_it() {
        let over = json!({"a": {"b": 1, "d": null, "deep": {"n": null}}, "list": [1], "gone": null, "none": null, "t": {"x": 1}, "s": 1});
        let under =
            json!({"a": {"b": 2, "c": 3, "d": 4}, "list": [2, 3], "gone": {"x": 1}, "kept": 5, "t": 7, "s": {"y": 1}});
        let merged = json!({
            "a": {"b": 1, "c": 3, "deep": {"n": null}}, "list": [1], "kept": 5, "t": {"x": 1}, "s": 1,
        });
        assert_eq!(Value::from(coalesce(map(over), map(under))), merged);
    }

    #[test]
    fn what_is_enforced_wins_over_everything() {
        for values in [json!({}), json!({"sync": null}), json!({"sync": "x"}), json!({"sync": {"on": true, "more": 1}})]
        {
            let mut values = map(values);
            enforce(&mut values, map(json!({"sync": {"on": false}})));
            assert_eq!(values["sync"]["on"], false);
        }
    }
}
