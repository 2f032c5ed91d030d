//! The SecurityPolicy by which Envoy Gateway signs visitors in.

use portreeve_api::SecurityPolicy;
use portreeve_api::names::{GATEWAY_API_GROUP, nebari_app as derived};
use portreeve_api::nebari_app::Auth;
use serde_json::{Value, json};

use super::clients::{GROUPS_CLAIM, SCOPES, redirect_path};
use super::hash::digest;
use crate::app::App;
use crate::object::Kind;

/// The most values that one claim may be compared with (`maxItems` of Envoy Gateway).
const MAX_VALUES: usize = 128;
/// The name of the verifier of the visitor's identity.
const VERIFIER: &str = "id-token";

/// Where the provider is, for the gateway and for browsers.
pub(super) struct Endpoints {
    pub(super) issuer: String,
    pub(super) token: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) end_session: Option<String>,
    /// Where its keys are; absent: the gateway cannot tell groups.
    pub(super) keys: Option<Keys>,
    /// Who its tokens say that it is; absent: the platform does not know.
    pub(super) token_issuer: Option<String>,
}

/// Where a provider's keys are.
pub(super) enum Keys {
    /// At this URL.
    At(String),
    /// Where its discovery document says, which the gateway reads.
    Discovered,
}

/// By what the gateway proves itself to the provider.
pub(super) struct Credentials<'a> {
    pub(super) secret: &'a str,
    /// Whether the Secret says the client ID too.
    pub(super) with_id: bool,
}

/// `spec` of the policy, without its targets. `live` is the one that is there; `enforce_groups` asks for the groups of the spec.
pub(super) fn policy(
    app: &App<'_>,
    auth: &Auth,
    endpoints: &Endpoints,
    credentials: &Credentials<'_>,
    live: Option<&SecurityPolicy>,
    enforce_groups: bool,
) -> Value {
    let suffix = cookie_suffix(app, live);
    let mut oidc = oidc(app, auth, endpoints, &suffix);
    let present = live.and_then(|live| live.spec.other.get("oidc"));
    // One that is there goes on with the ID that it has: the field cannot be taken back from whoever wrote it.
    let is_in_secret = credentials.with_id && present.is_none_or(|oidc| oidc["clientID"].is_null());
    let client_id = (!is_in_secret).then(|| derived::oidc_client(app.name, app.namespace));
    match &client_id {
        Some(id) => oidc["clientID"] = id.as_str().into(),
        None => oidc["clientIDRef"] = json!({ "group": "", "kind": "Secret", "name": credentials.secret }),
    }
    oidc["clientSecret"] =
        json!({ "group": "", "kind": "Secret", "name": credentials.secret, "namespace": app.namespace });
    let forwards = present.is_some_and(|oidc| oidc["forwardAccessToken"] == true);
    if let Some(forward) = auth.forward_access_token.or(forwards.then_some(false)) {
        oidc["forwardAccessToken"] = forward.into();
    }
    let mut spec = json!({ "oidc": oidc });
    if let Some(keys) = endpoints.keys.as_ref().filter(|_| enforce_groups && !auth.groups.is_empty()) {
        let mut verifier = json!({ "name": VERIFIER, "extractFrom": { "cookies": [format!("IdToken-{suffix}")] } });
        if let Keys::At(url) = keys {
            verifier["remoteJWKS"] = json!({ "uri": url });
        }
        if let Some(issuer) = &endpoints.token_issuer {
            verifier["issuer"] = issuer.as_str().into();
        }
        // An ID that only the Secret says is not known here.
        if let Some(client) = client_id {
            verifier["audiences"] = json!([client]);
        }
        spec["jwt"] = json!({ "providers": [verifier] });
        spec["authorization"] = authorization(&auth.groups);
    }
    spec
}

/// `targetRefs` of a policy of these routes.
pub(super) fn targets(routes: impl Iterator<Item = String>) -> Value {
    routes.map(|name| json!({ "group": GATEWAY_API_GROUP, "kind": Kind::HttpRoute.as_str(), "name": name })).collect()
}

fn oidc(app: &App<'_>, auth: &Auth, endpoints: &Endpoints, suffix: &str) -> Value {
    let mut provider = json!({ "issuer": endpoints.issuer });
    for (field, url) in [
        ("tokenEndpoint", &endpoints.token),
        ("authorizationEndpoint", &endpoints.authorization),
        ("endSessionEndpoint", &endpoints.end_session),
    ] {
        if let Some(url) = url {
            provider[field] = url.as_str().into();
        }
    }
    let mut oidc = json!({
        "redirectURL": format!("https://{}{}", app.source.spec.hostname, redirect_path(auth)),
        "logoutPath": "/logout",
        "cookieNames": { "accessToken": format!("AccessToken-{suffix}"), "idToken": format!("IdToken-{suffix}") },
    });
    oidc["provider"] = provider;
    oidc["scopes"] = if auth.scopes.is_empty() { json!(SCOPES) } else { json!(auth.scopes) };
    if !auth.deny_redirect.is_empty() {
        oidc["denyRedirect"] = json!({ "headers": auth.deny_redirect });
    }
    oidc
}

/// Whoever is in one of the groups. A group is known by its name, or by its path where it is at the top.
fn authorization(groups: &[String]) -> Value {
    let mut names: Vec<String> = groups.iter().flat_map(|group| [group.clone(), format!("/{group}")]).collect();
    names.retain(|name| !name.starts_with("//"));
    names.sort();
    names.dedup();
    let rules = names.chunks(MAX_VALUES).enumerate().map(|(place, names)| {
        json!({
            "name": format!("groups-{place}"),
            "action": "Allow",
            "principal": { "jwt": {
                "provider": VERIFIER,
                "claims": [{ "name": GROUPS_CLAIM, "valueType": "StringArray", "values": names }],
            } },
        })
    });
    json!({ "defaultAction": "Deny", "rules": rules.collect::<Vec<_>>() })
}

/// What tells the cookies of an app from those of others. It is the same as long as the app has its name, so that nobody
/// is signed out; where a policy of the former operator is there, its own goes on.
fn cookie_suffix(app: &App<'_>, live: Option<&SecurityPolicy>) -> String {
    let own = digest(format!("{}/{}", app.namespace, app.name))[..8].to_owned();
    let former = live.and_then(|live| {
        let suffix = format!("{:x}", fnv1a(live.metadata.uid.as_deref()?));
        let cookies = live.spec.other.get("oidc").map(|oidc| &oidc["cookieNames"])?;
        let goes_on = cookies.is_null() || cookies["idToken"] == format!("IdToken-{suffix}");
        goes_on.then_some(suffix)
    });
    former.unwrap_or(own)
}

/// FNV-1a of 32 bits: how Envoy Gateway names the cookies of a policy by its uid.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_called_as_envoy_gateway_calls_them() {
        // Published test vectors of FNV-1a.
        assert_eq!(fnv1a(""), 0x811c_9dc5);
        assert_eq!(fnv1a("a"), 0xe40c_292c);
        assert_eq!(fnv1a("foobar"), 0xbf9c_f968);
    }

    #[test]
    fn groups_are_told_by_name_and_by_path() {
        let rules = authorization(&["a".to_owned(), "/b".to_owned()]);
        assert_eq!(rules["defaultAction"], "Deny");
        assert_eq!(rules["rules"][0]["principal"]["jwt"]["claims"][0]["values"], json!(["/a", "/b", "a"]));
    }
}
