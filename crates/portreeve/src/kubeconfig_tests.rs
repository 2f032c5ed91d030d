use proptest::prelude::*;

use super::*;

/// As vCluster writes it.
const TENANT: &str = "\
apiVersion: v1
kind: Config
clusters:
- name: my-vcluster
  cluster: {server: 'https://blue.api.example.test:443', certificate-authority-data: QQ==}
users:
- name: my-vcluster
  user: {client-certificate-data: Qg==, client-key-data: Qw==}
contexts:
- name: my-vcluster
  context: {cluster: my-vcluster, user: my-vcluster, namespace: default}
current-context: my-vcluster
";

/// As kubectl writes it, with what kubectl does not know.
const FILE: &str = "\
apiVersion: v1
# mine
clusters:
- cluster:
    certificate-authority: ca.crt
    extensions:
    - extension: {provider: minikube.sigs.k8s.io}
      name: cluster_info
    server: https://127.0.0.1:6443
  name: local
contexts:
- context:
    cluster: local
    user: me
  name: local
current-context: local
kind: Config
preferences: {}
users:
- name: me
  user:
    exec: {apiVersion: client.authentication.k8s.io/v1, command: login, args: null}
unknown: {kept: ['0123', yes please]}
";

fn tenant() -> TenantKubeconfig {
    TenantKubeconfig::read("blue", TENANT).unwrap()
}

/// What `old` says and `new` does not.
fn lost(path: &str, old: &Value, new: &Value) -> Vec<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(fields)) => {
            let inner = old.iter().flat_map(|(name, value)| {
                fields
                    .get(name)
                    .map_or_else(|| vec![format!("{path}.{name}")], |new| lost(&format!("{path}.{name}"), value, new))
            });
            inner.collect()
        }
        (Value::Array(old), Value::Array(items)) => {
            let found = |item: &Value| items.iter().any(|new| lost("", item, new).is_empty());
            old.iter().filter(|item| !found(item)).map(|item| format!("{path}: {item}")).collect()
        }
        (old, new) if old == new => Vec::new(),
        (old, _) => vec![format!("{path}: {old}")],
    }
}

#[test]
fn the_context_is_called_as_the_cli_of_kubespaces_calls_it() {
    let alone = tenant().alone();
    assert_eq!(alone["current-context"], "kubespaces-blue");
    let context = json!({"cluster": "kubespaces-blue", "user": "kubespaces-blue", "namespace": "default"});
    assert_eq!(alone["contexts"], json!([{"name": "kubespaces-blue", "context": context}]));
    assert_eq!(alone["clusters"][0]["cluster"]["server"], tenant().server());
    assert_eq!(TenantKubeconfig::read("blue", &alone.to_string()).unwrap(), tenant(), "it is one itself");
}

#[test]
fn a_file_of_kubectl_keeps_everything_and_its_current_context() {
    let old: Value = serde_saphyr::from_str(FILE).unwrap();
    let new = tenant().merged(FILE, false).unwrap();
    assert_eq!(lost("", &old, &new), [""; 0]);
    assert_eq!(new["contexts"].as_array().unwrap().len(), 2);
    let text = serde_saphyr::to_string(&new).unwrap();
    assert_eq!(tenant().merged(&text, false).unwrap(), new, "twice is once");
    assert_eq!(tenant().merged(FILE, true).unwrap()["current-context"], "kubespaces-blue");
}

#[test]
fn what_a_person_added_to_the_tenants_entries_stays_and_old_credentials_go() {
    let mut file = tenant().alone();
    file["clusters"][0]["cluster"]["proxy-url"] = json!("http://proxy");
    file["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = json!(true);
    file["contexts"][0]["context"]["namespace"] = json!("work");
    file["users"][0]["user"] = json!({"token": "old"});
    let new = tenant().merged(&file.to_string(), false).unwrap();
    let cluster =
        json!({"server": tenant().server(), "certificate-authority-data": "QQ==", "proxy-url": "http://proxy"});
    assert_eq!(new["clusters"][0]["cluster"], cluster);
    assert_eq!(new["contexts"][0]["context"]["namespace"], "work");
    assert_eq!(new["users"][0]["user"], json!({"client-certificate-data": "Qg==", "client-key-data": "Qw=="}));
}

#[test]
fn a_cluster_of_the_same_name_elsewhere_is_not_overwritten() {
    let mut file = tenant().alone();
    file["clusters"][0]["cluster"]["server"] = json!("https://other.test");
    let taken = BadKubeconfig::Taken { name: "kubespaces-blue".into(), server: "https://other.test".into() };
    assert_eq!(tenant().merged(&file.to_string(), false), Err(taken));
}

#[test]
fn what_is_no_kubeconfig_is_refused_and_nothing_is_one() {
    assert!(matches!(tenant().merged("a: [", false), Err(BadKubeconfig::Yaml(_))));
    for bad in ["- a", "text", "clusters: text"] {
        assert!(matches!(tenant().merged(bad, false), Err(BadKubeconfig::Shape(_))), "{bad}");
    }
    for empty in ["", "\n", "# nothing\n", "clusters: null"] {
        assert_eq!(tenant().merged(empty, false).unwrap()["current-context"], "kubespaces-blue", "{empty:?}");
    }
    assert!(TenantKubeconfig::read("blue", "current-context: gone").is_err());
}

fn scalar() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-z]{1,8}", "[0-9]{1,4}", Just("yes".to_owned()), Just("null".to_owned()), "[ -~]{0,12}"];
    prop_oneof![text.prop_map(Value::from), any::<bool>().prop_map(Value::from), any::<i32>().prop_map(Value::from)]
}

fn entries(field: &'static str) -> impl Strategy<Value = Value> {
    let value = prop::collection::btree_map("[a-z-]{1,8}", scalar(), 0..4);
    let entry = ("[a-z]{1,6}", value, prop::option::of(scalar())).prop_map(move |(name, value, more)| {
        let mut entry = json!({ "name": name });
        entry[field] = json!(value);
        if let Some(more) = more {
            entry["more"] = more;
        }
        entry
    });
    prop::collection::vec(entry, 0..4).prop_map(Value::from)
}

proptest! {
    #[test]
    fn nothing_of_the_old_file_is_lost(
        clusters in entries("cluster"),
        users in entries("user"),
        contexts in entries("context"),
        more in prop::collection::btree_map("x-[a-z]{1,6}", scalar(), 0..4),
        current in "[a-z]{1,6}",
    ) {
        let mut old = json!({
            "clusters": clusters, "users": users, "contexts": contexts, "current-context": current, "preferences": {},
        });
        old.as_object_mut().unwrap().extend(more);
        let text = serde_saphyr::to_string(&old).unwrap();
        let new = tenant().merged(&text, false).unwrap();
        let written: Value = serde_saphyr::from_str(&serde_saphyr::to_string(&new).unwrap()).unwrap();
        prop_assert_eq!(lost("", &old, &written), Vec::<String>::new());
    }
}
