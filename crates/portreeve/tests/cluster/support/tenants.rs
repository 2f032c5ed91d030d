//! A platform that serves tenants: an API Gateway that passes TLS through and Gateways for their apps, each with an Envoy in a
//! host of its own.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, ensure};
use portreeve_testkit::clients::{Answer, https_get_under};
use portreeve_testkit::servers::{Server, echo};
use portreeve_testkit::{Bed, Host, TenantApiServer, condition, eventually, fixtures, tls};
use serde_json::{Value, json};

use super::{Expected, GATEWAY_API, PORT, Platform, WAY, has};

/// API version of Tenant.
pub(crate) const TENANTS: &str = "kubespaces.io/v1alpha1";

/// Where the tenants' Gateways are.
pub(crate) const GATEWAYS: &str = fixtures::TENANT_GATEWAYS;

/// The Gateway that passes TLS through to tenants' API servers.
pub(crate) const API_GATEWAY: &str = "kubespaces-api";

/// The first Gateway of tenants' apps.
pub(crate) const APPS_GATEWAY: &str = "kubespaces-apps";

/// The domain of both paths.
pub(crate) const DOMAIN: &str = "example.test";

/// What the operator is told.
pub(crate) const ARGUMENTS: &[&str] = &[
    "--cluster-issuer=selfsigned-issuer",
    "--tenant-api-domain=example.test",
    "--tenant-apps-domain=example.test",
    "--tenant-apps-cluster-issuer=selfsigned-issuer",
    "--tenant-provisioner=external",
];

/// The flag that gives the operator these settings, which it reads from a file.
pub(crate) fn settings(bed: &Bed, yaml: &str) -> anyhow::Result<String> {
    let path = bed.folder().join("tenants.yaml");
    std::fs::write(&path, yaml)?;
    Ok(format!("--tenant-settings={}", path.display()))
}

/// A tenant's app: its namespace on the host cluster with a Service `web`, as the virtual cluster would put it there.
pub(crate) struct Tenant<'p> {
    pub(crate) platform: &'p Platform,
    pub(crate) name: String,
    pub(crate) host: Host,
    _server: Server,
}

impl Platform {
    /// Adds the namespace of the tenants' Gateways, the API Gateway, and Gateways for apps.
    pub(crate) async fn add_tenant_gateways(&self, apps: &[&str]) -> anyhow::Result<()> {
        self.bed.apply(&fixtures::namespace(GATEWAYS)).await?;
        for name in std::iter::once(&API_GATEWAY).chain(apps) {
            self.bed.own_data_plane(GATEWAYS, name)?;
            let gateway = match *name {
                API_GATEWAY => fixtures::tenant_api_gateway(name, "Same"),
                name => fixtures::tenant_apps_gateway(name, 1),
            };
            self.bed.apply(&gateway).await?;
            self.bed.publish_gateway(GATEWAYS, name, &[80, 443]).await?;
        }
        for name in std::iter::once(&API_GATEWAY).chain(apps) {
            let programmed = |gateway: &Value| condition(gateway, "Programmed") == Some("True");
            let name = format!("{GATEWAYS}/{name}");
            self.bed.wait_for(GATEWAY_API, "Gateway", &name, "is programmed", programmed).await?;
        }
        Ok(())
    }

