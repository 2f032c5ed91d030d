//! What makes a tenant's virtual cluster: the Helm client, Flux, or somebody else; never two of them at once.
//!
//! All of them know the release under the tenant's name, so that one can take it over from another without a break. The
//! Helm client is not asked while a `HelmRelease` of Flux is there; that goes only once it is suspended, so that Flux
//! leaves the release where it is. Flux is not asked while the Helm client is at work.

use jiff::Timestamp;
use portreeve_api::flux::FluxStatus;
use portreeve_api::names::tenant as derived;
use portreeve_api::tenant::Vcluster;
use serde_json::{Value, json};

use super::render::Rendering;
use super::values::{Exposure, fault, knows_gateways, values};
use crate::body::{self, FLUX_SOURCE_V1, HELM_RELEASE_V2};
use crate::condition::{Finding, Reason};
use crate::object::{Key, Kind, Live};
use crate::output::{ReleaseAction, ReleaseStep};
use crate::release::{Release, digest};
use crate::wanted::foreign;
use crate::world::{FluxCharts, Provisioner};

/// How many revisions of a release are kept.
const MAX_HISTORY: u32 = 5;
/// How often Flux looks whether all is as it should be.
const FLUX_INTERVAL: &str = "10m";
/// The layer of an OCI artifact that is a chart.
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Reasons of Flux for a `HelmRelease` that waits for something else.
const FLUX_WAITS: [&str; 3] = ["SourceNotReady", "DependencyNotReady", "Progressing"];

/// What makes a virtual cluster.
pub(super) const PROVISION: [Kind; 4] = [Kind::ConfigMap, Kind::OciRepository, Kind::HelmRepository, Kind::HelmRelease];

/// What becomes of a virtual cluster, as far as the plan and the tenant's status need to know.
#[derive(Default)]
pub(crate) struct Provision {
    /// The Helm client's work.
    pub(crate) step: Option<ReleaseStep>,
    /// Why the virtual cluster is not as it is asked for.
    pub(super) failure: Option<Finding>,
    /// The version of the chart, where that cannot project a Gateway.
    pub(super) too_old: Option<String>,
    /// When whoever is at work on the release is taken to have died.
    pub(crate) wake_at: Option<Timestamp>,
}

impl<'a> Rendering<'_, '_, 'a> {
    /// Wants what makes the virtual cluster. What cannot be asked for leaves everything as it is.
    pub(super) fn provision(&mut self, exposure: &Exposure<'_>) {
        let config = &self.view.world.config;
        if config.provisioner == Provisioner::Nobody {
            return;
        }
        let vcluster = self.tenant.source.spec.vcluster.as_ref();
        if let Some(fault) = vcluster.and_then(|vcluster| fault(vcluster, &config.allowed_overrides)) {
            self.rendered.provision.failure = Some(Reason::InvalidSpec.because(fault));
            self.keep(&PROVISION);
            return;
        }
        let version = version(vcluster, &config.provisioner);
        let knows = knows_gateways(version);
        self.rendered.provision.too_old = version.filter(|_| !knows && exposure.apps.is_some()).map(str::to_owned);
        let values = values(vcluster, exposure, knows);
        let version = version.unwrap_or_default();
        match &config.provisioner {
            Provisioner::Nobody => {}
            Provisioner::External => self.publish(version, &values),
            Provisioner::Helm { chart, .. } => self.install(chart, version, values),
            Provisioner::Flux(charts) => self.flux(charts, version, values),
        }
    }

    /// The values for whoever provisions.
    fn publish(&mut self, version: &str, values: &Value) {
        if self.hands_over_from_flux() {
            return;
        }
        let key = self.values_key();
        let mut body = body::object(&key, "v1", self.metadata(), Value::Null);
        // JSON is YAML.
        body["data"] = json!({ "values.yaml": format!("{values:#}\n") });
        if !version.is_empty() {
            body["data"]["version"] = version.into();
        }
        if !self.add(key, body) {
            self.fails_for_foreign(Kind::ConfigMap);
        }
    }

    fn install(&mut self, chart: &str, version: &str, values: Value) {
        if self.is_foreign(Kind::HelmRelease) || self.hands_over_from_flux() {
            return;
        }
        let release = self.release();
        if let Some(until) = release.and_then(|release| release.busy_until(self.view.now)) {
            self.rendered.provision.wake_at = Some(until);
            return;
        }
        let digest = digest(chart, version, &values);
        if release.is_some_and(|release| release.status == "deployed" && release.digest == Some(&digest)) {
            return;
        }
        let (namespace, name) = (self.tenant.namespace.clone(), derived::release(self.tenant.name));
        let failed = self.view.world.failed_releases.get(&(namespace.clone(), name.clone()));
        self.rendered.provision.failure = failed.map(|why| failure(why));
        let action = if release.is_some_and(|release| release.status == "uninstalling") {
            ReleaseAction::Uninstall
        } else {
            ReleaseAction::Install { chart: chart.to_owned(), version: version.to_owned(), values, digest }
        };
        let owner = self.tenant.identity().object_ref();
        self.rendered.provision.step = Some(ReleaseStep { owner, namespace, name, action });
    }

