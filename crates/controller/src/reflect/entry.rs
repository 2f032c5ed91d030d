use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use portreeve_api::Claim;
use serde_json::{Value, json};

use super::kind::{Kind, KindName, Typed};
use super::trim::{trim, trim_metadata};

/// Names an object of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Empty for kinds that have none.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) object: Object,
    /// When this state was stored; 0 where the API server does not count.
    pub(crate) revision: u64,
}

/// An object, as far as it can be read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Readable(Typed),
    Unreadable(Box<Unreadable>),
}

/// An object that is not what its kind says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unreadable {
    pub(crate) metadata: ObjectMeta,
    /// What is wrong with it.
    pub(crate) fault: String,
    /// What its status says was granted to it.
    pub(crate) grants: Vec<Claim>,
}

impl Key {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self { namespace: text(&metadata.namespace), name: text(&metadata.name) }
    }
}

impl Entry {
    pub(crate) fn metadata(&self) -> &ObjectMeta {
        match &self.object {
            Object::Readable(typed) => typed.metadata(),
            Object::Unreadable(unreadable) => &unreadable.metadata,
        }
    }

    /// Tells the object from an earlier one of the same name.
    pub(crate) fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }
}

/// Reads what an API server has sent; never fails, since one bad object must not hide the others.
pub(crate) fn read(kind: &Kind, object: DynamicObject) -> (Key, Entry) {
    let DynamicObject { mut metadata, mut data, .. } = object;
    let revision = metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default();
    trim_metadata(kind.name, &mut metadata);
    let grants = grants(kind.name, &data);
    trim(kind.name, &metadata, &mut data);
    if let Value::Object(fields) = &mut data {
        fields.insert("apiVersion".to_owned(), kind.parsed_as().into());
        fields.insert("kind".to_owned(), kind.kind.into());
        fields.insert("metadata".to_owned(), json!({}));
    }
    let key = Key::of(&metadata);
    let object = match Typed::parse(kind.name, data, metadata.clone()) {
        Ok(typed) => Object::Readable(typed),
        Err(fault) => {
            let fault = without_values(kind.name, &fault);
            Object::Unreadable(Box::new(Unreadable { metadata, fault: fault.into_owned(), grants }))
        }
    };
    (key, Entry { object, revision })
}

/// What an owner was granted, read apart from the rest: it counts also when the rest cannot be read.
fn grants(kind: KindName, data: &Value) -> Vec<Claim> {
    if !matches!(kind, KindName::NebariApp | KindName::Tenant) {
        return Vec::new();
    }
    let recorded = data["status"]["claims"].as_array().into_iter().flatten();
    recorded.filter_map(|claim| serde_json::from_value(claim.clone()).ok()).collect()
}

/// What a Secret holds is not for logs.
fn without_values(kind: KindName, fault: &serde_json::Error) -> Cow<'static, str> {
    if kind == KindName::Secret { "it is not as a Secret must be".into() } else { fault.to_string().into() }
}
