use super::*;

const APP: &str = "\
apiVersion: reconcilers.nebari.dev/v1
kind: NebariApp
metadata:
  name: hub
  namespace: team
spec:
  hostname: hub.example.com
  service: {name: hub, port: 80}
  routing:
    routes: [{pathPrefix: /}]
";

fn read(text: &str) -> FileContents {
    super::read(&"f.yaml".into(), text)
}

/// The findings as people see them.
fn findings(text: &str) -> Vec<String> {
    read(text).findings.iter().map(ToString::to_string).collect()
}

/// Replaces one line of [`APP`].
fn app_with(old: &str, new: &str) -> String {
    assert!(APP.contains(old), "{old}");
    APP.replacen(old, new, 1)
}

#[test]
fn an_object_is_read_with_its_defaults() {
    let contents = read(&format!("# hub\n{APP}"));
    assert_eq!(contents.findings, []);
    let [manifest] = contents.manifests.as_slice() else { panic!("{contents:?}") };
    assert_eq!(manifest.object.to_string(), "NebariApp/team/hub");
    assert_eq!(manifest.place.to_string(), "f.yaml:2");
    assert_eq!(manifest.value["spec"]["gateway"], "public");
}

/// File, line and field of every complaint, exactly.
#[test]
fn complaints_name_file_line_and_field() {
    let cases = [
        (
            "  hostname: hub.example.com",
            "  hostname: Hub.example.com",
            "f.yaml:7: spec.hostname: error: \"Hub.example.com\" does not match",
        ),
        (
            "{name: hub, port: 80}",
            "{name: hub, port: 0}",
            "f.yaml:8: spec.service.port: error: 0 is less than the minimum of 1",
        ),
        (
            "{name: hub, port: 80}",
            "{name: hub, port: '80'}",
            "f.yaml:8: spec.service.port: error: \"80\" is not of type \"integer\"",
        ),
        ("{name: hub, port: 80}", "{name: hub}", "f.yaml:8: spec.service: error: \"port\" is a required property"),
        ("  hostname: hub.example.com\n", "", "f.yaml:6: spec: error: \"hostname\" is a required property"),
        (
            "[{pathPrefix: /}]",
            "\n    - pathPrefix: /\n    - pathPrefix: x",
            "f.yaml:12: spec.routing.routes[1].pathPrefix: error: \"x\" does not match",
        ),
        (
            "  routing:",
            "  gateway: pubic\n  routing:",
            "f.yaml:9: spec.gateway: error: \"pubic\" is not one of \"public\" or \"internal\" (did you mean 'public'?)",
        ),
        (
            "  hostname: hub",
            "  hostnam: x\n  hostname: hub",
            "f.yaml:7: spec.hostnam: warning: NebariApp has no such field, so it is ignored; did you mean 'hostname'?",
        ),
        (
            "  routing:",
            "  auth: {forwardAccessToken: true, enforceAtGateway: false}\n  routing:",
            "f.yaml:9: spec.auth: error: forwardAccessToken: true requires enforceAtGateway: true",
        ),
        ("  name: hub\n", "", "f.yaml:3: metadata: error: name is missing"),
        ("  name: hub\n", "  name: Hub_1\n", "f.yaml:4: metadata.name: error: \"Hub_1\" is no name"),
        ("  name: hub\n", "  name: 7\n", "f.yaml:4: metadata.name: error: name must be text; put quotes around it"),
        ("  namespace: team", "  namespace: a.b", "f.yaml:5: metadata.namespace: error: \"a.b\" is no namespace"),
        ("kind: NebariApp\n", "", "f.yaml:1: error: this is no Kubernetes object: kind is missing"),
        (
            "nebari.dev/v1",
            "nebari.dev/v2",
            "f.yaml:1: apiVersion: error: NebariApp has no version \"v2\" here: write reconcilers.nebari.dev/v1",
        ),
        (
            "kind: NebariApp",
            "kind: NebariApps",
            "f.yaml:2: kind: warning: reconcilers.nebari.dev/v1 NebariApps is not a kind that Portreeve reads, so this is ignored; did you mean reconcilers.nebari.dev/v1 NebariApp?",
        ),
        (
            "reconcilers.nebari.dev",
            "reconciler.nebari.dev",
            "f.yaml:2: kind: warning: reconciler.nebari.dev/v1 NebariApp is not",
        ),
    ];
    for (old, new, expected) in cases {
        let found = findings(&app_with(old, new));
        assert!(found.iter().any(|finding| finding.starts_with(expected)), "{expected}\n{found:#?}");
        assert_eq!(found.len(), 1, "{found:#?}");
    }
}

