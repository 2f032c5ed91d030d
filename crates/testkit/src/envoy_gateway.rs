//! Envoy Gateway with the Envoy that it starts, both as processes of the host `gateway`.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use portreeve_programs::ENVOY_VERSION;
use serde_json::json;

use crate::bed::Bed;
use crate::fixtures;
use crate::objects::condition;

/// Where Envoy Gateway's Secrets and a Gateway's data plane are.
pub(crate) const NAMESPACE: &str = "envoy-gateway-system";

/// Runs a program with a folder as `/certs`, which Envoy Gateway cannot be told to look for elsewhere, in a mount namespace of
/// its own, so that nothing is made on the machine; hosts that are made later are seen in it. The arguments are the folder,
/// the `hosts` file by which it and its Envoys find names, then the program with its arguments.
const WITH_CERTIFICATES: &str = r#"set -e
mount -t tmpfs tmpfs /mnt
for entry in /*; do
  if [ "$entry" = /mnt ]; then continue; fi
  if [ -L "$entry" ]; then cp -P "$entry" /mnt/
  elif [ -d "$entry" ]; then mkdir "/mnt$entry"; mount --rbind "$entry" "/mnt$entry"; fi
done
mkdir -p /mnt/certs
mount --bind "$1" /mnt/certs
mount --bind "$2" /mnt/etc/hosts
shift 2
exec chroot /mnt "$@""#;

/// Runs Envoy in the host of its Gateway, if that has one of its own; there it reaches Envoy Gateway at that one's address.
/// Before it stand the real Envoy, the folder that tells the hosts, and Envoy Gateway's address.
const IN_OWN_HOST: &str = r#"
cluster=
for argument; do
  [ "$previous" = --service-cluster ] && cluster=$(echo "$argument" | tr / .)
  previous=$argument
done
host=$(cat "$hosts/$cluster" 2>/dev/null) || exec "$envoy" "$@"
for argument; do
  shift
  set -- "$@" "$(printf %s "$argument" | sed -z "s/address: 0\.0\.0\.0\(\s*port_value: 18000\)/address: $server\1/g")"
done
exec nsenter --net="/run/netns/$host" -- "$envoy" "$@"
"#;

/// How long connections outlive a change of their filters, as Envoy Gateway has it.
pub(crate) const DRAIN: Duration = Duration::from_mins(1);
/// The same where tests wait for it.
pub(crate) const SHORT_DRAIN: Duration = Duration::from_secs(5);

/// The class, its parameters, and the certificates that Envoy Gateway and Envoy prove themselves to each other with.
pub(crate) async fn prepare(bed: &Bed, drain: Duration) -> anyhow::Result<()> {
    bed.apply(&fixtures::namespace(NAMESPACE)).await?;
    bed.apply(&class(drain)).await?;
    let folder = bed.folder().join("envoy-gateway");
    let envoy = folder.join("data/envoy-versions").join(ENVOY_VERSION).join("bin");
    fs::create_dir_all(&envoy)?;
    let (real, server) = (portreeve_programs::find("envoy")?, xds_address(bed)?.ip());
    let (real, hosts) = (real.display(), bed.data_planes());
    let script = format!("#!/bin/sh\nenvoy='{real}' hosts='{}' server={server}\n{IN_OWN_HOST}", hosts.display());
    fs::write(envoy.join("envoy"), script)?;
    fs::set_permissions(envoy.join("envoy"), fs::Permissions::from_mode(0o755))?;
    fs::write(folder.join("config.yaml"), configuration(bed).to_string())?;

    let mut certgen = envoy_gateway(bed)?;
    certgen.args(["certgen", "--disable-topology-injector"]);
    let output = tokio::task::spawn_blocking(move || certgen.output()).await??;
    ensure!(output.status.success(), "envoy-gateway certgen failed: {}", String::from_utf8_lossy(&output.stderr));
    let secrets: Api<Secret> = Api::namespaced(bed.client(), NAMESPACE);
    for (name, target) in [("envoy-gateway", "certs"), ("envoy", "config/certs/envoy")] {
        let secret = secrets.get(name).await?;
        let target = folder.join(target);
        fs::create_dir_all(&target)?;
        for (file, ByteString(content)) in secret.data.unwrap_or_default() {
            fs::write(target.join(file), content)?;
        }
    }
    Ok(())
}

/// The server, which starts one Envoy for each Gateway.
pub(crate) fn command(bed: &Bed) -> anyhow::Result<Command> {
    let server = envoy_gateway(bed)?;
    let folder = bed.folder().join("envoy-gateway");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=slave", "sh", "-c", WITH_CERTIFICATES, "sh"]);
    command.arg(folder.join("certs")).arg(bed.folder().join("hosts"));
    command.arg(server.get_program()).args(server.get_args()).arg("server").arg("--config-path");
    command.arg(folder.join("config.yaml"));
    command.envs(server.get_envs().filter_map(|(name, value)| Some((name, value?))));
    for (name, _) in server.get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    Ok(command)
}

/// Where the server listens for its Envoys once it has started.
pub(crate) fn xds_address(bed: &Bed) -> anyhow::Result<SocketAddr> {
    bed.gateway_address(18000)
}

/// Waits until Envoy Gateway has taken its class.
pub(crate) async fn accept_class(bed: &Bed) -> anyhow::Result<()> {
    let accepted = |class: &serde_json::Value| condition(class, "Accepted") == Some("True");
    bed.wait_for("gateway.networking.k8s.io/v1", "GatewayClass", "envoy-gateway", "is accepted", accepted).await?;
    Ok(())
}

impl Bed {
    /// Makes what a cluster with nodes would have for a Gateway of Envoy Gateway: a Service with an address, a workload that is
    /// available, and its Pod, all at the host `gateway` or the Gateway's own ([`Bed::own_data_plane`]). Only then does Envoy Gateway write an address to the Gateway and say
    /// that it is programmed.
    ///
    /// As in a cluster, the Service leads ports below 1024 to those 10000 above. Envoy binds the listeners' own
    /// ports here; two Gateways that share a host must not share a port.
    pub async fn publish_gateway(&self, namespace: &str, name: &str, ports: &[u16]) -> anyhow::Result<()> {
        let pod_labels = [
            ("app.kubernetes.io/name", "envoy"),
            ("app.kubernetes.io/component", "proxy"),
            ("app.kubernetes.io/managed-by", "envoy-gateway"),
            ("gateway.envoyproxy.io/owning-gateway-namespace", namespace),
            ("gateway.envoyproxy.io/owning-gateway-name", name),
        ];
        let labels = BTreeMap::from(pod_labels);
        let host = self.data_plane(namespace, name)?;
        let object = format!("envoy-{namespace}-{name}");
        let metadata = json!({"name": object, "namespace": NAMESPACE, "labels": labels});
        let containers = json!([{"name": "envoy", "image": format!("envoy:{ENVOY_VERSION}")}]);
        let ports = ports
            .iter()
            .map(|port| json!({"name": format!("tcp-{port}"), "port": port, "targetPort": pod_port(*port)}));
        let ports: Vec<_> = ports.collect();
        let specs = [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"type": "LoadBalancer", "selector": labels, "ports": ports}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
                "spec": {"selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}}),
        ];
        let statuses = [
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "status": {"loadBalancer": {"ingress": [{"ip": host.address()}]}}}),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata,
                "status": {"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0,
                    "numberReady": 1, "numberAvailable": 1}}),
        ];
        for spec in specs {
            self.apply(&spec.to_string()).await?;
        }
        for status in statuses {
            self.apply_status(&status.to_string()).await?;
        }
        self.run_as_pod(&host, NAMESPACE, &object, &pod_labels).await
    }
}

/// Envoy Gateway's Envoys need no privilege in a cluster, so listeners' ports that would need one are others in the Pods.
fn pod_port(port: u16) -> u16 {
    if port < 1024 { port + 10_000 } else { port }
}

fn envoy_gateway(bed: &Bed) -> anyhow::Result<Command> {
    let mut command = bed.host("gateway")?.command(portreeve_programs::find("envoy-gateway")?);
    command.env("ENVOY_GATEWAY_NAMESPACE", NAMESPACE).env("KUBECONFIG", bed.kubeconfig()).env("HOME", bed.folder());
    Ok(command)
}

fn class(drain: Duration) -> String {
    let drain = drain.as_secs();
    format!(
        "\
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {{name: envoy, namespace: {NAMESPACE}}}
spec:
  provider: {{type: Host, host: {{envoyVersion: {ENVOY_VERSION}}}}}
  shutdown: {{drainTimeout: {drain}s}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: envoy-gateway}}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {{group: gateway.envoyproxy.io, kind: EnvoyProxy, name: envoy, namespace: {NAMESPACE}}}
"
    )
}

fn configuration(bed: &Bed) -> serde_json::Value {
    let folder = bed.folder().join("envoy-gateway");
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
        "provider": {"type": "Custom", "custom": {
            "resource": {"type": "Kubernetes", "kubernetes": {"leaderElection": {"disable": true}}},
            "infrastructure": {"type": "Host", "host": {
                "configHome": folder.join("config"),
                "dataHome": folder.join("data"),
                "stateHome": folder.join("state"),
                "runtimeDir": folder.join("run"),
            }},
        }},
    })
}
