//! The kinds of objects that standalone reads: how they are called, what an API server would demand of them, and what
//! they become.

use std::sync::{Arc, LazyLock};

use gateway_api::gatewayclasses::GatewayClass;
use gateway_api::gateways::Gateway;
use gateway_api::httproutes::HttpRoute;
use gateway_api::listenersets::ListenerSet;
use gateway_api::referencegrants::ReferenceGrant;
use gateway_api::tlsroutes::TlsRoute;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::CustomResourceExt;
use portreeve_api::{
    AdminNetworkPolicy, Certificate, ClusterNetworkPolicy, IngressRouteTcp, NebariApp, SecurityPolicy, Tenant,
};
use portreeve_plan::ObjectRef;
use portreeve_schema::{InvalidSchema, Path, Schema, Segment};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::admission;

/// An object of a known kind, parsed.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each variant is named after the kind that it holds")]
pub enum Typed {
    NebariApp(Arc<NebariApp>),
    Tenant(Arc<Tenant>),
    Namespace(Arc<Namespace>),
    Service(Arc<Service>),
    EndpointSlice(Arc<EndpointSlice>),
    Secret(Arc<Secret>),
    GatewayClass(Arc<GatewayClass>),
    Gateway(Arc<Gateway>),
    ListenerSet(Arc<ListenerSet>),
    HttpRoute(Arc<HttpRoute>),
    TlsRoute(Arc<TlsRoute>),
    ReferenceGrant(Arc<ReferenceGrant>),
    Certificate(Arc<Certificate>),
    SecurityPolicy(Arc<SecurityPolicy>),
    NetworkPolicy(Arc<NetworkPolicy>),
    IngressRouteTcp(Arc<IngressRouteTcp>),
    ClusterNetworkPolicy(Arc<ClusterNetworkPolicy>),
    AdminNetworkPolicy(Arc<AdminNetworkPolicy>),
}

/// One kind that is read from manifests.
pub struct Kind {
    /// As in `kind`.
    pub name: &'static str,
    /// As in `apiVersion`; empty for the core group.
    pub group: &'static str,
    /// The versions that are accepted. All have the shape of the first, as which they are read.
    pub versions: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// `None` for a foreign kind of which only some fields are read.
    schema: Option<LazyLock<Result<Schema, InvalidSchema>>>,
    parse: fn(Value) -> Result<Typed, ParseFault>,
}

/// Why an object cannot be read as what its kind says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseFault {
    /// Which field.
    pub path: Path,
    /// What is wrong with it.
    pub message: String,
}

const GATEWAY_API: &str = "gateway.networking.k8s.io";

static KINDS: [Kind; 18] = [
    Kind {
        name: "NebariApp",
        group: "reconcilers.nebari.dev",
        versions: &["v1"],
        namespaced: true,
        schema: Some(LazyLock::new(|| Schema::of(&NebariApp::crd()))),
        parse: |object| parse(object, Typed::NebariApp),
    },
    Kind {
        name: "Tenant",
        group: "kubespaces.io",
        versions: &["v1alpha1"],
        namespaced: false,
        schema: Some(LazyLock::new(|| Schema::of(&Tenant::crd()))),
        parse: |object| parse(object, Typed::Tenant),
    },
    Kind {
        name: "Namespace",
        group: "",
        versions: &["v1"],
        namespaced: false,
        schema: Some(LazyLock::new(Schema::of_type::<Namespace>)),
        parse: |object| parse(object, Typed::Namespace),
    },
    Kind {
        name: "Service",
        group: "",
        versions: &["v1"],
        namespaced: true,
        schema: Some(LazyLock::new(Schema::of_type::<Service>)),
        parse: |object| parse(object, Typed::Service),
    },
    Kind {
        name: "EndpointSlice",
        group: "discovery.k8s.io",
        versions: &["v1"],
        namespaced: true,
        schema: Some(LazyLock::new(Schema::of_type::<EndpointSlice>)),
        parse: |object| parse(object, Typed::EndpointSlice),
    },
    Kind {
        name: "Secret",
        group: "",
        versions: &["v1"],
        namespaced: true,
        schema: Some(LazyLock::new(Schema::of_type::<Secret>)),
        parse: |object| parse(object, Typed::Secret),
    },
    Kind {
        name: "GatewayClass",
        group: GATEWAY_API,
        versions: &["v1", "v1beta1"],
        namespaced: false,
        schema: Some(LazyLock::new(|| admission::schema_of(&GatewayClass::crd()))),
        parse: |object| parse(object, Typed::GatewayClass),
    },
    Kind {
        name: "Gateway",
        group: GATEWAY_API,
        versions: &["v1", "v1beta1"],
        namespaced: true,
        schema: Some(LazyLock::new(|| admission::schema_of(&Gateway::crd()))),
        parse: |object| parse(object, Typed::Gateway),
    },
    Kind {
        name: "ListenerSet",
        group: GATEWAY_API,
        versions: &["v1"],
        namespaced: true,
        schema: Some(LazyLock::new(|| admission::schema_of(&ListenerSet::crd()))),
        parse: |object| parse(object, Typed::ListenerSet),
    },
    Kind {
        name: "HTTPRoute",
        group: GATEWAY_API,
        versions: &["v1", "v1beta1"],
        namespaced: true,
        schema: Some(LazyLock::new(|| admission::schema_of(&HttpRoute::crd()))),
        parse: |object| parse(object, Typed::HttpRoute),
    },
    Kind {
        name: "TLSRoute",
        group: GATEWAY_API,
        versions: &["v1", "v1alpha3", "v1alpha2"],
        namespaced: true,
        schema: Some(LazyLock::new(|| admission::schema_of(&TlsRoute::crd()))),
        parse: |object| parse(object, Typed::TlsRoute),
    },
    Kind {
        name: "ReferenceGrant",
        group: GATEWAY_API,
        versions: &["v1", "v1beta1"],
        namespaced: true,
        schema: Some(LazyLock::new(|| admission::schema_of(&ReferenceGrant::crd()))),
        parse: |object| parse(object, Typed::ReferenceGrant),
    },
    Kind {
        name: "Certificate",
        group: "cert-manager.io",
        versions: &["v1"],
        namespaced: true,
        schema: None,
        parse: |object| parse(object, Typed::Certificate),
    },
    Kind {
        name: "SecurityPolicy",
        group: "gateway.envoyproxy.io",
        versions: &["v1alpha1"],
        namespaced: true,
        schema: None,
        parse: |object| parse(object, Typed::SecurityPolicy),
    },
    Kind {
        name: "NetworkPolicy",
        group: "networking.k8s.io",
        versions: &["v1"],
        namespaced: true,
        schema: Some(LazyLock::new(Schema::of_type::<NetworkPolicy>)),
        parse: |object| parse(object, Typed::NetworkPolicy),
    },
    Kind {
        name: "IngressRouteTCP",
        group: "traefik.io",
        versions: &["v1alpha1"],
        namespaced: true,
        schema: None,
        parse: |object| parse(object, Typed::IngressRouteTcp),
    },
    Kind {
        name: "ClusterNetworkPolicy",
        group: "policy.networking.k8s.io",
        versions: &["v1alpha2"],
        namespaced: false,
        schema: None,
        parse: |object| parse(object, Typed::ClusterNetworkPolicy),
    },
    Kind {
        name: "AdminNetworkPolicy",
        group: "policy.networking.k8s.io",
        versions: &["v1alpha1"],
        namespaced: false,
        schema: None,
        parse: |object| parse(object, Typed::AdminNetworkPolicy),
    },
];

