//! What a browser keeps: who has signed in, and who is about to.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portreeve_table::ClaimCheck;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::seal::{Purpose, Seal};

/// One who has signed in. The tokens are the provider's, checked when they came; only what is needed again is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Session {
    /// Says who it is; shown again to the provider at the end.
    #[serde(rename = "i")]
    pub(super) id_token: String,
    /// Only where the backend is to get it.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(super) access_token: Option<String>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// When the provider must be asked again, in seconds since 1970.
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A sign-in that is going on, in one tab.
#[derive(Serialize, Deserialize)]
pub(super) struct Attempt {
    #[serde(rename = "s")]
    pub(super) state: String,
    #[serde(rename = "n")]
    pub(super) nonce: String,
    #[serde(rename = "v")]
    pub(super) verifier: String,
    /// Path and query of what was asked for.
    #[serde(rename = "b")]
    pub(super) back: String,
    /// Host and port by which the browser knows the app.
    #[serde(rename = "h")]
    pub(super) authority: String,
    #[serde(rename = "t")]
    pub(super) begun: u64,
}

impl Session {
    pub(super) fn open(seal: &Seal, sealed: &str) -> Option<Self> {
        open(seal, Purpose::Session, sealed)
    }

    pub(super) fn close(&self, seal: &Seal) -> Option<String> {
        seal.close(Purpose::Session, serde_json::to_vec(self).ok()?)
    }

    /// What the provider said of the visitor.
    pub(super) fn claims(&self) -> Value {
        claims(&self.id_token)
    }
}

impl Attempt {
    pub(super) fn open(seal: &Seal, sealed: &str) -> Option<Self> {
        open(seal, Purpose::Attempt, sealed)
    }

    pub(super) fn close(&self, seal: &Seal) -> Option<String> {
        seal.close(Purpose::Attempt, serde_json::to_vec(self).ok()?)
    }
}

fn open<T: DeserializeOwned>(seal: &Seal, purpose: Purpose, sealed: &str) -> Option<T> {
    serde_json::from_slice(&seal.open(purpose, sealed)?).ok()
}

/// What a token says, which somebody has checked.
pub(super) fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
    payload.and_then(|payload| serde_json::from_slice(&payload).ok()).unwrap_or_default()
}

/// Whether somebody of whom this is said gets in.
pub(super) fn is_allowed(allowed: Option<&[ClaimCheck]>, claims: &Value) -> bool {
    allowed.is_none_or(|checks| checks.iter().any(|check| is_met(check, claims)))
}

fn is_met(check: &ClaimCheck, claims: &Value) -> bool {
    // Names that are URLs have dots of their own.
    let whole = claims.get(&check.claim);
    let value = whole.or_else(|| check.claim.split('.').try_fold(claims, |claims, name| claims.get(name)));
    let is_wanted = |value: &Value| match value {
        Value::String(text) => check.values.contains(text),
        Value::Bool(_) | Value::Number(_) => check.values.contains(&value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    match value {
        Some(Value::Array(values)) => values.iter().any(is_wanted),
        Some(value) => is_wanted(value),
        None => false,
    }
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "tokens say by the clock how long they hold")]
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_has_one_of_the_values_gets_in() {
        let allows = |claim: &str, claims: Value| {
            let check = ClaimCheck { claim: claim.to_owned(), values: vec!["staff".to_owned(), "true".to_owned()] };
            is_allowed(Some(&[check]), &claims)
        };
        assert!(allows("groups", json!({"groups": ["guests", "staff"]})));
        assert!(allows("groups", json!({"groups": "staff"})));
        assert!(allows("realm_access.roles", json!({"realm_access": {"roles": ["staff"]}})));
        assert!(allows("https://a.b/c", json!({"https://a.b/c": ["staff"]})));
        assert!(allows("staff", json!({"staff": true})));
        for refused in [
            json!({}),
            json!({"groups": []}),
            json!({"groups": ["staffers", ["staff"]]}),
            json!({"groups": {"staff": 1}}),
            Value::Null,
        ] {
            assert!(!allows("groups", refused.clone()), "{refused}");
        }
        assert!(is_allowed(None, &json!({})), "nobody asks for more than to sign in");
        assert!(!is_allowed(Some(&[]), &json!({"groups": ["staff"]})), "nobody is allowed");
    }
}