    /// Where a tenants' Gateway is reached.
    pub(crate) fn tenant_gateway(&self, name: &str) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::from((self.bed.data_plane(GATEWAYS, name)?.address(), 443)))
    }

    /// Asks an apps Gateway for a host over HTTPS, under a server name.
    pub(crate) async fn ask_tenants(&self, gateway: &str, server_name: &str, host: &str) -> anyhow::Result<Answer> {
        https_get_under(self.tenant_gateway(gateway)?, server_name, host, "/", tls::any_certificate()?).await
    }

    /// The names of the listeners of a tenants' Gateway; none while it is not there.
    pub(crate) async fn listeners(&self, gateway: &str) -> anyhow::Result<Vec<String>> {
        let found = self.bed.get(GATEWAY_API, "Gateway", &format!("{GATEWAYS}/{gateway}")).await?.unwrap_or_default();
        let listeners = found["spec"]["listeners"].as_array().into_iter().flatten();
        Ok(listeners.filter_map(|listener| Some(listener["name"].as_str()?.to_owned())).collect())
    }

    /// Waits until a Tenant's status is about its present spec and has all these conditions; returns the Tenant.
    pub(crate) async fn wait_tenant(&self, name: &str, expected: &[Expected<'_>]) -> anyhow::Result<Value> {
        let holds = |tenant: &Value| {
            let current = tenant["status"]["observedGeneration"] == tenant["metadata"]["generation"];
            current && expected.iter().all(|expected| has(tenant, *expected))
        };
        self.bed.wait_for(TENANTS, "Tenant", name, &format!("has {expected:?}"), holds).await
    }

    /// Waits until a Tenant is in a phase.
    pub(crate) async fn wait_phase(&self, name: &str, phase: &str) -> anyhow::Result<Value> {
        let holds = |tenant: &Value| tenant["status"]["phase"] == phase;
        self.bed.wait_for(TENANTS, "Tenant", name, &format!("is {phase}"), holds).await
    }
}

impl<'p> Tenant<'p> {
    /// Applies the Tenant, waits until its namespace is there, and puts the Service `web` of its apps into it.
    pub(crate) async fn new(platform: &'p Platform, name: &str) -> anyhow::Result<Self> {
        platform.bed.apply(&tenant(name, json!({}))).await?;
        let host = platform.bed.host(&format!("t-{name}"))?;
        let server = echo(&host, PORT, &format!("Welcome to {name}"))?;
        let tenant = Self { platform, name: name.to_owned(), host, _server: server };
        tenant.wait_namespace().await?;
        let service = fixtures::service_at(&tenant.namespace(), "web", PORT, tenant.host.address());
        platform.bed.apply(&service).await?;
        Ok(tenant)
    }

    /// Its namespace on the host cluster.
    pub(crate) fn namespace(&self) -> String {
        format!("kubespaces-tenant-{}", self.name)
    }

    /// Where its app `web` is served.
    pub(crate) fn hostname(&self) -> String {
        format!("web.{}.apps.{DOMAIN}", self.name)
    }

    /// What stands for a virtual cluster that needs no API server in a test: its Service with an endpoint, and its kubeconfig.
    pub(crate) async fn provision_stub(&self) -> anyhow::Result<()> {
        let (namespace, name) = (self.namespace(), &self.name);
        self.platform.bed.apply(&fixtures::service_at(&namespace, name, 443, self.host.address())).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": namespace, "name": format!("vc-{name}")}, "stringData": {"config": "{}"}});
        self.platform.bed.apply(&secret.to_string()).await
    }

    /// Puts into its namespace what a virtual cluster with this API server leaves there.
    pub(crate) async fn provision(&self, server: &TenantApiServer) -> anyhow::Result<()> {
        let url = format!("https://{}:443", self.api_hostname());
        self.platform.bed.apply(&server.exported(&self.namespace(), &self.name, &url)?).await
    }

    /// The public name of its API server.
    pub(crate) fn api_hostname(&self) -> String {
        format!("{}.api.{DOMAIN}", self.name)
    }

    /// An HTTPRoute of its namespace that leads to its Service `web`.
    pub(crate) fn route(&self, name: &str, gateway: &str, hostnames: &[&str]) -> String {
        Self::route_in(&self.namespace(), name, gateway, hostnames)
    }

    /// The same in another namespace.
    pub(crate) fn route_in(namespace: &str, name: &str, gateway: &str, hostnames: &[&str]) -> String {
        let spec = json!({"parentRefs": [{"name": gateway, "namespace": GATEWAYS}], "hostnames": hostnames,
            "rules": [{"backendRefs": [{"name": "web", "port": PORT}]}]});
        json!({"apiVersion": GATEWAY_API, "kind": "HTTPRoute",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec})
        .to_string()
    }

