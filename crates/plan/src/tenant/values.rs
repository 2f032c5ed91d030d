//! The values of a tenant's virtual cluster, as the vCluster chart takes them.

use portreeve_api::tenant::Vcluster;
use serde_json::{Map, Value, json};

use super::overrides::{self, coalesce, enforce};
use crate::claim::GatewayName;

/// The first versions of the chart that know Gateways and HTTPRoutes: major and minor. Earlier ones refuse values that
/// name them.
const KNOWS_GATEWAYS: (u64, u64) = (0, 35);

/// Under which names a virtual cluster is reached.
#[derive(Default)]
pub(super) struct Exposure<'a> {
    /// Host name and URL of its API server.
    pub(super) api: Option<(String, String)>,
    /// The Gateway of its apps.
    pub(super) apps: Option<Projection<'a>>,
}

/// A Gateway as the tenant sees it: under the same name for ever, whichever it is.
pub(super) struct Projection<'a> {
    pub(super) gateway: &'a GatewayName,
    /// Its name in the virtual namespace `default`.
    pub(super) name: &'a str,
    /// The host names that the tenant's routes may have.
    pub(super) hosts: String,
}

/// What is wrong with what a tenant says of its virtual cluster; `more` are the paths that the platform allows it to set.
pub(super) fn fault(vcluster: &Vcluster, more: &[String]) -> Option<String> {
    let versions = [("version", &vcluster.version), ("kubernetesVersion", &vcluster.kubernetes_version)];
    let malformed = versions.into_iter().find_map(|(field, version)| {
        let version = version.as_ref().filter(|version| !version.is_empty() && !overrides::is_version(version))?;
        Some(format!("invalid spec.vcluster.{field} {version:?}: it must be one version, such as 0.35.2"))
    });
    malformed.or_else(|| overrides::fault(vcluster.values_overrides.as_ref()?, more))
}

/// Whether a version of the chart can project a Gateway. One that is not told, or that says nothing, is trusted to.
pub(super) fn knows_gateways(version: Option<&str>) -> bool {
    let mut numbers = version.unwrap_or_default().trim_start_matches('v').split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= KNOWS_GATEWAYS,
        _ => true,
    }
}

/// What the chart is given. The tenant's overrides win over the platform's values, and what keeps tenants apart over both.
pub(super) fn values(vcluster: Option<&Vcluster>, exposure: &Exposure<'_>, knows_gateways: bool) -> Value {
    let law = law(exposure, knows_gateways);
    let mut values = law.clone();
    let kubernetes = vcluster.and_then(|vcluster| vcluster.kubernetes_version.as_deref());
    if let Some(tag) = kubernetes.filter(|tag| !tag.is_empty()) {
        let distro = json!({ "controlPlane": { "distro": { "k8s": { "image": { "tag": tag } } } } });
        enforce(&mut values, fields(distro));
    }
    if let Some(overrides) = vcluster.and_then(|vcluster| vcluster.values_overrides.clone()) {
        values = coalesce(overrides, values);
    }
    enforce(&mut values, law);
    values.into()
}

/// The tenant's names, and what no tenant may undo. NetworkPolicies add up, so those of a tenant could allow it more than
/// the platform's: they stay in the virtual cluster.
fn law(exposure: &Exposure<'_>, knows_gateways: bool) -> Map<String, Value> {
    let mut law = json!({ "sync": { "toHost": { "networkPolicies": { "enabled": false } } } });
    if let Some((host, url)) = &exposure.api {
        law["controlPlane"]["proxy"]["extraSANs"] = json!([host]);
        law["exportKubeConfig"]["server"] = url.as_str().into();
    }
    if let Some(projection) = exposure.apps.as_ref().filter(|_| knows_gateways) {
        law["sync"]["toHost"]["gatewayApi"] = json!({
            "enabled": true,
            "httpRoutes": { "enabled": true },
            "tlsRoutes": { "enabled": false },
            "gateways": { "enabled": false },
        });
        law["sync"]["fromHost"]["gateways"] = projection.values();
    }
    fields(law)
}

impl Projection<'_> {
    /// `sync.fromHost.gateways`
    fn values(&self) -> Value {
        let Self { gateway, name, hosts } = self;
        let from_all = json!({ "from": "All" });
        json!({
            "enabled": true,
            "mappings": { "byName": { gateway.to_string(): format!("default/{name}") } },
            "allowedRoutes": {
                "defaultVirtualNamespacePolicy": from_all,
                // An entry for a Gateway replaces the default whole, so it says the policy once more.
                "overrides": [{
                    "hostNamespace": &*gateway.namespace,
                    "name": &*gateway.name,
                    "virtualNamespacePolicy": from_all,
                    "allowedHostnames": [hosts],
                }],
            },
            "sanitize": { "certificateRefs": true },
        })
    }
}

