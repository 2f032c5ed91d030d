//! What more than one kind says in the same words.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema_parts::port;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// Name of the Service.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Port of the Service (not of its pods), 1 to 65535.
    #[schemars(schema_with = "port")]
    pub port: u16,
    /// Namespace of the Service; default: the namespace of the object that refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub namespace: Option<String>,
}

/// A Gateway of any namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayReference {
    /// Name of the Gateway.
    pub name: String,
    /// Namespace of the Gateway.
    pub namespace: String,
}

/// One granted claim: the record by which the holder of a name keeps it.
///
/// Written by Portreeve alone. A holder keeps a grant until it drops the name or is deleted, whatever the age of
/// others that want it. A name without a place is kept without Gateway and port: the place is free for others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The granted name: exact or `*.suffix`. Absent for a match-all listener, which holds its whole port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The Gateway on which it is granted; absent while the name has no place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayReference>,
    /// The port on which it is granted; absent while the name has no place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "port")]
    pub port: Option<u16>,
    /// When it was granted.
    pub since: Time,
}