impl Kind {
    /// The kind of this group and name.
    pub fn find(group: &str, name: &str) -> Option<&'static Self> {
        Self::all().find(|kind| kind.group == group && kind.name == name)
    }

    /// Every kind.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        KINDS.iter()
    }

    /// The `apiVersion` as which its objects are read.
    pub fn api_version(&self) -> String {
        let version = self.versions.first().copied().unwrap_or_default();
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// What an API server would demand; `None` for a foreign kind of which only some fields are read.
    pub fn schema(&self) -> Option<Result<&Schema, &InvalidSchema>> {
        self.schema.as_ref().map(|schema| LazyLock::force(schema).as_ref())
    }

    /// Reads an object of this kind; its `apiVersion` must be [`Kind::api_version`].
    pub fn parse(&self, object: Value) -> Result<Typed, ParseFault> {
        (self.parse)(object)
    }
}

/// The group and the version of an `apiVersion`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// The uid of an object whose manifest has none. It is the same after a restart, so that what the object owns stays its
/// own.
pub fn stable_uid(object: &ObjectRef) -> String {
    let (group, _) = split_api_version(&object.api_version);
    let namespace = object.namespace.as_deref().unwrap_or_default();
    let hash = Sha256::digest(format!("{group}\n{}\n{namespace}\n{}", object.kind, object.name));
    let (number, _) = hash.split_at(16);
    let hex = number.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn parse<T: DeserializeOwned>(object: Value, typed: fn(Arc<T>) -> Typed) -> Result<Typed, ParseFault> {
    serde_path_to_error::deserialize(object).map(|object| typed(Arc::new(object))).map_err(|error| ParseFault {
        path: Path(error.path().iter().filter_map(segment).collect()),
        message: error.inner().to_string(),
    })
}

/// Steps that have no place in a manifest (enum variants, unknown ones) are left out.
fn segment(segment: &serde_path_to_error::Segment) -> Option<Segment> {
    match segment {
        serde_path_to_error::Segment::Seq { index } => Some(Segment::Index(*index)),
        serde_path_to_error::Segment::Map { key } => Some(Segment::Key(key.clone())),
        serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_can_be_used() {
        for kind in Kind::all() {
            if let Some(Err(error)) = kind.schema() {
                panic!("{}: {error}", kind.name);
            }
        }
    }

    #[test]
    fn kinds_are_found_by_group_and_name() {
        assert_eq!(Kind::find(GATEWAY_API, "Gateway").unwrap().api_version(), "gateway.networking.k8s.io/v1");
        assert_eq!(Kind::find("", "Secret").unwrap().api_version(), "v1");
        assert!(Kind::find("networking.istio.io", "Gateway").is_none());
        assert_eq!(split_api_version("v1"), ("", "v1"));
        assert_eq!(split_api_version("a.b/v1beta1"), ("a.b", "v1beta1"));
    }
}