#[test]
fn all_faults_of_an_object_are_said_at_once() {
    let text = app_with("{name: hub, port: 80}", "{name: '', port: 0}");
    assert_eq!(findings(&text).len(), 2);
    assert_eq!(read(&text).manifests, []);
}

#[test]
fn a_broken_document_does_not_take_the_others() {
    let text = format!("a: [\n---\n{APP}---\nkind: 1\n---\n{}", APP.replace("name: hub\n", "name: other\n"));
    let contents = read(&text);
    assert_eq!(contents.manifests.len(), 2);
    let lines: Vec<_> = contents.manifests.iter().map(|manifest| manifest.place.line.unwrap()).collect();
    assert_eq!(lines, [3, 16]);
    assert_eq!(contents.findings.len(), 2, "{:?}", contents.findings);
}

#[test]
fn lists_are_expanded_and_complaints_name_the_item() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: B\n";
    let contents = read(text);
    assert_eq!(contents.manifests.len(), 1);
    assert!(
        contents.findings[0].to_string().starts_with("f.yaml:10: items[1].metadata.name: error"),
        "{:?}",
        contents.findings
    );
    let typed =
        read("apiVersion: v1\nkind: ServiceList\nitems: [{apiVersion: v1, kind: Service, metadata: {name: s}}]\n");
    assert_eq!(typed.manifests[0].object.to_string(), "Service/default/s");
    assert_eq!(read("apiVersion: v1\nkind: List\nitems:\n"), FileContents::default());
}

#[test]
fn older_versions_are_read_as_v1() {
    let route = |version: &str, hostnames: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/{version}\nkind: TLSRoute\nmetadata: {{name: r}}\nspec:\n  {hostnames}\n  rules: [{{backendRefs: [{{name: s, port: 1}}]}}]\n"
        )
    };
    for version in ["v1", "v1alpha3", "v1alpha2"] {
        let contents = read(&route(version, "hostnames: [a.test]"));
        assert_eq!(contents.findings, []);
        assert_eq!(contents.manifests[0].value["apiVersion"], "gateway.networking.k8s.io/v1");
    }
    // They could do without; v1 cannot (traps: 20).
    let found = findings(&route("v1alpha2", ""));
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("f.yaml:4: spec: error: \"hostnames\" is a required property"), "{found:?}");
}

#[test]
fn string_data_is_folded_and_secrets_stay_secret() {
    let secret = |rest: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\n{rest}");
    let contents = read(&secret("data: {a: b2xk, b: b2xk}\nstringData: {a: new}\n"));
    assert_eq!(contents.findings, []);
    assert_eq!(contents.manifests[0].value["data"], json!({"a": "bmV3", "b": "b2xk"}));
    assert_eq!(contents.manifests[0].value.get("stringData"), None);
    for broken in
        ["data: {a: hunter2!}\n", "data: {a: [hunter2]}\n", "stringData: {a: {b: hunter2}}\n", "data: {a: 2345}\n"]
    {
        let found = findings(&secret(broken));
        assert!(found.len() == 1 && found[0].starts_with("f.yaml:4: "), "{found:?}");
        assert!(!found[0].contains("hunter2") && !found[0].contains("2345"), "{found:?}");
    }
}

#[test]
fn what_kubectl_prints_can_be_used_as_it_is() {
    let text = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  uid: u\n  resourceVersion: '1'\n  managedFields: []\n  deletionTimestamp: 2024-01-01T00:00:00Z\nspec: {clusterIP: None}\nstatus: {loadBalancer: {}}\n";
    let contents = read(text);
    assert_eq!(contents.findings, []);
    let expected = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "uid": "u", "namespace": "default"}, "spec": {"clusterIP": "None"}});
    assert_eq!(*contents.manifests[0].value, expected);
}

#[test]
fn kinds_that_are_not_read_are_said_once_each() {
    let deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n";
    let istio = "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: a}\n";
    let contents = read(&[deployment, deployment, istio].concat());
    assert_eq!((contents.manifests.len(), contents.findings.len()), (0, 0));
    let said: Vec<_> = summarize_ignored(&contents.ignored).iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "f.yaml:2: info: apps/v1 Deployment is not a kind that Portreeve reads; 2 objects ignored",
            "f.yaml:10: info: networking.istio.io/v1 Gateway is not a kind that Portreeve reads; 1 object ignored",
        ]
    );
}

#[test]
fn a_namespace_on_what_has_none_is_ignored_aloud() {
    let contents = read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}\n");
    assert_eq!(contents.manifests[0].object.namespace, None);
    assert!(contents.findings[0].to_string().contains("Namespace lives in no namespace"), "{:?}", contents.findings);
}
