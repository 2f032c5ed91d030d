//! A tenant's API server.

use std::net::SocketAddr;

use anyhow::Context;
use k8s_openapi::ByteString;
use kube::Client;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::bed::{self, Bed, START};
use crate::network::Host;
use crate::objects::eventually;
use crate::part::Running;
use crate::pki::Pki;

/// Where it listens.
const PORT: u16 = 8443;

/// A second kube-apiserver with a store of its own, in a host of its own: what a virtual cluster is to the network. It knows
/// people by their client certificates. It ends when this is dropped.
#[derive(Debug)]
pub struct TenantApiServer {
    host: Host,
    pki: Pki,
    _store: Running,
    _server: Running,
}

impl TenantApiServer {
    /// Starts it in the host `name`; its serving certificate is for `names`, and for its address.
    ///
    /// # Errors
    ///
    /// When it does not answer; then with what it printed last.
    pub async fn start(bed: &Bed, name: &str, names: &[&str]) -> anyhow::Result<Self> {
        let (host, folder) = (bed.host(name)?, bed.folder().join(name));
        let pki = Pki::create(&folder.join("pki"), names, &[host.address()])?;
        let store = Running::start_logged(bed::etcd(&host, &folder.join("etcd"))?, &folder.join("etcd.log"))?;
        let log = folder.join("api-server.log");
        let mut command = host.command(portreeve_programs::find("kube-apiserver")?);
        command.args([
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.97.0.0/16",
            "--authorization-mode=RBAC",
        ]);
        command.arg(format!("--secure-port={PORT}")).arg(format!("--advertise-address={}", host.address()));
        command.arg(format!("--cert-dir={}", folder.join("api-server").display()));
        for (flag, file) in [
            ("client-ca-file", "ca.crt"),
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("service-account-key-file", "service-account.pub"),
            ("service-account-signing-key-file", "service-account.key"),
        ] {
            command.arg(format!("--{flag}={}", pki.path(file).display()));
        }
        let server = Running::start_logged(command, &log)?;
        let started = Self { host, pki, _store: store, _server: server };
        let client = started.client().await?;
        let answers = eventually(format!("the API server of {name} answers"), START, async || {
            let request = hyper::Request::get("/readyz").body(Vec::new())?;
            Ok(client.request_text(request).await?)
        });
        answers.await.with_context(|| format!("it printed:\n{}", std::fs::read_to_string(&log).unwrap_or_default()))?;
        Ok(started)
    }

    /// Gives it another serving certificate, for `names` and its address; it takes that up by itself, soon.
    pub fn certify(&self, names: &[&str]) -> anyhow::Result<()> {
        self.pki.certify(names, &[self.host.address()])
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host.address(), PORT))
    }

    /// Its host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The certificate that it shows.
    pub fn certificate(&self) -> anyhow::Result<CertificateDer<'static>> {
        Ok(CertificateDer::from_pem_file(self.pki.path("server.crt"))?)
    }

    /// A kubeconfig of its administrator that needs no other file.
    pub fn kubeconfig(&self, server: &str) -> anyhow::Result<Value> {
        let file = |name: &str| anyhow::Ok(ByteString(std::fs::read(self.pki.path(name))?));
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "my-vcluster",
            "contexts": [{"name": "my-vcluster", "context": {"cluster": "my-vcluster", "user": "my-vcluster"}}],
            "clusters": [{"name": "my-vcluster",
                "cluster": {"server": server, "certificate-authority-data": file("ca.crt")?}}],
            "users": [{"name": "my-vcluster", "user": {
                "client-certificate-data": file("admin.crt")?, "client-key-data": file("admin.key")?}}],
        }))
    }

    /// A client that reaches it without a gateway.
    pub async fn client(&self) -> anyhow::Result<Client> {
        bed::client(self.kubeconfig(&format!("https://{}", self.address()))?).await
    }

    /// What a virtual cluster leaves in its namespace once it runs: a headless Service `name` whose port 443 leads to it, and the
    /// Secret `vc-<name>` with the kubeconfig, in which it has the address `server`.
    pub fn exported(&self, namespace: &str, name: &str, server: &str) -> anyhow::Result<String> {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443, "targetPort": PORT}]}});
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": namespace, "name": format!("vc-{name}")},
            "stringData": {"config": self.kubeconfig(server)?.to_string()}});
        Ok(format!("{service}\n---\n{}\n---\n{secret}", self.slice(namespace, name)))
    }

    /// The slice that leads a Service's port `https` to it.
    pub fn slice(&self, namespace: &str, service: &str) -> Value {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": namespace, "name": format!("{service}-1"),
                "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
            "endpoints": [{"addresses": [self.host.address()], "conditions": {"ready": true}}]})
    }
}