    fn flux(&mut self, charts: &FluxCharts, version: &str, values: Value) {
        let is_oci = charts.url.starts_with("oci://");
        let source = self.flux_key(if is_oci { Kind::OciRepository } else { Kind::HelmRepository });
        let release = self.flux_key(Kind::HelmRelease);
        let served = &self.view.world.served;
        if let Some(why) = [source.kind, release.kind].into_iter().find_map(|kind| kind.unserved(served)) {
            self.rendered.provision.failure = Some(failure(&why));
            return;
        }
        let is_there = self.view.live(&release).is_some();
        let busy = self.release().and_then(|release| release.busy_until(self.view.now));
        if let Some(until) = busy.filter(|_| !is_there) {
            self.rendered.provision.wake_at = Some(until);
            return;
        }
        let spec = source_spec(charts, version, is_oci);
        let body = body::object(&source, FLUX_SOURCE_V1, self.metadata(), spec);
        if !self.add(source.clone(), body) {
            return self.fails_for_foreign(source.kind);
        }
        let spec = self.release_spec(charts, version, &source, values);
        let body = body::object(&release, HELM_RELEASE_V2, self.metadata(), spec);
        if !self.add(release.clone(), body) {
            return self.fails_for_foreign(Kind::HelmRelease);
        }
        self.rendered.provision.failure = self.flux_fault(&source).or_else(|| self.flux_fault(&release));
    }

    fn release_spec(&self, charts: &FluxCharts, version: &str, source: &Key, values: Value) -> Value {
        // The contract does not wait for the workload, and tries again for ever.
        let action = json!({ "disableWait": true, "remediation": { "retries": -1 } });
        let mut spec = json!({
            "interval": FLUX_INTERVAL,
            "releaseName": derived::release(self.tenant.name),
            "maxHistory": MAX_HISTORY,
            "install": action,
            "upgrade": action,
        });
        let reference = json!({ "kind": source.kind.as_str(), "name": source.name });
        if source.kind == Kind::OciRepository {
            spec["chartRef"] = reference;
        } else {
            spec["chart"]["spec"] = json!({ "chart": charts.chart, "version": version, "sourceRef": reference });
        }
        spec["values"] = values;
        spec
    }

    /// What Flux says is wrong with one of its objects, once it has looked at it as it is wanted.
    fn flux_fault(&self, key: &Key) -> Option<Finding> {
        let status: Option<&FluxStatus> = match self.view.live(key)? {
            Live::OciRepository(object) => object.status.as_ref(),
            Live::HelmRepository(object) => object.status.as_ref(),
            Live::HelmRelease(object) => object.status.as_ref(),
            _ => None,
        };
        let wanted = self.wanted.generation(key);
        let ready = status?.conditions.iter().find(|condition| condition.type_ == "Ready")?;
        let is_current = ready.observed_generation.is_none_or(|observed| observed >= wanted);
        let is_fault = ready.status == "False" && is_current && !FLUX_WAITS.contains(&ready.reason.as_str());
        is_fault.then(|| failure(&ready.message))
    }

    /// Whether Flux still has the release. A `HelmRelease` that was made for the tenant is suspended first, and then taken
    /// away, so that Flux does not uninstall what somebody else goes on with.
    fn hands_over_from_flux(&mut self) -> bool {
        let key = self.flux_key(Kind::HelmRelease);
        let Some(live @ Live::HelmRelease(object)) = self.view.live(&key) else { return false };
        if !live.maker().is(self.tenant.identity()) {
            return false;
        }
        if object.spec.fields.get("suspend") != Some(&Value::Bool(true)) {
            let mut spec = object.spec.fields.clone();
            spec.insert("suspend".to_owned(), true.into());
            let body = body::object(&key, HELM_RELEASE_V2, self.metadata(), spec.into());
            self.wanted.add_settled(key, body);
        }
        true
    }

    /// Whether somebody else has an object of Flux of the tenant's name, so that nothing may be done beside it.
    fn is_foreign(&mut self, kind: Kind) -> bool {
        let key = self.flux_key(kind);
        let is_foreign = self.view.live(&key).is_some_and(|live| !live.maker().is(self.tenant.identity()));
        if is_foreign {
            let why = foreign(&key, "tenant");
            self.rendered.blocked.push((key, why));
            self.fails_for_foreign(kind);
        }
        is_foreign
    }

    fn fails_for_foreign(&mut self, kind: Kind) {
        self.rendered.provision.failure = self.rendered.blocked(kind).map(|foreign| failure(&foreign.message));
    }

    fn release(&self) -> Option<Release<'a>> {
        self.view.release(&self.tenant.namespace, &derived::release(self.tenant.name))
    }

    fn flux_key(&self, kind: Kind) -> Key {
        Key::new(kind, &self.tenant.namespace, derived::release(self.tenant.name))
    }

    fn values_key(&self) -> Key {
        Key::new(Kind::ConfigMap, &self.tenant.namespace, derived::values(self.tenant.name))
    }
}

/// In the contract's words.
fn failure(why: &str) -> Finding {
    Reason::ProvisioningFailed.because(format!("installing vCluster: {why}"))
}

/// The version of the chart, if the platform or the tenant says it.
fn version<'v>(vcluster: Option<&'v Vcluster>, provisioner: &'v Provisioner) -> Option<&'v str> {
    let own = vcluster.and_then(|vcluster| vcluster.version.as_deref()).filter(|version| !version.is_empty());
    own.or(match provisioner {
        Provisioner::Nobody | Provisioner::External => None,
        Provisioner::Helm { version, .. } | Provisioner::Flux(FluxCharts { version, .. }) => Some(version),
    })
}

fn source_spec(charts: &FluxCharts, version: &str, is_oci: bool) -> Value {
    let mut spec = json!({ "interval": FLUX_INTERVAL, "url": charts.url });
    if is_oci {
        // A tag may have no plus sign; Helm writes it so.
        spec["ref"] = json!({ "tag": version.replace('+', "_") });
        spec["layerSelector"] = json!({ "mediaType": CHART_LAYER, "operation": "copy" });
    }
    spec
}
