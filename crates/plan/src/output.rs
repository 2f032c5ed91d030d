use serde::Serialize;
use serde_json::Value;

use crate::login::{ClientProvision, ClientRemoval};

/// What must be written to make the world as its owners want it; empty when it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Owners that lack the contract's finalizer: it is added to each before anything is written for it. Only with
    /// [`crate::Config::guard_deletion`].
    pub guard: Vec<ObjectRef>,
    /// Before the applies.
    pub copies: Vec<SecretCopy>,
    /// Complete server-side-apply bodies, in the order in which they must be written; only those that are due.
    ///
    /// All are applied by [`FIELD_MANAGER`] with `force`: on an object that Portreeve made nobody else owns these
    /// fields, and of a shared Gateway only the entries of tenants are in the body.
    pub apply: Vec<Apply>,
    /// Once for each Gateway that the former operator has put tenants' entries on, before the applies.
    pub takeovers: Vec<Takeover>,
    /// After the applies.
    pub patches: Vec<Patch>,
    /// The Helm client's work, after the applies and before the deletions; never two steps of one release.
    pub releases: Vec<ReleaseStep>,
    /// After the patches.
    pub delete: Vec<ObjectRef>,
    /// Last.
    pub statuses: Vec<StatusWrite>,
    /// Events to record; only on transitions, so none in a settled world.
    pub events: Vec<Event>,
    /// Owners that are being deleted and of which nothing is left: the contract's finalizer may go.
    pub release: Vec<ObjectRef>,
    /// API servers of tenants to dial under their public names, at an interval: no write, and the same as long as the
    /// world is. What comes of it is [`crate::World::dialled`].
    pub dials: Vec<ApiServerDial>,
    /// What to ask the identity provider for, beside everything else; what becomes of it comes back as
    /// [`crate::World::provisions`]. It stands here until that is so, and again when it has to be done anew.
    pub provision: Vec<ClientProvision>,
    /// What to remove at the identity provider, likewise; it comes back as [`crate::World::removals`].
    pub deprovision: Vec<ClientRemoval>,
    /// When to plan again although nothing has changed.
    pub wake_at: Option<jiff::Timestamp>,
}

/// The field manager of everything that Portreeve applies, as it stands in `metadata.managedFields`.
pub const FIELD_MANAGER: &str = "portreeve";

/// Names one object. `Ord` by API version, kind, namespace, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Group and version, as in a manifest.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for kinds that have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

/// One server-side apply.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Apply {
    /// The object.
    pub object: ObjectRef,
    /// All fields that Portreeve wants to own on this object, with `apiVersion`, `kind` and `metadata`.
    pub body: Value,
}

/// One Secret to copy, so that whoever issues certificates finds the present one in its new place and keeps it.
///
/// The source is read afresh, since the world need not have its values. The target gets the source's type and values, and
/// the annotations and labels of which the key begins with `cert-manager.io/` or `controller.cert-manager.io/`; no owner,
/// since Secrets stay when their app goes. It is only ever created: where it is there by now, or the source is gone,
/// nothing is done and the next plan says how to go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SecretCopy {
    /// The source.
    pub from: ObjectRef,
    /// The target.
    pub to: ObjectRef,
}

/// One JSON patch (RFC 6902) of an object that is somebody else's: entries of its lists that were made for an owner go.
///
/// Every `remove` comes after a `test` of what it removes, so the patch as a whole is refused when the object has
/// changed since it was read. That is no failure: the next plan is made from the object as it is then.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Patch {
    /// The object.
    pub object: ObjectRef,
    /// The operations, in their order.
    pub operations: Vec<Value>,
}

/// What the Helm client has to do to one release.
///
/// The shell does it beside the rest of the plan, at most once at a time for each release, and backs off when it
/// fails. One that has begun is brought to its end although a later plan has it no more: while the Helm client works, its
/// record says so and no step is planned. After a success nothing is done until the world shows the new record. What
/// failed last it says in [`crate::World::failed_releases`], until the step is another one or succeeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReleaseStep {
    /// For whom.
    pub owner: ObjectRef,
    /// Namespace of the release.
    pub namespace: String,
    /// Name of the release.
    pub name: String,
    /// What to do.
    pub action: ReleaseAction,
}

/// What the Helm client does to a release.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum ReleaseAction {
    /// `helm upgrade --install`, with five revisions kept and without waiting for the workload. A release that an earlier
    /// client left in a `pending-…` status is given up first.
    Install {
        /// The chart, as in [`crate::Provisioner::Helm`].
        chart: String,
        /// Its version.
        version: String,
        /// Its values.
        values: Value,
        /// Of chart, version and values: the value of the label [`VALUES_LABEL`], with which the release is marked
        /// (`--labels`).
        digest: String,
    },
    /// `helm uninstall`. A release that is not there is none to remove: that is success.
    Uninstall,
}

/// Label of a release that says what it was installed with: see [`ReleaseAction::Install`].
pub const VALUES_LABEL: &str = "portreeve.dev/values";

/// Entries of a Gateway that another field manager owns and that are Portreeve's from now on, or they would stay when
/// Portreeve leaves them out.
///
/// The shell reads the Gateway afresh and patches it with [`Takeover::operations`]; a refused patch (the Gateway has
/// changed since) is no failure, since the next plan says the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Takeover {
    /// The Gateway.
    pub object: ObjectRef,
    /// The names of the entries.
    pub entries: Vec<String>,
}

/// A tenant's API server, and how it should be reached under its public name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiServerDial {
    /// The Tenant.
    pub tenant: ObjectRef,
    /// The public name, to be sent as SNI.
    pub host: String,
    /// Namespace and name of the API server's own Service, and its port: the certificate that it shows is the right one.
    pub service: (String, String, u16),
    /// Namespace and name of the Service of the Gateway's data plane, if it can be told.
    pub data_plane: Option<(String, String)>,
    /// The Gateway's addresses.
    pub addresses: Vec<String>,
    /// The port of the Gateway's listener.
    pub port: u16,
}

/// One status to write, whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatusWrite {
    /// The object.
    pub object: ObjectRef,
    /// The value of its `status`.
    pub status: Value,
}

/// One event to record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Event {
    /// The object that it is about.
    pub about: ObjectRef,
    /// Whether a person should look.
    pub warning: bool,
    /// Why, for programs.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

impl SecretCopy {
    /// To another namespace, under the same name.
    pub(crate) fn of(from: &str, to: &str, name: &str) -> Self {
        let secret = |namespace: &str| ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
        };
        Self { from: secret(from), to: secret(to) }
    }
}

impl Plan {
    /// Whether there is nothing to write; [`Plan::wake_at`] may still be set, and the identity provider may still be asked.
    pub fn is_empty(&self) -> bool {
        self.guard.is_empty()
            && self.copies.is_empty()
            && self.apply.is_empty()
            && self.takeovers.is_empty()
            && self.patches.is_empty()
            && self.releases.is_empty()
            && self.delete.is_empty()
            && self.statuses.is_empty()
            && self.events.is_empty()
            && self.release.is_empty()
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}
