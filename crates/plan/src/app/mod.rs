//! NebariApp: parsed once, then claims, objects, status.

mod clients;
mod conditions;
mod contested;
mod entry_status;
mod import;
mod legacy;
mod login;
mod lower;
mod migration;
mod render;
mod status;
mod tcp;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use portreeve_api::NebariApp;
use portreeve_api::nebari_app::{NebariAppStatus, RouteManagement, Routing};
use portreeve_names::{Hostname, InvalidHostname};

use crate::claim::{GatewayName, Owner, OwnerKind};
use crate::object::OwnerIdentity;
use crate::view::View;

pub(crate) use conditions::has_key;
pub(crate) use legacy::{is_legacy_entry, removal};
pub(crate) use login::{ClientOwners, may_go, removal as client_removal};
use lower::Section;
pub(crate) use lower::{AppCase, lower};
pub(crate) use migration::{Farewell, farewell, left_behind};
pub(crate) use render::{Rendered, render};
pub(crate) use status::status;
pub(crate) use tcp::Entry;

/// A NebariApp, as far as planning asks about it.
pub(crate) struct App<'a> {
    pub(crate) source: &'a NebariApp,
    pub(crate) owner: Arc<Owner>,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) gateway: GatewayName,
    /// Absent: the app asks for no routing, and claims nothing.
    pub(crate) web: Option<Web<'a>>,
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) auth: Auth,
}

/// How an app is served over HTTP.
pub(crate) struct Web<'a> {
    pub(crate) hostname: Result<Hostname, InvalidHostname>,
    pub(crate) certificate: CertificateSource<'a>,
    pub(crate) management: RouteManagement,
    pub(crate) routing: &'a Routing,
}

/// Where the certificate of an app's own HTTPS listener comes from, or why it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateSource<'a> {
    /// TLS is off: the app is on the Gateway's plain HTTP section.
    Disabled,
    /// A Secret of the app's namespace that its owner made.
    Secret(&'a str),
    /// This ClusterIssuer.
    Issuer(&'a str),
    /// There is none: the app is on the Gateway's HTTPS section.
    Shared,
}

/// Who keeps visitors out who have not signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// Nobody.
    Disabled,
    /// The app itself.
    App,
    /// The gateway: no route without a policy.
    Gateway,
}

impl<'a> App<'a> {
    pub(crate) fn from_resource(source: &'a NebariApp, view: &View<'a>) -> Self {
        let (namespace, name) = (text(source.metadata.namespace.as_ref()), text(source.metadata.name.as_ref()));
        let spec = &source.spec;
        let owner = Owner {
            kind: OwnerKind::NebariApp,
            namespace: namespace.into(),
            name: name.into(),
            created: source.metadata.creation_timestamp.as_ref().map(|time| time.0),
        };
        let web = spec.routing.as_ref().map(|routing| Web {
            hostname: Hostname::parse(&spec.hostname),
            certificate: CertificateSource::of(routing, view.world.config.cluster_issuer.as_deref()),
            management: routing.route_management,
            routing,
        });
        let entries = spec.routing.iter().flat_map(|routing| &routing.tcp).map(Entry::from_resource).collect();
        let auth = match &spec.auth {
            Some(auth) if auth.enabled && auth.enforce_at_gateway => Auth::Gateway,
            Some(auth) if auth.enabled => Auth::App,
            _ => Auth::Disabled,
        };
        let gateway = GatewayName::of_app(spec.gateway);
        Self { source, owner: Arc::new(owner), namespace, name, gateway, web, entries, auth }
    }

    pub(crate) fn identity(&self) -> OwnerIdentity<'a> {
        OwnerIdentity {
            kind: OwnerKind::NebariApp,
            namespace: self.namespace,
            name: self.name,
            uid: text(self.source.metadata.uid.as_ref()),
        }
    }

    pub(crate) fn metadata(&self) -> &'a ObjectMeta {
        &self.source.metadata
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.source.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn status(&self) -> Option<&'a NebariAppStatus> {
        self.source.status.as_ref()
    }
}

impl Web<'_> {
    pub(crate) fn is_tls(&self) -> bool {
        self.certificate != CertificateSource::Disabled
    }
}

impl<'a> CertificateSource<'a> {
    fn of(routing: &'a Routing, cluster_issuer: Option<&'a str>) -> Self {
        let tls = routing.tls.as_ref();
        if tls.is_some_and(|tls| !tls.enabled) {
            return Self::Disabled;
        }
        match (tls.and_then(|tls| tls.secret_name.as_deref()), cluster_issuer) {
            (Some(secret), _) => Self::Secret(secret),
            // Set but empty is how the contract's environment switches it off.
            (None, Some(issuer)) if !issuer.is_empty() => Self::Issuer(issuer),
            (None, _) => Self::Shared,
        }
    }
}

fn text(field: Option<&String>) -> &str {
    field.map_or("", String::as_str)
}
