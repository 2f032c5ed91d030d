//! Tenants that go: their releases first, then everything outside their namespaces, these, and last the finalizers.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use portreeve_api::names::{labels, tenant as derived};
use portreeve_api::tenant::{TenantPhase, TenantStatus};

use super::namespace::belongs_to;
use super::{Tenant, TenantCase};
use crate::condition::Reason;
use crate::object::{Key, Kind, Maker, OwnerIdentity};
use crate::output::{Event, ObjectRef, ReleaseAction, ReleaseStep, StatusWrite};
use crate::view::View;
use crate::wanted::Wanted;
use crate::world::Provisioner;

/// What a tenant is told while it goes (the contract's words).
const TEARING_DOWN: &str = "Tearing down vCluster and namespace";

/// A tenant that goes.
pub(crate) struct Parting<'a> {
    owner: OwnerIdentity<'a>,
    status: Option<&'a TenantStatus>,
    generation: Option<i64>,
    is_guarded: bool,
    /// What the Helm client has to remove.
    pub(crate) steps: Vec<ReleaseStep>,
    /// Whether a release of it is left, removed or not.
    is_left: bool,
    failure: Option<String>,
    /// When whoever is at work on a release is taken to have died.
    pub(crate) wake_at: Option<Timestamp>,
}

/// Those that are being deleted.
pub(crate) fn partings<'a>(view: &View<'a>, cases: &[TenantCase<'a>]) -> Vec<Parting<'a>> {
    cases.iter().filter(|case| case.tenant.is_leaving()).map(|case| Parting::of(view, &case.tenant)).collect()
}

impl<'a> Parting<'a> {
    fn of(view: &View<'a>, tenant: &Tenant<'a>) -> Self {
        let mut parting = Self {
            owner: tenant.identity(),
            status: tenant.status(),
            generation: tenant.source.metadata.generation,
            is_guarded: tenant.source.metadata.finalizers.iter().flatten().any(|one| one == derived::FINALIZER),
            steps: Vec::new(),
            is_left: false,
            failure: None,
            wake_at: None,
        };
        let name = derived::release(tenant.name);
        for namespace in view.namespaces_with_release(&name) {
            if view.namespace(namespace).is_some_and(|found| belongs_to(found, tenant)) {
                parting.remove(view, namespace, &name);
            }
        }
        parting
    }

    /// A release that Flux has is removed by Flux, and one that the platform has installed itself by the platform.
    fn remove(&mut self, view: &View<'_>, namespace: &str, name: &str) {
        let Some(release) = view.release(namespace, name).filter(|release| !release.is_removed()) else { return };
        let is_of_flux = view.live(&Key::new(Kind::HelmRelease, namespace, name)).is_some();
        let is_helms = release.digest.is_some() || matches!(view.world.config.provisioner, Provisioner::Helm { .. });
        if is_of_flux || !is_helms {
            return;
        }
        self.is_left = true;
        if let Some(until) = release.busy_until(view.now) {
            self.wake_at = Some(self.wake_at.map_or(until, |earlier| earlier.min(until)));
            return;
        }
        let key = (namespace.to_owned(), name.to_owned());
        let failed = view.world.failed_releases.get(&key);
        self.failure =
            self.failure.take().or(failed.map(|why| format!("uninstalling vCluster release {name:?}: {why}")));
        let (owner, (namespace, name)) = (self.owner.object_ref(), key);
        self.steps.push(ReleaseStep { owner, namespace, name, action: ReleaseAction::Uninstall });
    }

    /// Whether something of this maker has to wait until a release is removed.
    pub(crate) fn holds(&self, maker: &Maker<'_>) -> bool {
        self.is_left && maker.is(self.owner)
    }

    /// The status of a tenant that cannot go yet, if it has to be written.
    pub(crate) fn status(&self) -> (Option<StatusWrite>, Option<Event>) {
        let before = self.status.cloned().unwrap_or_default();
        let message = self.failure.clone().unwrap_or_else(|| TEARING_DOWN.to_owned());
        let after = TenantStatus {
            phase: Some(TenantPhase::Deleting),
            message: Some(message.clone()),
            observed_generation: self.generation,
            ..before.clone()
        };
        if after == before {
            return (None, None);
        }
        let about = self.owner.object_ref();
        let event = self.failure.is_some().then(|| Event {
            about: about.clone(),
            warning: true,
            reason: Reason::ProvisioningFailed.as_str().to_owned(),
            message,
        });
        (Some(StatusWrite { object: about, status: serde_json::to_value(&after).unwrap_or_default() }), event)
    }

    pub(crate) fn owner(&self) -> ObjectRef {
        self.owner.object_ref()
    }

    /// Whether it stays until its finalizer is taken off.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Whether nothing of its releases, and no Secret of its certificate, is left.
    pub(crate) fn is_over(&self, orphans: &[Orphan<'_>]) -> bool {
        !self.is_left && orphans.iter().all(|orphan| orphan.tenant != self.owner.name)
    }
}

/// The Secret of a tenant's certificate that is not wanted any more. Issuers leave it where it is when the Certificate goes.
pub(crate) struct Orphan<'a> {
    tenant: &'a str,
    namespace: &'a str,
    name: &'a str,
    /// Whether the Certificate is gone; before that, the Secret would be made anew.
    pub(crate) is_due: bool,
}

/// The Secrets of certificates that nobody wants any more.
pub(crate) fn orphans<'a>(view: &View<'a>, wanted: &Wanted<'_, '_>) -> Vec<Orphan<'a>> {
    let tenants = view.world.tenants.iter().filter(|tenant| tenant.metadata.deletion_timestamp.is_none());
    let staying = tenants.filter_map(|tenant| tenant.metadata.name.as_deref()).collect();
    let secrets = view.world.secrets.iter();
    let mut orphans: Vec<Orphan<'a>> = secrets.filter_map(|secret| orphan(view, wanted, &staying, secret)).collect();
    orphans.sort_by_key(|orphan| (orphan.namespace, orphan.name));
    orphans
}

/// It bears the labels of the tenant, which the Certificate asks for, and the name that the contract gives it.
fn orphan<'a>(
    view: &View<'a>,
    wanted: &Wanted<'_, '_>,
    staying: &BTreeSet<&str>,
    secret: &'a Secret,
) -> Option<Orphan<'a>> {
    let metadata = &secret.metadata;
    let label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
    let tenant = label(labels::TENANT).filter(|_| label(labels::MANAGED_BY) == Some(labels::KUBESPACES_OPERATOR))?;
    let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
    let key = Key::new(Kind::Certificate, namespace, name);
    let is_absent =
        view.world.absent.iter().any(|absent| *absent.owner.name == *tenant && absent.owner.namespace.is_empty());
    // A certificate that is only away for a while, as with its Gateway, is not to be paid for anew.
    let may_come_back = view.world.config.tenant_apps.is_some() && staying.contains(tenant);
    if name != derived::apps_certificate(tenant) || wanted.is_wanted(&key) || is_absent || may_come_back {
        return None;
    }
    let is_due = view.certificate(namespace, name).is_none() && metadata.deletion_timestamp.is_none();
    Some(Orphan { tenant, namespace, name, is_due })
}

impl Orphan<'_> {
    pub(crate) fn object_ref(&self) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: Some(self.namespace.to_owned()),
            name: self.name.to_owned(),
        }
    }
}
