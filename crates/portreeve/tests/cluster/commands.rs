//! The commands that look at a cluster: `plan`, `trace`, `doctor` and `kubeconfig`, and what the operator finds when it dials.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::FutureExt;
use k8s_openapi::ByteString;
use portreeve_testkit::tls::Identity;
use portreeve_testkit::{Bed, Channel, Host, condition, eventually, fixtures, servers};
use serde_json::{Value, json};

use crate::support::{GATEWAY_API, NEBARI, Operator, Platform, has, message, side_by_side};

const DIFFERENT: Option<i32> = Some(1);
const OK: Option<i32> = Some(0);
const UNABLE: Option<i32> = Some(3);
/// How long it may take until the operator has seen that a port does not answer.
const DIALLED: Duration = Duration::from_secs(90);
const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[tokio::test(flavor = "multi_thread")]
async fn commands_say_of_a_cluster_what_the_operator_would_do_there() {
    let parts = Bed::builder().with_controller_manager().with_envoy_gateway();
    let Platform { bed } = Platform::bare(parts).await.unwrap();
    let _server = shop(&bed).await.unwrap();

    let before = plan_diff(&bed, &bed.kubeconfig()).await.unwrap();
    assert_eq!(before.status.code(), DIFFERENT, "{}", text(&before));
    for line in ["# create ListenerSet/shop/web-listeners", "# create TLSRoute/shop/", "+++ wanted/HTTPRoute/shop/"] {
        assert!(text(&before).contains(line), "{line} is not in\n{}", text(&before));
    }
    let written = bed.get(GATEWAY_API, "ListenerSet", "shop/web-listeners").await.unwrap();
    assert_eq!(written, None, "plan writes nothing");

    let mut operator = Operator::start(&bed, "operator", &["--cluster-issuer="]).unwrap();
    operator.wait_ready().await.unwrap();
    bed.wait_for(NEBARI, "NebariApp", "shop/web", "is ready", |app| condition(app, "Ready") == Some("True"))
        .await
        .unwrap();
    settled(&bed, &bed.kubeconfig()).await.unwrap();

    let scenarios = vec![
        ("trace_explains_a_served_and_a_refused_name", traced(&bed).boxed_local()),
        ("plan_needs_rights_to_list_and_says_which_are_missing", rights(&bed).boxed_local()),
        ("a_port_that_refuses_shows_in_the_condition", refusing_port(&bed).boxed_local()),
    ];
    side_by_side(scenarios, || operator.log()).await;

    operator.stop().await.unwrap();
    changed_by_hand(&bed).await.unwrap();
}

/// An app with a name on the shared listener and a passthrough port.
async fn shop(bed: &Bed) -> anyhow::Result<servers::Server> {
    let wildcard = Identity::new(&["*.example.com"])?;
    bed.apply(&fixtures::tls_secret("envoy-gateway-system", "nebari-gateway-tls", &wildcard)).await?;
    bed.apply(&fixtures::shared_gateway(true)).await?;
    bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[80, 443, 8786]).await?;
    bed.apply(&fixtures::opted_in_namespace("shop")).await?;
    let host = bed.host("shop")?;
    bed.apply(&fixtures::service_at("shop", "web", 8000, host.address())).await?;
    let entry = json!({
        "name": "tls", "listener": {"port": 8786}, "sniHostnames": ["web.tls.example.com"], "service": {"name": "web", "port": 8000},
    });
    let app = json!({
        "apiVersion": NEBARI, "kind": "NebariApp", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "hostname": "web.example.com", "service": {"name": "web", "port": 8000}, "routing": {"tcp": [entry]},
        },
    });
    bed.apply(&app.to_string()).await?;
    servers::echo(&host, 8000, "web")
}

/// Waits until nothing would be written.
async fn settled(bed: &Bed, kubeconfig: &Path) -> anyhow::Result<()> {
    eventually("plan --diff is empty", Duration::from_mins(1), async || {
        let output = plan_diff(bed, kubeconfig).await?;
        ensure!(output.status.code() == OK && output.stdout.is_empty(), "it says {}", text(&output));
        Ok(())
    })
    .await
}

