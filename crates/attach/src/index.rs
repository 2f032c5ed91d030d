use std::collections::{BTreeMap, HashMap, HashSet};

use gateway_api::referencegrants::ReferenceGrant;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::Objects;

/// The API group of everything in Gateway API.
pub(crate) const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The label that the API server puts on every namespace, with its name; nobody can change it there.
pub(crate) const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The label by which an EndpointSlice names its Service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Namespace and name.
pub(crate) type Name<'a> = (&'a str, &'a str);

/// What is looked up by key, so that no step walks all objects for each object.
pub(crate) struct Index<'a> {
    namespaces: HashMap<&'a str, &'a BTreeMap<String, String>>,
    secrets: HashMap<Name<'a>, &'a Secret>,
    services: HashMap<Name<'a>, &'a Service>,
    slices: HashMap<Name<'a>, Vec<&'a EndpointSlice>>,
    grants: HashSet<Grant<'a>>,
}

/// Something that refers across namespaces: its kind (in the group of Gateway API) and its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Referrer<'a> {
    pub kind: &'static str,
    pub namespace: &'a str,
}

/// Something of the core group that is referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Referent<'a> {
    pub kind: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// One line of a ReferenceGrant: `from_kind` of `from_namespace` may name `to_kind` in `namespace`.
#[derive(PartialEq, Eq, Hash)]
struct Grant<'a> {
    from_kind: &'a str,
    from_namespace: &'a str,
    to_kind: &'a str,
    namespace: &'a str,
    /// Absent: every object of the kind.
    name: Option<&'a str>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(objects: &'a Objects) -> Self {
        Self {
            namespaces: objects.namespaces.iter().filter_map(|namespace| labels(namespace)).collect(),
            secrets: objects.secrets.iter().map(|secret| (name_of(&secret.metadata), &**secret)).collect(),
            services: objects.services.iter().map(|service| (name_of(&service.metadata), &**service)).collect(),
            slices: slices_by_service(objects),
            grants: objects.reference_grants.iter().flat_map(|grant| lines(grant)).collect(),
        }
    }

    /// A label of a namespace. A namespace that is not among the objects has its name as its only label.
    pub(crate) fn namespace_label(&self, namespace: &'a str, key: &str) -> Option<&'a str> {
        if key == NAMESPACE_NAME_LABEL {
            return Some(namespace);
        }
        self.namespaces.get(namespace)?.get(key).map(String::as_str)
    }

    pub(crate) fn secret(&self, name: Name<'a>) -> Option<&'a Secret> {
        self.secrets.get(&name).copied()
    }

    pub(crate) fn service(&self, name: Name<'a>) -> Option<&'a Service> {
        self.services.get(&name).copied()
    }

    pub(crate) fn slices(&self, service: Name<'a>) -> &[&'a EndpointSlice] {
        self.slices.get(&service).map_or(&[], Vec::as_slice)
    }

    /// Whether `from` may name `to`: in one namespace always, elsewhere by a ReferenceGrant of the namespace of `to`.
    pub(crate) fn permits(&self, from: Referrer<'a>, to: Referent<'a>) -> bool {
        let line = |name| Grant {
            from_kind: from.kind,
            from_namespace: from.namespace,
            to_kind: to.kind,
            namespace: to.namespace,
            name,
        };
        from.namespace == to.namespace
            || self.grants.contains(&line(Some(to.name)))
            || self.grants.contains(&line(None))
    }
}

/// Namespace and name of an object.
pub(crate) fn name_of(metadata: &ObjectMeta) -> Name<'_> {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// The order of precedence among equals: the oldest, then `namespace/name`; an object without a creation time is
/// the newest.
pub(crate) fn age(metadata: &ObjectMeta) -> impl Ord + use<'_> {
    let created: Option<&Time> = metadata.creation_timestamp.as_ref();
    (created.is_none(), created, name_of(metadata))
}

fn labels(namespace: &Namespace) -> Option<(&str, &BTreeMap<String, String>)> {
    Some((namespace.metadata.name.as_deref()?, namespace.metadata.labels.as_ref()?))
}

fn slices_by_service(objects: &Objects) -> HashMap<Name<'_>, Vec<&EndpointSlice>> {
    let mut slices: HashMap<_, Vec<_>> = HashMap::new();
    for slice in &objects.endpoint_slices {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL));
        if let Some(service) = service {
            slices.entry((name_of(&slice.metadata).0, service.as_str())).or_default().push(&**slice);
        }
    }
    slices
}

fn lines(grant: &ReferenceGrant) -> impl Iterator<Item = Grant<'_>> {
    let namespace = name_of(&grant.metadata).0;
    let from = grant.spec.from.iter().filter(|from| from.group == GATEWAY_GROUP);
    from.flat_map(move |from| {
        let to = grant.spec.to.iter().filter(|to| to.group.is_empty());
        to.map(move |to| Grant {
            from_kind: &from.kind,
            from_namespace: &from.namespace,
            to_kind: &to.kind,
            namespace,
            name: to.name.as_deref(),
        })
    })
}
