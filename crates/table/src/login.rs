use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use regex::Regex;

/// Sign-in in front of a route: who vouches for visitors, and which of them get in.
///
/// It says what the gateway is to demand, never how it remembers who has signed in.
#[derive(Clone, Debug, PartialEq)]
pub struct Login {
    /// Which policy this is, for logs; sessions of one policy are none of another's.
    pub id: Arc<str>,
    /// Who vouches for visitors.
    pub provider: Provider,
    /// The gateway's name at the provider. Tokens for others are refused.
    pub client_id: String,
    /// By what it proves that.
    pub client_secret: Secret,
    /// What is asked of the provider, beside `openid`.
    pub scopes: Vec<String>,
    /// Where the provider sends visitors back.
    pub callback: Callback,
    /// The path that signs a visitor out.
    pub logout_path: String,
    /// Requests that are refused with 401 and never sent to sign in: those that one of these matches.
    pub deny_redirect: Vec<HeaderCheck>,
    /// Cookies that a gateway gives to the backend under the same policy, and this one does not: a visitor's are taken away.
    pub withheld_cookies: Vec<String>,
    /// Whether the backend gets the visitor's access token.
    pub forward_access_token: bool,
    /// Who gets in: whoever satisfies one of these; absent: whoever has signed in.
    pub allowed: Option<Vec<ClaimCheck>>,
}

/// An OpenID provider. What is absent is as its discovery document says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Provider {
    /// What tokens must say that they are from.
    pub issuer: String,
    /// Where visitors sign in.
    pub authorization: Option<String>,
    /// Where codes become tokens.
    pub token: Option<String>,
    /// Where visitors sign out.
    pub end_session: Option<String>,
    /// Where its keys are.
    pub keys: Option<String>,
}

/// A URL that the provider sends visitors back to; always `https`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// Host, and port where it is not 443.
    pub authority: String,
    /// The path.
    pub path: String,
}

/// A text that is in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

/// A header that a request may have.
#[derive(Clone, Debug)]
pub struct HeaderCheck {
    /// Its name.
    pub name: String,
    /// The values that are meant.
    pub value: HeaderValueCheck,
}

/// The values of a header that are meant.
#[derive(Clone, Debug)]
pub enum HeaderValueCheck {
    /// This one.
    Exact(String),
    /// Those that start so.
    Prefix(String),
    /// Those that end so.
    Suffix(String),
    /// Those of which this matches the whole; see [`whole`].
    Expression(Regex),
}

/// What a token must say of a visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimCheck {
    /// The name of the claim; dots lead into claims that are objects.
    pub claim: String,
    /// One of these must be its value, or among its values.
    pub values: Vec<String>,
}

/// An expression that matches whole values only.
pub fn whole(expression: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("^(?:{expression})$"))
}

impl HeaderCheck {
    /// Whether one of the values of the header is meant.
    pub fn matches(&self, headers: &HeaderMap) -> bool {
        headers.get_all(&self.name).iter().filter_map(|value| value.to_str().ok()).any(|value| match &self.value {
            HeaderValueCheck::Exact(exact) => value == exact,
            HeaderValueCheck::Prefix(prefix) => value.starts_with(prefix),
            HeaderValueCheck::Suffix(suffix) => value.ends_with(suffix),
            HeaderValueCheck::Expression(expression) => expression.is_match(value),
        })
    }
}

impl PartialEq for HeaderCheck {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.value == other.value
    }
}

impl PartialEq for HeaderValueCheck {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other))
            | (Self::Prefix(one), Self::Prefix(other))
            | (Self::Suffix(one), Self::Suffix(other)) => one == other,
            (Self::Expression(one), Self::Expression(other)) => one.as_str() == other.as_str(),
            _ => false,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_compared_as_asked() {
        let mut headers = HeaderMap::new();
        headers.append("accept", "text/html".parse().unwrap());
        headers.append("accept", "application/json".parse().unwrap());
        let is_met = |value| HeaderCheck { name: "Accept".to_owned(), value }.matches(&headers);
        assert!(is_met(HeaderValueCheck::Exact("application/json".to_owned())));
        assert!(!is_met(HeaderValueCheck::Exact("json".to_owned())));
        assert!(is_met(HeaderValueCheck::Prefix("text/".to_owned())));
        assert!(!is_met(HeaderValueCheck::Prefix("html".to_owned())));
        assert!(is_met(HeaderValueCheck::Suffix("/json".to_owned())));
        assert!(!is_met(HeaderValueCheck::Suffix("text".to_owned())));
        assert!(is_met(HeaderValueCheck::Expression(whole("text/.*|x").unwrap())));
        assert!(!is_met(HeaderValueCheck::Expression(whole("text|json").unwrap())));
    }

    #[test]
    fn a_secret_is_in_no_log() {
        assert_eq!(format!("{:?}", Secret("s3cret".to_owned())), "…");
    }
}
