use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sign-in in front of an app.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.forwardAccessToken) || self.forwardAccessToken == false || (has(self.enforceAtGateway) && self.enforceAtGateway == true)",
    "message": "forwardAccessToken: true requires enforceAtGateway: true",
}]))]
pub struct Auth {
    /// Whether visitors must sign in.
    #[serde(default)]
    pub enabled: bool,
    /// Who signs visitors in.
    #[serde(default)]
    pub provider: AuthProvider,
    /// Path to which the provider sends visitors back; default: `/oauth2/callback`.
    #[serde(default, rename = "redirectURI", skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
    /// Secret with `client-id` and `client-secret` of a client that Portreeve does not make (`provisionClient: false`);
    /// default, and where there is none of that name: `<app>-oidc-client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_ref: Option<String>,
    /// OIDC scopes to ask for; default: `openid`, `profile`, `email`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Groups whose members may use the app.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Whether the OIDC client is made at the provider.
    #[serde(default = "yes")]
    pub provision_client: bool,
    /// Whether the gateway refuses visitors who have not signed in; otherwise the app does it itself.
    #[serde(default = "yes")]
    pub enforce_at_gateway: bool,
    /// Whether the gateway hands the visitor's access token to the app; needs `enforceAtGateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_access_token: Option<bool>,
    /// Requests that are refused instead of being sent to the provider, by request header.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny_redirect: Vec<DenyRedirectHeader>,
    /// Issuer of a `generic-oidc` provider.
    #[serde(default, rename = "issuerURL", skip_serializing_if = "Option::is_none")]
    pub issuer_url: Option<String>,
    /// A public client for a single-page app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spa_client: Option<SpaClient>,
    /// A public client for the device flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_flow_client: Option<DeviceFlowClient>,
    /// Groups and mappers to make in Keycloak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keycloak_config: Option<KeycloakConfig>,
    /// Whether other apps may exchange their tokens for tokens of this app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_exchange: Option<TokenExchange>,
}

/// Who signs visitors in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuthProvider {
    /// The platform's Keycloak.
    #[default]
    Keycloak,
    /// The provider at `issuerURL`, where clients are not made by Portreeve.
    GenericOidc,
}

impl AuthProvider {
    /// As it stands in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keycloak => "keycloak",
            Self::GenericOidc => "generic-oidc",
        }
    }
}

/// A request header by which a request is refused instead of being sent to the provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DenyRedirectHeader {
    /// Name of the header.
    #[schemars(length(min = 1))]
    pub name: String,
    /// How `value` is compared.
    #[serde(default, rename = "type")]
    pub match_type: HeaderMatchType,
    /// What the header is compared with.
    #[schemars(length(min = 1))]
    pub value: String,
}

/// How the value of a header is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
pub enum HeaderMatchType {
    /// The whole value.
    #[default]
    Exact,
    /// Its beginning.
    Prefix,
    /// Its end.
    Suffix,
    /// A regular expression over the whole value.
    RegularExpression,
}

/// A public client for a single-page app.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpaClient {
    /// Whether it is made.
    #[serde(default)]
    pub enabled: bool,
    /// Its client ID; default: `<namespace>-<app>-spa`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

/// A public client for the device flow.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceFlowClient {
    /// Whether it is made.
    #[serde(default)]
    pub enabled: bool,
}

/// Groups and mappers to make in Keycloak.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeycloakConfig {
    /// Groups of the realm; members are added and never removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<KeycloakGroup>,
    /// Protocol mappers of the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocol_mappers: Vec<ProtocolMapper>,
}

/// A group of the realm.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeycloakGroup {
    /// Name of the group.
    #[schemars(length(min = 1))]
    pub name: String,
    /// User names to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

/// A protocol mapper of the client.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProtocolMapper {
    /// Name of the mapper.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Keycloak's type of mapper, such as `oidc-audience-mapper`.
    #[schemars(length(min = 1))]
    pub protocol_mapper: String,
    /// Settings of the mapper.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
}

/// Whether other apps may exchange their tokens for tokens of this app.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenExchange {
    /// Whether they may.
    #[serde(default)]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}
