use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RouteManagement;
use crate::schema_parts::{conditions, integer, port};
use crate::shared::{Claim, GatewayReference};

/// What became of an app.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NebariAppStatus {
    /// What is so and what is not, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The `metadata.generation` that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The host name that is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Part of the contract; not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_ref: Option<GatewayReference>,
    /// Part of the contract; not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<SecretReference>,
    /// Hash of the settings with which the OIDC client was made, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_config_hash: Option<String>,
    /// Hash of all that the provider has for the app, 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_clients_hash: Option<String>,
    /// The IDs of the clients that the provider has for the app. Nobody else gets one of them while it stands here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub auth_clients: Vec<String>,
    /// Whether sign-in is being switched on for an app that runs and stays reachable meanwhile. Absent from the moment in
    /// which the gateway has enforced it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auth_switching_on: bool,
    /// What the landing page shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_discovery: Option<ServiceDiscovery>,
    /// One of each entry of `spec.routing.tcp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub tcp: Vec<TcpStatus>,
    /// Where the app's host name is served over HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https: Option<HttpsStatus>,
    /// The names and ports that the app holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Claim>,
}

/// A Secret of any namespace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    pub name: String,
    /// Namespace of the Secret; default: the app's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What the landing page shows of an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDiscovery {
    /// Whether the app is listed.
    pub enabled: bool,
    /// Title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Sentence under the title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where the entry leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Name or URL of the icon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Icon on a light background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon_light: Option<String>,
    /// Icon on a dark background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon_dark: Option<String>,
    /// Heading under which the app is listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Place in the list, 0 to 1000, lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "integer::<0, 1000>")]
    pub priority: Option<u16>,
    /// Who may see the entry: `public` or `private`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// Groups whose members may see a private entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_groups: Vec<String>,
}

/// What became of one entry of `spec.routing.tcp`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpStatus {
    /// Name of the entry.
    pub name: String,
    /// Port on the Gateway.
    #[schemars(schema_with = "port")]
    pub port: u16,
    /// What the gateway does with TLS.
    pub mode: TlsMode,
    /// Who makes the routes.
    pub route_management: RouteManagement,
    /// The object that has the listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener_ref: Option<ListenerReference>,
    /// The listeners of the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub listeners: Vec<TcpListenerStatus>,
    /// Addresses of the Gateway (IP addresses and host names), at which the port is reached from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Rules of routes of another kind that `routeImport` could not take over; at most 16 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub not_imported: Vec<NotImported>,
    /// Host name or IP address at which the port is reached from inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_cluster_address: Option<String>,
    /// What is so and what is not, one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// A rule that `routeImport` could not take over.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotImported {
    /// Name of the IngressRouteTCP.
    pub name: String,
    /// The rule's `match`.
    #[serde(rename = "match")]
    pub rule: String,
    /// Why.
    pub message: String,
}

/// What a gateway does with the TLS of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum TlsMode {
    /// It terminates TLS with its own certificate.
    Terminate,
    /// It passes TLS through to the backend untouched.
    Passthrough,
}

/// The object that has a listener: a ListenerSet or a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerReference {
    /// API group of the object.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    pub namespace: String,
}

/// One listener of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpListenerStatus {
    /// Name of the listener in its object: the `sectionName` of a route.
    pub name: String,
    /// Its host name; absent when it takes every name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// How many routes are attached to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_routes: Option<i32>,
    /// `metadata.generation` of its object in which this listener last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

/// Where an app's host name is served over HTTPS.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpsStatus {
    /// The object that has the listener.
    pub listener_ref: ListenerReference,
    /// Name of the listener in that object: the `sectionName` of a route.
    pub section_name: String,
    /// The host name.
    pub hostname: String,
    /// Port on the Gateway.
    #[schemars(schema_with = "port")]
    pub port: u16,
    /// Addresses of the Gateway (IP addresses and host names).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// `metadata.generation` of the object in which the listener last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}
