//! Parts of schemas that the derive cannot say.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Lower-case DNS names of any number of labels; no wildcard.
pub(crate) const DNS_NAME: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// One lower-case DNS label (RFC 1123); its length, at most 63, is a rule of its own.
pub(crate) const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// A TCP port.
pub(crate) fn port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535 })
}

/// A whole number between two bounds, both included.
pub(crate) fn integer<const MIN: u32, const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
}

/// An object of any content.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Conditions as `metav1.Condition` declares them, one of each type.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": { "type": "string", "format": "date-time" },
                "message": { "type": "string", "maxLength": 32768 },
                "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
                "reason": { "type": "string", "minLength": 1, "maxLength": 1024, "pattern": CONDITION_REASON },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
                "type": { "type": "string", "maxLength": 316, "pattern": CONDITION_TYPE },
            },
        },
    })
}