    /// Whether its server has given an answer.
    pub(crate) fn is_own(&self, answer: &Answer) -> bool {
        answer.status == 200 && answer.body.contains(&format!("\"Welcome to {}\"", self.name))
    }

    /// Waits until a Gateway leads a host to its server.
    pub(crate) async fn wait_served(&self, gateway: &str, hostname: &str) -> anyhow::Result<Answer> {
        eventually(format!("{hostname} is served by {} on {gateway}", self.name), WAY, async || {
            let answer = self.platform.ask_tenants(gateway, hostname, hostname).await?;
            ensure!(self.is_own(&answer), "{hostname} answers {answer:?}");
            Ok(answer)
        })
        .await
    }

    /// Waits until its listener is programmed and its app `web` served on a Gateway.
    pub(crate) async fn publish(&self, gateway: &str) -> anyhow::Result<()> {
        let listener = ("AppsRoutingReady", "True", "ListenersProgrammed");
        self.platform.wait_tenant(&self.name, &[listener]).await?;
        let hostname = self.hostname();
        self.platform.bed.apply(&self.route("web", gateway, &[&hostname])).await?;
        self.wait_served(gateway, &hostname).await?;
        Ok(())
    }

    /// Fails if any of these server names and hosts leads to its server.
    pub(crate) async fn ensure_not_served(&self, gateway: &str, names: &[(&str, &str)]) -> anyhow::Result<()> {
        for (server_name, host) in names {
            if let Ok(answer) = self.platform.ask_tenants(gateway, server_name, host).await {
                let what = format!("server name {server_name}, host {host}");
                ensure!(!answer.body.contains(&format!("Welcome to {}\"", self.name)), "{what} lead to {answer:?}");
            }
        }
        Ok(())
    }

    async fn wait_namespace(&self) -> anyhow::Result<()> {
        let is_its = |namespace: &Value| namespace["metadata"]["labels"]["kubespaces.io/tenant"] == *self.name;
        self.platform.bed.wait_for("v1", "Namespace", &self.namespace(), "is the tenant's", is_its).await?;
        Ok(())
    }
}

/// A Tenant; `spec` is added to what it needs.
pub(crate) fn tenant(name: &str, spec: Value) -> String {
    let mut tenant = json!({"apiVersion": TENANTS, "kind": "Tenant", "metadata": {"name": name}});
    tenant["spec"] = spec;
    tenant["spec"]["owner"] = "somebody@example.test".into();
    tenant.to_string()
}

/// Somebody adds a listener to a Gateway by hand.
pub(crate) async fn add_listener(platform: &Platform, gateway: &str, listener: Value) -> anyhow::Result<()> {
    edit(platform, gateway, async || Ok(json!([{"op": "add", "path": "/spec/listeners/-", "value": listener}]))).await
}

/// Somebody takes one away.
pub(crate) async fn remove_listener(platform: &Platform, gateway: &str, name: &str) -> anyhow::Result<()> {
    let removal = async || {
        let listeners = platform.listeners(gateway).await?;
        let place = listeners.iter().position(|one| one == name).context("the listener is there")?;
        let path = format!("/spec/listeners/{place}");
        let test = json!({"op": "test", "path": format!("{path}/name"), "value": name});
        Ok(json!([test, {"op": "remove", "path": path}]))
    };
    edit(platform, gateway, removal).await
}

/// The Gateway may change at the same time.
async fn edit(
    platform: &Platform,
    gateway: &str,
    operations: impl AsyncFn() -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    eventually(format!("Gateway {gateway} is edited"), WAY, async || {
        let mut command = platform.bed.kubectl()?;
        command.args(["patch", "gateway", gateway, "--namespace", GATEWAYS, "--type=json", "--patch"]);
        command.arg(operations().await?.to_string());
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(output.status.success(), "kubectl says {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    })
    .await
}

/// Runs a command with names that lead to an address, as DNS would.
pub(crate) fn with_hosts(command: &Command, hosts: &std::path::Path) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--mount", "sh", "-c", r#"mount --bind "$0" /etc/hosts && exec "$@""#]).arg(hosts);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    wrapped
}