fn fields(value: Value) -> Map<String, Value> {
    if let Value::Object(fields) = value { fields } else { Map::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposure(gateway: &GatewayName) -> Exposure<'_> {
        let hosts = "*.acme.apps.example.com".to_owned();
        Exposure {
            api: Some(("acme.api.example.com".to_owned(), "https://acme.api.example.com:443".to_owned())),
            apps: Some(Projection { gateway, name: "kubespaces-apps", hosts }),
        }
    }

    fn vcluster(overrides: Value) -> Vcluster {
        Vcluster { values_overrides: Some(fields(overrides)), ..Vcluster::default() }
    }

    /// kubespaces-networking: TLSRoute sync is off, and a tenant's routes never change when its Gateway does.
    #[test]
    fn a_gateway_is_projected_under_the_same_name_wherever_it_is() {
        let shard = GatewayName::new("gateways", "shard-2");
        let values = values(None, &exposure(&shard), true);
        let gateways = &values["sync"]["fromHost"]["gateways"];
        assert_eq!(gateways["mappings"]["byName"], json!({"gateways/shard-2": "default/kubespaces-apps"}));
        assert_eq!(gateways["allowedRoutes"]["overrides"][0]["allowedHostnames"], json!(["*.acme.apps.example.com"]));
        assert_eq!(values["sync"]["toHost"]["gatewayApi"]["tlsRoutes"]["enabled"], false);
        assert_eq!(values["controlPlane"]["proxy"]["extraSANs"], json!(["acme.api.example.com"]));
    }

    #[test]
    fn what_keeps_tenants_apart_wins_over_what_the_platform_lets_a_tenant_set() {
        let shard = GatewayName::new("gateways", "shard-2");
        let plain = values(None, &exposure(&shard), true);
        for overrides in [
            json!({"sync": null, "controlPlane": null, "exportKubeConfig": null}),
            json!({"sync": {"toHost": {"gatewayApi": {"tlsRoutes": {"enabled": true}}, "networkPolicies": null}}}),
            json!({"sync": {"fromHost": {"gateways": {"sanitize": false, "allowedRoutes": {"overrides": []}}}}}),
            json!({"controlPlane": {"proxy": {"extraSANs": ["other.api.example.com"]}}, "exportKubeConfig": "x"}),
        ] {
            assert_eq!(values(Some(&vcluster(overrides.clone())), &exposure(&shard), true), plain, "{overrides}");
        }
    }

    #[test]
    fn the_tenants_version_of_kubernetes_is_the_tag_unless_it_overrides_that() {
        let mut vcluster = Vcluster { kubernetes_version: Some("v1.34.0".to_owned()), ..Vcluster::default() };
        let tag = |vcluster: &Vcluster| {
            values(Some(vcluster), &Exposure::default(), true)["controlPlane"]["distro"]["k8s"]["image"]["tag"].clone()
        };
        assert_eq!(tag(&vcluster), "v1.34.0");
        let other = json!({"controlPlane": {"distro": {"k8s": {"image": {"tag": "v1.35.0"}}}}});
        vcluster.values_overrides = Some(fields(other));
        assert_eq!(tag(&vcluster), "v1.35.0");
    }

    #[test]
    fn charts_before_0_35_get_no_values_that_they_do_not_know() {
        for (version, knows) in
            [("0.34.9", false), ("v0.19.0", false), ("0.35.0", true), ("1.0.0", true), ("next", true)]
        {
            assert_eq!(knows_gateways(Some(version)), knows, "{version}");
        }
        assert!(knows_gateways(None));
        let shard = GatewayName::new("gateways", "shard-2");
        let values = values(None, &exposure(&shard), false);
        assert_eq!(values["sync"], json!({"toHost": {"networkPolicies": {"enabled": false}}}));
    }

    #[test]
    fn a_version_is_one_version() {
        for version in ["", "0.35.2", "v0.35.0-rc.1+x"] {
            let vcluster = Vcluster { version: Some(version.to_owned()), ..Vcluster::default() };
            assert_eq!(fault(&vcluster, &[]), None, "{version}");
        }
        for version in ["--post-renderer=x", ">=0.1", "1 2", "1\n2", "*"] {
            let vcluster = Vcluster { kubernetes_version: Some(version.to_owned()), ..Vcluster::default() };
            assert!(
                fault(&vcluster, &[]).is_some_and(|fault| fault.contains("spec.vcluster.kubernetesVersion")),
                "{version}"
            );
        }
    }
}