async fn traced(bed: &Bed) -> anyhow::Result<()> {
    let kubeconfig = bed.kubeconfig();
    let trace = async |arguments: &[&str]| portreeve(bed, "trace", &kubeconfig, arguments).await;
    for served in [&["https://web.example.com/"][..], &["--port", "8786", "--sni", "web.tls.example.com"]] {
        let output = trace(served).await?;
        ensure!(output.status.code() == OK, "{served:?}: {}", text(&output));
        ensure!(text(&output).contains(&bed.host("shop")?.address().to_string()), "{}", text(&output));
    }
    let refused = trace(&["--port", "8786", "--sni", "other.tls.example.com", "-o", "json"]).await?;
    ensure!(refused.status.code() == DIFFERENT, "{}", text(&refused));
    let answer: Value = serde_json::from_slice(&refused.stdout)?;
    ensure!(answer["served"] == false, "{answer}");
    let last = answer["hops"].as_array().and_then(|hops| hops.last()).context("there are hops")?;
    ensure!(last["ok"] == false && last["fix"].is_string(), "{last}");
    Ok(())
}

async fn rights(bed: &Bed) -> anyhow::Result<()> {
    let role = |resources: Value| {
        json!({
            "apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "reader"},
            "rules": [{"apiGroups": ["*"], "resources": resources, "verbs": ["list"]}],
        })
    };
    bed.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: default}}").await?;
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    });
    bed.apply(&role(json!(["*"])).to_string()).await?;
    bed.apply(&binding.to_string()).await?;
    let kubeconfig = bed.kubeconfig_for_token("reader", &bed.token("default", "reader").await?)?;
    // The other scenario may be changing something; that the plan is made is what counts.
    let output = plan_diff(bed, &kubeconfig).await?;
    ensure!(matches!(output.status.code(), Some(0 | 1)), "to list is enough: {}", text(&output));

    bed.apply(&role(json!(["customresourcedefinitions", "nebariapps"])).to_string()).await?;
    let says = eventually("plan names the missing right", Duration::from_secs(30), async || {
        let output = plan_diff(bed, &kubeconfig).await?;
        ensure!(output.status.code() == UNABLE, "{}", text(&output));
        ensure!(text(&output).contains(r#"cannot list resource "services""#), "{}", text(&output));
        Ok(())
    });
    says.await
}

/// design law 6: where the controller can reach the data plane, a connect to the port is part of the proof.
async fn refusing_port(bed: &Bed) -> anyhow::Result<()> {
    let gateway = bed.host("gateway")?;
    nft(&gateway, "add table inet refusal")?;
    nft(&gateway, "add chain inet refusal in { type filter hook input priority 0; }")?;
    nft(&gateway, "add rule inet refusal in tcp dport 8786 reject with tcp reset")?;
    let dial_failed = |app: &Value| {
        has(app, ("Ready", "False", "DialFailed")) || {
            let entry = &app["status"]["tcp"][0];
            has(entry, ("Ready", "False", "DialFailed"))
        }
    };
    let told = eventually("the app is told that its port refuses", DIALLED, async || {
        let app = bed.get(NEBARI, "NebariApp", "shop/web").await?.context("the app is there")?;
        ensure!(dial_failed(&app), "its status is {}", app["status"]);
        Ok(app)
    });
    let app = told.await?;
    let said = app["status"].to_string();
    ensure!(said.contains("port 8786 does not answer") && !message(&app, "Ready").contains("443"), "{said}");
    settled(bed, &bed.kubeconfig()).await.context("a port that the operator dials is no difference")?;
    nft(&gateway, "delete table inet refusal")?;
    eventually("the app is ready again", DIALLED, async || {
        let app = bed.get(NEBARI, "NebariApp", "shop/web").await?.context("the app is there")?;
        ensure!(condition(&app, "Ready") == Some("True") && !dial_failed(&app), "its status is {}", app["status"]);
        Ok(())
    })
    .await
}

/// What somebody does to an object while no operator runs.
async fn changed_by_hand(bed: &Bed) -> anyhow::Result<()> {
    settled(bed, &bed.kubeconfig()).await?;
    let patch = r#"{"spec":{"hostnames":["evil.example.com"]}}"#;
    let routes = bed.kubectl()?.args(["-n", "shop", "get", "httproutes", "-o", "name"]).output()?;
    for route in String::from_utf8_lossy(&routes.stdout).lines() {
        let patched = bed.kubectl()?.args(["-n", "shop", "patch", route, "--type=merge", "-p", patch]).output()?;
        ensure!(patched.status.success(), "{}", text(&patched));
    }
    let output = plan_diff(bed, &bed.kubeconfig()).await?;
    ensure!(output.status.code() == DIFFERENT, "{}", text(&output));
    for line in ["-  - evil.example.com", "+  - web.example.com"] {
        ensure!(text(&output).lines().any(|found| found == line), "{line} is not in\n{}", text(&output));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_and_kubeconfig_on_a_bare_api_server() {
    let bed = Bed::builder().start().await.unwrap();
    let none = portreeve(&bed, "plan", &bed.kubeconfig(), &["--diff"]).await.unwrap();
    assert_eq!(none.status.code(), UNABLE, "{}", text(&none));
    assert!(text(&none).contains("lacks the CRD nebariapps.reconcilers.nebari.dev"), "{}", text(&none));
    let advice = doctor(&bed).await.unwrap();
    for definition in
        ["nebariapps.reconcilers.nebari.dev", "tenants.kubespaces.io", "gateways.gateway.networking.k8s.io"]
    {
        assert!(advice.iter().any(|one| one["finding"].as_str().unwrap().contains(definition)), "{advice:?}");
    }
    define(&bed).await.unwrap();
    closed_gateway(&bed).await.unwrap();
    kubeconfigs(&bed).await.unwrap();
    silent_api_server(&bed).await.unwrap();
}

/// What doctor finds where something has to be done.
async fn doctor(bed: &Bed) -> anyhow::Result<Vec<Value>> {
    let output = portreeve(bed, "doctor", &bed.kubeconfig(), &["-o", "json"]).await?;
    ensure!(output.status.code() == DIFFERENT, "something is to be done: {}", text(&output));
    let printed: Value = serde_json::from_slice(&output.stdout)?;
    Ok(printed["advice"].as_array().context("there is advice")?.clone())
}

/// Everything but an operator.
async fn define(bed: &Bed) -> anyhow::Result<()> {
    bed.define(Channel::Standard.definitions(), |_| true).await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/portreeve/files/crds");
    for entry in fs::read_dir(folder)? {
        bed.apply(&fs::read_to_string(entry?.path())?).await?;
    }
    eventually("the definitions are served", Duration::from_secs(30), async || {
        for definition in ["nebariapps.reconcilers.nebari.dev", "tenants.kubespaces.io"] {
            let found = bed.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition).await?;
            ensure!(found.is_some_and(|found| condition(&found, "Established") == Some("True")), "{definition}");
        }
        Ok(())
    })
    .await
}

/// A Gateway that admits no ListenerSets: what doctor prints can be pasted, and then it is well.
async fn closed_gateway(bed: &Bed) -> anyhow::Result<()> {
    bed.apply(&fixtures::namespace("envoy-gateway-system")).await?;
    bed.apply(&fixtures::opted_in_namespace("shop")).await?;
    bed.apply(&fixtures::shared_gateway(false)).await?;
    let advice = doctor(bed).await?;
    ensure!(!advice.iter().any(|one| one["finding"].to_string().contains("nebariapps")), "{advice:?}");
    let closed = advice.iter().find(|one| one["finding"].to_string().contains("does not admit ListenerSets"));
    let yaml = closed.and_then(|one| one["yaml"].as_str()).with_context(|| format!("no YAML in {advice:?}"))?;
    let mut kubectl = bed.kubectl()?;
    kubectl
        .args(["apply", "--server-side", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = kubectl.spawn()?;
    child.stdin.take().context("kubectl has a standard input")?.write_all(yaml.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "{yaml}\n{}", text(&output));
    let output = portreeve(bed, "doctor", &bed.kubeconfig(), &[]).await?;
    ensure!(!text(&output).contains("does not admit ListenerSets"), "{}", text(&output));
    ensure!(output.status.code() == OK, "nothing else has to be done: {}", text(&output));
    Ok(())
}

/// What is wrong with a kubeconfig.
type Fault<'f> = &'f dyn Fn(&mut Value);

/// A Tenant as an operator leaves it; its API server is that of the bed.
async fn kubeconfigs(bed: &Bed) -> anyhow::Result<()> {
    let tenant = json!({"apiVersion": "kubespaces.io/v1alpha1", "kind": "Tenant", "metadata": {"name": "blue"},
        "spec": {"owner": "me@example.com"}});
    bed.apply(&tenant.to_string()).await?;
    let early = portreeve(bed, "kubeconfig", &bed.kubeconfig(), &["blue"]).await?;
    ensure!(early.status.code() == DIFFERENT && text(&early).contains("no kubeconfig yet"), "{}", text(&early));

    let mut status = tenant.clone();
    status["spec"] = Value::Null;
    status["status"] = json!({"phase": "Ready", "kubeconfigSecretRef": {"name": "vc-blue", "key": "config"}});
    bed.apply_status(&status.to_string()).await?;
    let namespace = portreeve_api::names::tenant::default_namespace("blue");
    bed.apply(&fixtures::namespace(&namespace)).await?;
    store(bed, &namespace, |_| {}).await?;

    let folder = bed.folder().join("kubeconfigs");
    fs::create_dir_all(&folder)?;
    let file = folder.join("config");
    let set = ["config", "set-cluster", "local", "--server=https://127.0.0.1:1"];
    let made = bed.kubectl()?.arg("--kubeconfig").arg(&file).args(set).output()?;
    ensure!(made.status.success(), "{}", text(&made));
    let path = file.display().to_string();
    let output = portreeve(bed, "kubeconfig", &bed.kubeconfig(), &["blue", "--merge", &path, "--check"]).await?;
    ensure!(output.status.code() == OK && text(&output).contains("Kubernetes v1."), "{}", text(&output));
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600, "only its owner reads it");
    let mut used = bed.kubectl()?;
    used.arg("--kubeconfig").arg(&file).args(["--context", "kubespaces-blue", "get", "namespaces", "-o", "name"]);
    let used = used.output()?;
    ensure!(text(&used).contains(&format!("namespace/{namespace}")), "{}", text(&used));
    let kept = bed.kubectl()?.arg("--kubeconfig").arg(&file).args(["config", "get-clusters"]).output()?;
    ensure!(text(&kept).contains("local") && text(&kept).contains("kubespaces-blue"), "{}", text(&kept));

    let stranger = Identity::new(&["stranger"])?;
    let base64 = serde_json::to_value(ByteString(stranger.certificate_pem().into_bytes()))?;
    let faults: [(&str, Fault<'_>); 3] = [
        ("ConnectFailed", &|config| config["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1")),
        ("Terminated", &|config| config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.clone()),
        ("Unauthorized", &|config| config["users"][0]["user"] = json!({"token": "of somebody else"})),
    ];
    for (reason, fault) in faults {
        store(bed, &namespace, fault).await?;
        let output = portreeve(bed, "kubeconfig", &bed.kubeconfig(), &["blue", "--check"]).await?;
        ensure!(output.status.code() == DIFFERENT && text(&output).contains(reason), "{reason}: {}", text(&output));
    }
    Ok(())
}

/// Stores a kubeconfig as a virtual cluster does, with everything in it.
async fn store(bed: &Bed, namespace: &str, fault: impl Fn(&mut Value)) -> anyhow::Result<()> {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(bed.kubeconfig())?)?;
    let cluster = &mut config["clusters"][0]["cluster"];
    let authority = fs::read(cluster["certificate-authority"].as_str().context("the bed's is a file")?)?;
    *cluster = json!({"server": cluster["server"], "certificate-authority-data": ByteString(authority)});
    fault(&mut config);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vc-blue", "namespace": namespace},
        "stringData": {"config": config.to_string()}});
    bed.apply(&secret.to_string()).await
}

/// A socket that takes connections and never answers.
async fn silent_api_server(bed: &Bed) -> anyhow::Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let mut config: Value = serde_json::from_str(&fs::read_to_string(bed.kubeconfig())?)?;
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", silent.local_addr()?));
    let file = bed.folder().join("silent.kubeconfig");
    fs::write(&file, config.to_string())?;
    for command in ["doctor", "plan"] {
        let start = Instant::now();
        let output = portreeve(bed, command, &file, &["--request-timeout", "2"]).await?;
        ensure!(output.status.code() == UNABLE, "{command}: {}", text(&output));
        ensure!(text(&output).contains("has not answered for 2 s"), "{command}: {}", text(&output));
        ensure!(start.elapsed() < Duration::from_secs(20), "{command} took {:?}", start.elapsed());
    }
    Ok(())
}

async fn plan_diff(bed: &Bed, kubeconfig: &Path) -> anyhow::Result<Output> {
    portreeve(bed, "plan", kubeconfig, &["--diff", "--cluster-issuer="]).await
}

/// The real binary, on a thread where that holds nobody up.
pub(crate) async fn portreeve(
    bed: &Bed,
    command: &str,
    kubeconfig: &Path,
    arguments: &[&str],
) -> anyhow::Result<Output> {
    // The bed's hosts are reached from here too.
    let mut portreeve = std::process::Command::new(env!("CARGO_BIN_EXE_portreeve"));
    portreeve.arg(command).arg("--kubeconfig").arg(kubeconfig).args(arguments).env("HOME", bed.folder());
    for variable in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        portreeve.env_remove(variable);
    }
    Ok(tokio::task::spawn_blocking(move || portreeve.output()).await??)
}

fn nft(host: &Host, rule: &str) -> anyhow::Result<()> {
    let output = host.command("nft").arg(rule).output()?;
    ensure!(output.status.success(), "nft {rule}: {}", text(&output));
    Ok(())
}

pub(crate) fn text(output: &Output) -> String {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{error}")
}
