use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use crate::{NebariApp, Tenant};

/// The definitions of our own kinds, as they are to be installed: first NebariApp, then Tenant.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [finish(NebariApp::crd()), finish(Tenant::crd())]
}

/// What the derive cannot say.
fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) else {
            continue;
        };
        forbid_null(root);
        declare_object_fields(root);
    }
    crd
}

/// The derive lets every optional field be null. The contract does not: the API server then prunes a null, or puts
/// the default in its place.
fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forbid_null(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        forbid_null(values);
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| forbid_null(property));
}

/// The API server implies these three fields; the contract spells them out.
fn declare_object_fields(root: &mut JSONSchemaProps) {
    let properties = root.properties.get_or_insert_default();
    for (name, type_) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
        properties
            .insert(name.to_owned(), JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() });
    }
}
