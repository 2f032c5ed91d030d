//! Tenant: parsed once, then claims, objects, status.

mod checks;
mod dial;
mod dns;
mod entries;
mod isolation;
mod lower;
mod moving;
mod namespace;
mod networking;
mod overrides;
mod parting;
mod provision;
mod quota;
mod render;
mod shards;
mod status;
mod values;
mod workload;

use std::sync::Arc;

use portreeve_api::names::tenant as derived;
use portreeve_api::tenant::TenantStatus;

use crate::claim::{Owner, OwnerKind};
use crate::object::OwnerIdentity;

pub(crate) use dial::dials;
pub(crate) use entries::{abandoned, render_gateways, takeovers};
pub(crate) use lower::{TenantCase, lower};
pub(crate) use parting::{Orphan, Parting, orphans, partings};
pub(crate) use render::{Rendered, render};
pub(crate) use shards::Shards;
pub(crate) use status::status;

/// A Tenant, as far as planning asks about it.
pub(crate) struct Tenant<'a> {
    pub(crate) source: &'a portreeve_api::Tenant,
    pub(crate) owner: Arc<Owner>,
    pub(crate) name: &'a str,
    /// Its virtual cluster's.
    pub(crate) namespace: String,
}

impl<'a> Tenant<'a> {
    pub(crate) fn from_resource(source: &'a portreeve_api::Tenant) -> Self {
        let name = source.metadata.name.as_deref().unwrap_or_default();
        let owner = Owner {
            kind: OwnerKind::Tenant,
            namespace: "".into(),
            name: name.into(),
            created: source.metadata.creation_timestamp.as_ref().map(|time| time.0),
        };
        let namespace = source.spec.target_namespace.clone().unwrap_or_else(|| derived::default_namespace(name));
        Self { source, owner: Arc::new(owner), name, namespace }
    }

    pub(crate) fn identity(&self) -> OwnerIdentity<'a> {
        OwnerIdentity {
            kind: OwnerKind::Tenant,
            namespace: "",
            name: self.name,
            uid: self.source.metadata.uid.as_deref().unwrap_or_default(),
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.source.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn status(&self) -> Option<&'a TenantStatus> {
        self.source.status.as_ref()
    }
}
