//! From a SecurityPolicy to what the table says. Every field must be known: one that is passed over could be the one that
//! keeps somebody out.

use http::Uri;
use k8s_openapi::api::core::v1::Secret;
use portreeve_table::{Callback, ClaimCheck, HeaderCheck, HeaderValueCheck, Login, Provider, whole};
use serde::Deserialize;
use serde_json::Value;

use super::SecurityPolicy;
use crate::index::{Index, name_of};

/// Where visitors sign out, and come back to, where the policy says nothing (Envoy Gateway's defaults).
const LOGOUT_PATH: &str = "/logout";
/// What a policy without scopes asks for (likewise).
const SCOPES: [&str; 1] = ["openid"];
const CLIENT_ID: &str = "client-id";
const CLIENT_SECRET: &str = "client-secret";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    target_refs: Vec<TargetRef>,
    target_ref: Option<TargetRef>,
    oidc: Option<Oidc>,
    jwt: Option<Jwt>,
    authorization: Option<Authorization>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TargetRef {
    #[serde(rename = "group")]
    _group: String,
    kind: String,
    #[serde(rename = "name")]
    _name: String,
    section_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Oidc {
    provider: OidcProvider,
    #[serde(rename = "clientID")]
    client_id: Option<String>,
    #[serde(rename = "clientIDRef")]
    client_id_ref: Option<SecretRef>,
    client_secret: SecretRef,
    #[serde(rename = "redirectURL")]
    redirect_url: String,
    logout_path: Option<String>,
    scopes: Option<Vec<String>>,
    #[serde(default)]
    forward_access_token: bool,
    deny_redirect: Option<DenyRedirect>,
    cookie_names: Option<CookieNames>,
    // Tokens are refreshed either way: without that, visitors would sign in again, and get no more.
    #[serde(rename = "refreshToken")]
    _refresh_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OidcProvider {
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    end_session_endpoint: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRef {
    group: Option<String>,
    kind: Option<String>,
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CookieNames {
    access_token: Option<String>,
    id_token: Option<String>,
}

impl CookieNames {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.access_token.iter().chain(&self.id_token)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DenyRedirect {
    headers: Vec<HeaderMatch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderMatch {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jwt {
    providers: Vec<JwtProvider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JwtProvider {
    name: String,
    issuer: Option<String>,
    /// Sign-in takes tokens for its client only, so it says nothing new where it names that.
    audiences: Option<Vec<String>>,
    #[serde(rename = "remoteJWKS")]
    remote_jwks: Option<RemoteJwks>,
    extract_from: ExtractFrom,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoteJwks {
    uri: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtractFrom {
    cookies: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Authorization {
    default_action: String,
    rules: Vec<AuthorizationRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorizationRule {
    #[serde(rename = "name")]
    _name: Option<String>,
    action: String,
    principal: Principal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Principal {
    jwt: JwtPrincipal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JwtPrincipal {
    provider: String,
    claims: Vec<Claim>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Claim {
    name: String,
    value_type: Option<String>,
    values: Vec<String>,
}

/// What a policy demands, or why that cannot be done here.
pub(super) fn login(policy: &SecurityPolicy, index: &Index<'_>) -> Result<Login, String> {
    let spec = read(&policy.spec)?;
    let oidc = spec.oidc.as_ref().ok_or("spec.oidc is missing, and nothing else is supported here")?;
    let (namespace, name) = name_of(&policy.metadata);
    let secret = |reference: &SecretRef, key| secret_value(index, namespace, reference, key);
    let client_id = match (&oidc.client_id, &oidc.client_id_ref) {
        (Some(id), None) => id.clone(),
        (None, Some(reference)) => secret(reference, CLIENT_ID)?,
        _ => return Err("one of spec.oidc.clientID and clientIDRef must be set".to_owned()),
    };
    let callback = callback(&oidc.redirect_url)?;
    let logout_path = oidc.logout_path.clone().unwrap_or_else(|| LOGOUT_PATH.to_owned());
    if !logout_path.starts_with('/') || logout_path == callback.path {
        return Err(format!("spec.oidc.logoutPath {logout_path} is no path of its own"));
    }
    let deny_redirect = oidc.deny_redirect.iter().flat_map(|deny| &deny.headers).map(header_check);
    Ok(Login {
        id: format!("{namespace}/{name}").into(),
        provider: provider(oidc, spec.jwt.as_ref())?,
        client_id,
        client_secret: portreeve_table::Secret(secret(&oidc.client_secret, CLIENT_SECRET)?),
        scopes: oidc.scopes.clone().unwrap_or_else(|| SCOPES.map(str::to_owned).to_vec()),
        callback,
        logout_path,
        deny_redirect: deny_redirect.collect::<Result<_, _>>()?,
        withheld_cookies: oidc.cookie_names.iter().flat_map(CookieNames::all).cloned().collect(),
        forward_access_token: oidc.forward_access_token,
        allowed: allowed(&spec)?,
    })
}

fn read(spec: &Value) -> Result<Spec, String> {
    let spec: Spec = Deserialize::deserialize(spec).map_err(|error| format!("spec: {error}"))?;
    let mut targets = spec.target_ref.iter().chain(&spec.target_refs);
    match targets.find(|target| target.section_name.is_some()) {
        Some(target) => Err(format!("a part of {} (sectionName) cannot be protected alone", target.kind)),
        None => Ok(spec),
    }
}

fn provider(oidc: &Oidc, jwt: Option<&Jwt>) -> Result<Provider, String> {
    let given = &oidc.provider;
    let provider = Provider {
        issuer: given.issuer.clone(),
        authorization: given.authorization_endpoint.clone(),
        token: given.token_endpoint.clone(),
        end_session: given.end_session_endpoint.clone(),
        keys: verifier(oidc, jwt)?.and_then(|verifier| verifier.remote_jwks.as_ref()).map(|keys| keys.uri.clone()),
    };
    let endpoints = [&provider.authorization, &provider.token, &provider.end_session, &provider.keys];
    for url in endpoints.into_iter().flatten().chain([&provider.issuer]) {
        let is_url = url.parse::<Uri>().is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")));
        if !is_url {
            return Err(format!("{url} is no http:// or https:// URL"));
        }
    }
    Ok(provider)
}

/// The one verifier that a policy may have: that of the identity which the provider tells at sign-in.
fn verifier<'s>(oidc: &Oidc, jwt: Option<&'s Jwt>) -> Result<Option<&'s JwtProvider>, String> {
    let Some(jwt) = jwt else { return Ok(None) };
    let [verifier] = jwt.providers.as_slice() else {
        return Err("spec.jwt may have one provider here, that of sign-in".to_owned());
    };
    let cookie = oidc.cookie_names.as_ref().and_then(|names| names.id_token.as_ref());
    let is_of_sign_in = verifier.extract_from.cookies.iter().map(Some).eq([cookie])
        && verifier.issuer.as_ref().is_none_or(|issuer| *issuer == oidc.provider.issuer)
        && verifier.audiences.as_ref().is_none_or(|audiences| audiences.iter().eq(&oidc.client_id));
    if is_of_sign_in {
        Ok(Some(verifier))
    } else {
        Err("spec.jwt may only read the cookie spec.oidc.cookieNames.idToken, from the same issuer and for the same client".to_owned())
    }
}

fn allowed(spec: &Spec) -> Result<Option<Vec<ClaimCheck>>, String> {
    let Some(authorization) = &spec.authorization else { return Ok(None) };
    let known = spec.jwt.iter().flat_map(|jwt| &jwt.providers).next();
    if authorization.default_action != "Deny" {
        return Err("spec.authorization.defaultAction must be Deny here".to_owned());
    }
    let check = |rule: &AuthorizationRule| match (rule.action.as_str(), rule.principal.jwt.claims.as_slice()) {
        // Envoy's default matches no claim that is a list, which this gateway does.
        ("Allow", [claim]) if claim.value_type.as_deref() != Some("StringArray") => {
            Err(format!("spec.authorization: the claim {} must have valueType StringArray here", claim.name))
        }
        ("Allow", [claim]) if known.is_some_and(|known| known.name == rule.principal.jwt.provider) => {
            Ok(ClaimCheck { claim: claim.name.clone(), values: claim.values.clone() })
        }
        _ => Err("a rule of spec.authorization must allow by one claim of the provider of spec.jwt".to_owned()),
    };
    authorization.rules.iter().map(check).collect::<Result<_, _>>().map(Some)
}

fn callback(url: &str) -> Result<Callback, String> {
    let wrong = || format!("spec.oidc.redirectURL {url} is no https:// URL with a path and without a query");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
    if uri.scheme_str() != Some("https") || uri.path() == "/" || uri.query().is_some() {
        return Err(wrong());
    }
    Ok(Callback { authority: authority.as_str().to_ascii_lowercase(), path: uri.path().to_owned() })
}

fn header_check(header: &HeaderMatch) -> Result<HeaderCheck, String> {
    let text = || header.value.clone();
    let value = match header.kind.as_deref().unwrap_or("Exact") {
        "Exact" => HeaderValueCheck::Exact(text()),
        "Prefix" => HeaderValueCheck::Prefix(text()),
        "Suffix" => HeaderValueCheck::Suffix(text()),
        "RegularExpression" => HeaderValueCheck::Expression(
            whole(&header.value).map_err(|_| format!("'{}' is no regular expression", header.value))?,
        ),
        other => return Err(format!("headers cannot be compared by {other}")),
    };
    Ok(HeaderCheck { name: header.name.clone(), value })
}

/// A value of a Secret of the policy's own namespace.
fn secret_value(index: &Index<'_>, home: &str, reference: &SecretRef, key: &str) -> Result<String, String> {
    let is_secret = reference.group.as_deref().unwrap_or_default().is_empty()
        && reference.kind.as_deref().is_none_or(|kind| kind == "Secret");
    if !is_secret || reference.namespace.as_deref().is_some_and(|namespace| namespace != home) {
        return Err("the client's Secret must be a Secret of the policy's namespace".to_owned());
    }
    let name = &reference.name;
    let secret = index.secret((home, name)).ok_or_else(|| format!("Secret {home}/{name} does not exist"))?;
    let value = text(secret, key).filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("Secret {home}/{name} has no text under {key}"))
}

/// `stringData` counts too: in a file it is what a person wrote. A final line break is an editor's.
fn text(secret: &Secret, key: &str) -> Option<String> {
    let plain = secret.string_data.as_ref().and_then(|data| data.get(key)).cloned();
    let encoded = || String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
    plain.or_else(encoded).map(|text| text.trim_end().to_owned())
}
