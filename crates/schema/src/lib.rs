//! What an API server does to an object before it stores it: defaults, validation and rules, by the schema of its kind.
//!
//! For manifests that no API server has seen. The order is that of the API server: [`Schema::apply_defaults`], then
//! [`Schema::check`]; [`Schema::unknown_fields`] says what it would prune.
//!
//! Room rule: values in, values out. It knows the language of schemas and no kind.

mod defaults;
mod path;
mod rules;
mod structure;
mod unknown;
mod walk;

pub use path::{Path, Segment};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::rules::Rules;
use crate::structure::Structure;

/// The schema of one kind, ready to use; making one costs milliseconds, so keep it.
#[derive(Debug)]
pub struct Schema {
    root: JSONSchemaProps,
    structure: Structure,
    rules: Rules,
}

/// Why there is no schema: a mistake of whoever wrote the schema, never of whoever wrote an object.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSchema {
    /// No version of the definition is stored, or the stored one has no schema.
    #[error("the definition '{0}' has no schema for the version that it stores")]
    Missing(String),
    /// The schema of a Rust type has something that Kubernetes does not know.
    #[error("the schema of '{type_name}' is not one of Kubernetes: {source}")]
    Foreign {
        /// The Rust type.
        type_name: &'static str,
        /// What it has.
        source: serde_json::Error,
    },
    /// A keyword has a value that it cannot have, such as a pattern that is no regular expression.
    #[error("the schema has a keyword that is wrong: {0}")]
    Keyword(Box<jsonschema::ValidationError<'static>>),
    /// A CEL rule cannot be read.
    #[error("the schema has a rule that is not CEL, '{rule}': {source}")]
    Rule {
        /// The rule.
        rule: String,
        /// Why it cannot be read.
        source: cel::ParseErrors,
    },
}

/// Why an API server would refuse an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field that is wrong; for a field that is missing, the object that lacks it.
    pub path: Path,
    /// What is wrong.
    pub message: String,
    /// What to write instead, where that is known: the nearest value, or what the schema says of the field.
    pub hint: Option<String>,
}

/// A field that an API server would drop, because the schema does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The field.
    pub path: Path,
    /// The field of the schema with nearly the same name.
    pub nearest: Option<String>,
}

impl Schema {
    /// The schema of the version that `crd` stores, with the fields of `metadata` that every object has.
    pub fn of(crd: &CustomResourceDefinition) -> Result<Self, InvalidSchema> {
        let stored = crd.spec.versions.iter().find(|version| version.storage);
        let mut root = stored
            .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.clone())
            .ok_or_else(|| InvalidSchema::Missing(crd.metadata.name.clone().unwrap_or_default()))?;
        let properties = root.properties.get_or_insert_default();
        let text = || JSONSchemaProps { type_: Some("string".to_owned()), ..JSONSchemaProps::default() };
        properties.entry("apiVersion".to_owned()).or_insert_with(text);
        properties.entry("kind".to_owned()).or_insert_with(text);
        properties.insert("metadata".to_owned(), props_of::<ObjectMeta>()?);
        Self::new(root)
    }

    /// The schema of a kind that has no definition because Kubernetes itself has it, such as Service.
    pub fn of_type<T: JsonSchema>() -> Result<Self, InvalidSchema> {
        Self::new(props_of::<T>()?)
    }

    fn new(root: JSONSchemaProps) -> Result<Self, InvalidSchema> {
        Ok(Self { structure: Structure::of(&root)?, rules: Rules::of(&root)?, root })
    }

    /// Puts defaults where fields are absent, and drops a null where null is no value, or puts the default there.
    pub fn apply_defaults(&self, object: &mut Value) {
        defaults::apply(&self.root, object);
    }

    /// Everything for which an API server would refuse `object`, once defaults have been applied; empty when it
    /// would accept it. In the order of the object, rules last.
    ///
    /// A rule that compares with the object's former state (`oldSelf`) holds: a manifest has none.
    pub fn check(&self, object: &Value) -> Vec<Fault> {
        let mut faults = self.structure.check(&self.root, object);
        self.rules.check(&self.root, object, &mut faults);
        faults
    }

    /// The fields of `object` that an API server would drop.
    pub fn unknown_fields(&self, object: &Value) -> Vec<Warning> {
        unknown::fields(&self.root, object)
    }
}

/// The schema of a Rust type, as Kubernetes writes schemas: without references.
fn props_of<T: JsonSchema>() -> Result<JSONSchemaProps, InvalidSchema> {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    serde_json::from_value(settings.into_generator().into_root_schema_for::<T>().to_value())
        .map_err(|source| InvalidSchema::Foreign { type_name: std::any::type_name::<T>(), source })
}

#[cfg(test)]
mod tests;
