//! The permissions that the controller needs, from the same table from which it works.

use std::collections::BTreeMap;

use crate::reflect::kind::{KINDS, Kind, KindName, MIGRATION_VERBS, TENANT_VERBS};

/// One rule of a Role or `ClusterRole`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// As in paths, such as `nebariapps/status`.
    pub resources: Vec<String>,
    /// The objects, by name; empty for all.
    pub names: Vec<String>,
    /// In the order of the alphabet.
    pub verbs: Vec<&'static str>,
}

/// What the controller is told to do, as far as it takes permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// Tenants are served.
    pub tenants: bool,
    /// Apps move from the listeners of the former operator to their own.
    pub migration: bool,
}

/// What is needed in all namespaces.
pub fn cluster_rules(duties: Duties) -> Vec<Rule> {
    let Duties { tenants, migration } = duties;
    let tenant_verbs = TENANT_VERBS.iter().filter(|_| tenants);
    let more: Vec<_> = tenant_verbs.chain(MIGRATION_VERBS.iter().filter(|_| migration)).collect();
    let mut verbs: BTreeMap<(&'static str, String), Vec<&'static str>> = BTreeMap::new();
    let mut grant = |group, resource: String, more: &[&'static str]| {
        verbs.entry((group, resource)).or_default().extend(more);
    };
    let is_read = |kind: &&Kind| match kind.name {
        KindName::Deployment => migration,
        _ => tenants || !kind.of_tenants,
    };
    for kind in KINDS.iter().filter(is_read) {
        grant(kind.group, kind.plural.to_owned(), &["list", "watch"]);
        grant(kind.group, kind.plural.to_owned(), kind.verbs);
        for (part, verbs) in kind.subresources {
            grant(kind.group, format!("{}/{part}", kind.plural), verbs);
        }
        for (_, verbs) in more.iter().filter(|(name, _)| *name == kind.name) {
            grant(kind.group, kind.plural.to_owned(), verbs);
        }
    }
    grant("apiextensions.k8s.io", "customresourcedefinitions".to_owned(), &["list", "watch"]);
    grant("", "events".to_owned(), &["create"]);
    verbs.retain(|_, verbs| !verbs.is_empty());
    verbs.into_iter().map(|((group, resource), verbs)| rule(group, resource, Vec::new(), verbs)).collect()
}

/// What is needed in the namespace of the leases, to take and keep these.
pub fn lease_rules(leases: &[String]) -> Vec<Rule> {
    // Whoever makes an object cannot be bound to its name.
    let make = rule("coordination.k8s.io", "leases".to_owned(), Vec::new(), vec!["create"]);
    let keep = rule("coordination.k8s.io", "leases".to_owned(), leases.to_vec(), vec!["get", "update"]);
    vec![make, keep]
}

/// What is needed in all namespaces to ask who may read the metrics.
pub fn metrics_rules() -> Vec<Rule> {
    let create = |group, resource: &str| rule(group, resource.to_owned(), Vec::new(), vec!["create"]);
    vec![create("authentication.k8s.io", "tokenreviews"), create("authorization.k8s.io", "subjectaccessreviews")]
}

/// What the Helm client's own account needs in all namespaces, to install vCluster's chart.
///
/// Whoever may make a role that grants more than they have, as `escalate` and `bind` say, may in the end do everything;
/// vCluster's roles grant what it syncs, so they cannot be listed here.
pub fn helm_rules() -> Vec<Rule> {
    const ALL: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
    const ROLES: &[&str] = &["bind", "create", "delete", "escalate", "get", "list", "patch", "update", "watch"];
    let kinds: [(&'static str, &[&str], &[&'static str]); 8] = [
        ("", &["configmaps", "endpoints", "persistentvolumeclaims", "secrets", "serviceaccounts", "services"], ALL),
        ("apps", &["deployments", "statefulsets"], ALL),
        ("batch", &["jobs"], ALL),
        ("networking.k8s.io", &["ingresses", "networkpolicies"], ALL),
        ("policy", &["poddisruptionbudgets"], ALL),
        ("rbac.authorization.k8s.io", &["clusterroles", "roles"], ROLES),
        ("rbac.authorization.k8s.io", &["clusterrolebindings", "rolebindings"], ALL),
        ("", &["namespaces", "pods"], &["get", "list", "watch"]),
    ];
    let rules = kinds.into_iter().map(|(group, resources, verbs)| Rule {
        group,
        resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
        names: Vec::new(),
        verbs: verbs.to_vec(),
    });
    rules.collect()
}

fn rule(group: &'static str, resource: String, names: Vec<String>, mut verbs: Vec<&'static str>) -> Rule {
    verbs.sort_unstable();
    verbs.dedup();
    Rule { group, resources: vec![resource], names, verbs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbs(rules: &[Rule], resource: &str) -> Vec<&'static str> {
        let found = rules.iter().find(|rule| rule.resources == [resource]);
        found.map(|rule| rule.verbs.clone()).unwrap_or_default()
    }

    #[test]
    fn a_shared_gateway_is_only_read_unless_a_duty_asks_for_more() {
        let tenants = cluster_rules(Duties { tenants: true, ..Duties::default() });
        let migration = cluster_rules(Duties { migration: true, ..Duties::default() });
        assert_eq!(verbs(&cluster_rules(Duties::default()), "gateways"), ["list", "watch"]);
        assert_eq!(verbs(&tenants, "gateways"), ["create", "delete", "get", "list", "patch", "watch"]);
        assert_eq!(verbs(&tenants, "secrets"), ["create", "delete", "get", "list", "patch", "watch"]);
        assert_eq!(verbs(&migration, "gateways"), ["list", "patch", "watch"]);
        assert_eq!(verbs(&migration, "deployments"), ["list", "watch"]);
        assert_eq!(verbs(&cluster_rules(Duties::default()), "deployments"), [""; 0]);
        assert_eq!(verbs(&migration, "tenants"), [""; 0]);
        assert_eq!(verbs(&tenants, "tenants/status"), ["patch"]);
    }

    #[test]
    fn what_is_made_may_be_written_and_deleted_and_secrets_never_deleted() {
        let rules = cluster_rules(Duties::default());
        assert_eq!(verbs(&rules, "listenersets"), ["create", "delete", "list", "patch", "watch"]);
        assert_eq!(verbs(&rules, "secrets"), ["create", "get", "list", "patch", "watch"]);
        assert_eq!(verbs(&rules, "rolebindings"), ["create", "delete", "list", "patch", "watch"]);
        assert_eq!(verbs(&rules, "nebariapps"), ["list", "patch", "watch"]);
        assert_eq!(verbs(&rules, "nebariapps/status"), ["patch"]);
        assert_eq!(verbs(&rules, "events"), ["create"]);
    }
}
