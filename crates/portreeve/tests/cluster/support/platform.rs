//! What a platform has before an operator runs: the definitions of our kinds, the shared Gateway and its certificate.

use portreeve_testkit::clients::{Answer, http_get, https_get};
use portreeve_testkit::{Bed, Builder, Channel, condition, fixtures, tls};
use serde_json::Value;

use super::{CERTIFICATES, GATEWAY_API};

/// The ClusterIssuer of the shared Gateway's certificate. Apps get theirs from it when the operator is told so.
pub(crate) const ISSUER: &str = "selfsigned-issuer";

/// A bed with the shared Gateway `nebari-gateway`, its certificate from cert-manager, and no operator.
pub(crate) struct Platform {
    pub(crate) bed: Bed,
}

impl Platform {
    /// Starts every part and waits until the shared Gateway serves HTTP and HTTPS.
    pub(crate) async fn start(channel: Channel) -> anyhow::Result<Self> {
        Self::start_on(Bed::builder().gateway_api(channel)).await
    }

    /// The same with what a bed has besides.
    pub(crate) async fn start_on(bed: Builder) -> anyhow::Result<Self> {
        let bed = bed.with_controller_manager().with_cert_manager().with_envoy_gateway();
        let platform = Self::bare(bed).await?;
        platform.bed.apply(&issuer(ISSUER)).await?;
        platform.bed.apply(GATEWAY_CERTIFICATE).await?;
        platform.bed.apply(&fixtures::shared_gateway(true)).await?;
        platform.bed.publish_gateway("envoy-gateway-system", "nebari-gateway", &[80, 443]).await?;
        platform.wait_programmed("nebari-gateway").await?;
        Ok(platform)
    }

    /// Starts parts of a bed, with the definitions of our kinds and nothing else.
    pub(crate) async fn bare(bed: Builder) -> anyhow::Result<Self> {
        let bed = bed.start().await?;
        bed.define_own().await?;
        Ok(Self { bed })
    }

    /// Waits until Envoy Gateway says that a Gateway of the platform serves.
    pub(crate) async fn wait_programmed(&self, gateway: &str) -> anyhow::Result<()> {
        let name = format!("envoy-gateway-system/{gateway}");
        let programmed = |gateway: &Value| condition(gateway, "Programmed") == Some("True");
        self.bed.wait_for(GATEWAY_API, "Gateway", &name, "is programmed", programmed).await?;
        Ok(())
    }

    /// Asks the gateway over HTTPS on 443, whatever certificate it shows.
    pub(crate) async fn https(&self, name: &str, path: &str) -> anyhow::Result<Answer> {
        self.https_on(443, name, path).await
    }

    /// Asks the gateway over HTTPS.
    pub(crate) async fn https_on(&self, port: u16, name: &str, path: &str) -> anyhow::Result<Answer> {
        https_get(self.bed.gateway_address(port)?, name, path, tls::any_certificate()?).await
    }

    /// Asks the gateway over HTTP on 80.
    pub(crate) async fn http(&self, name: &str, path: &str) -> anyhow::Result<Answer> {
        http_get(self.bed.gateway_address(80)?, name, path).await
    }

    /// Waits until a Certificate of cert-manager is issued.
    pub(crate) async fn wait_issued(&self, name: &str) -> anyhow::Result<Value> {
        let ready = |certificate: &Value| condition(certificate, "Ready") == Some("True");
        self.bed.wait_for(CERTIFICATES, "Certificate", name, "is ready", ready).await
    }
}

/// A ClusterIssuer that lets every certificate sign itself.
pub(crate) fn issuer(name: &str) -> String {
    format!(
        "{{apiVersion: {CERTIFICATES}, kind: ClusterIssuer, metadata: {{name: {name}}}, spec: {{selfSigned: {{}}}}}}"
    )
}

const GATEWAY_CERTIFICATE: &str = "\
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: nebari-gateway-cert, namespace: envoy-gateway-system}
spec:
  secretName: nebari-gateway-tls
  dnsNames: [example.test, keycloak.example.test]
  issuerRef: {name: selfsigned-issuer, kind: ClusterIssuer}
";
