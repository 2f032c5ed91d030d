//! `status.authConfigHash`, byte by byte as the former operator computes it, so that a takeover makes no client anew.

use std::collections::BTreeMap;

use portreeve_api::NebariApp;
use portreeve_api::nebari_app::{Auth, KeycloakConfig};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// In the order of the contract. Lists that are empty are `null`, or left out where the contract says `omitempty`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hashed<'a> {
    namespace: &'a str,
    name: &'a str,
    hostname: &'a str,
    provider: &'a str,
    #[serde(rename = "redirectURI")]
    redirect_uri: &'a str,
    #[serde(rename = "issuerURL")]
    issuer_url: &'a str,
    scopes: Option<Vec<&'a str>>,
    groups: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spa_client: Option<Spa<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keycloak_config: Option<Keycloak<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spa<'a> {
    #[serde(skip_serializing_if = "is_false")]
    enabled: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    client_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Keycloak<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Group<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    protocol_mappers: Vec<Mapper<'a>>,
}

#[derive(Serialize)]
struct Group<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    members: &'a [String],
}

#[derive(Serialize)]
struct Mapper<'a> {
    name: &'a str,
    #[serde(rename = "protocolMapper")]
    kind: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    config: &'a BTreeMap<String, String>,
}

/// The hash of what the provider is asked for, as 64 hexadecimal digits.
pub(super) fn auth_config_hash(app: &NebariApp, auth: &Auth) -> String {
    let text = |field: &'_ Option<String>| -> String { field.clone().unwrap_or_default() };
    let (redirect_uri, issuer_url) = (text(&auth.redirect_uri), text(&auth.issuer_url));
    let hashed = Hashed {
        namespace: app.metadata.namespace.as_deref().unwrap_or_default(),
        name: app.metadata.name.as_deref().unwrap_or_default(),
        hostname: &app.spec.hostname,
        provider: auth.provider.as_str(),
        redirect_uri: &redirect_uri,
        issuer_url: &issuer_url,
        scopes: sorted(&auth.scopes),
        groups: sorted(&auth.groups),
        spa_client: auth
            .spa_client
            .as_ref()
            .map(|spa| Spa { enabled: spa.enabled, client_id: spa.client_id.as_deref().unwrap_or_default() }),
        keycloak_config: auth.keycloak_config.as_ref().map(Keycloak::of),
    };
    digest(go_json(&hashed))
}

/// SHA-256 as hexadecimal digits.
pub(super) fn digest(text: impl AsRef<[u8]>) -> String {
    Sha256::digest(text).iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// JSON as Go's `encoding/json` writes it: characters that mean something in HTML or JavaScript are escaped. They stand
/// only inside strings.
fn go_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_default();
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.extend(format!("\\u{:04x}", u32::from(character)).chars());
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// By bytes, as Go sorts; nothing for an empty list.
fn sorted(list: &[String]) -> Option<Vec<&str>> {
    let mut sorted: Vec<&str> = list.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    (!sorted.is_empty()).then_some(sorted)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl<'a> Keycloak<'a> {
    fn of(config: &'a KeycloakConfig) -> Self {
        let group =
            |group: &'a portreeve_api::nebari_app::KeycloakGroup| Group { name: &group.name, members: &group.members };
        let mapper = |mapper: &'a portreeve_api::nebari_app::ProtocolMapper| Mapper {
            name: &mapper.name,
            kind: &mapper.protocol_mapper,
            config: &mapper.config,
        };
        Self {
            groups: config.groups.iter().map(group).collect(),
            protocol_mappers: config.protocol_mappers.iter().map(mapper).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// nebariapp A.6: the hashes were computed by Go's `encoding/json` of the same structure
    /// (`testdata/auth-config-hash/main.go`).
    #[test]
    fn hashes_are_those_of_the_former_operator() {
        let vectors: Vec<Value> =
            serde_json::from_str(include_str!("../../../testdata/auth-config-hash/vectors.json")).unwrap();
        assert!(vectors.len() > 15);
        for vector in vectors {
            let app: NebariApp = serde_json::from_value(vector["app"].clone()).unwrap();
            let hash = auth_config_hash(&app, app.spec.auth.as_ref().unwrap());
            assert_eq!(hash, vector["hash"], "{}", vector["what"]);
        }
    }
}
