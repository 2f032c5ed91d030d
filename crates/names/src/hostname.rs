use std::borrow::Borrow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest host name in octets, without a trailing dot (RFC 1035, section 2.3.4; the `Hostname` of Gateway API).
pub const MAX_HOSTNAME_LEN: usize = 253;

/// The longest DNS label in octets (RFC 1035, section 2.3.4).
pub const MAX_LABEL_LEN: usize = 63;

/// A fully written-out DNS name: lower case, no trailing dot, no wildcard, not an IP address.
///
/// Names compare byte by byte once normalised, so two spellings of one name (`Web.Example.com.`, `web.example.com`)
/// are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hostname(String);

/// Why a text is not a [`Hostname`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostname {
    /// Nothing is left once the trailing dot is gone.
    #[error("a host name must not be empty")]
    Empty,
    /// Longer than [`MAX_HOSTNAME_LEN`].
    #[error("'{0}' is longer than {MAX_HOSTNAME_LEN} characters")]
    TooLong(String),
    /// A label is empty, too long, or has a character other than `a-z`, `0-9` and an inner `-`.
    #[error("'{name}' is not a host name: its label '{label}' must be 1 to {MAX_LABEL_LEN} of a-z, 0-9 and inner '-'")]
    Label {
        /// The whole text.
        name: String,
        /// The first label that is wrong.
        label: String,
    },
    /// An IPv4 address is made of valid labels, but is no name (Gateway API forbids addresses in `hostname`).
    #[error("'{0}' is an IP address, not a host name")]
    IpAddress(String),
}

impl Hostname {
    /// Reads a name in any case, with or without a trailing dot.
    pub fn parse(text: &str) -> Result<Self, InvalidHostname> {
        let name = normalise(text);
        if name.is_empty() {
            return Err(InvalidHostname::Empty);
        }
        if name.len() > MAX_HOSTNAME_LEN {
            return Err(InvalidHostname::TooLong(name));
        }
        if let Some(label) = name.split('.').find(|label| !is_dns_label(label)) {
            return Err(InvalidHostname::Label { label: label.to_owned(), name });
        }
        if name.parse::<std::net::IpAddr>().is_ok() {
            return Err(InvalidHostname::IpAddress(name));
        }
        Ok(Self(name))
    }

    /// The name as text, normalised.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How many labels the name has; at least one.
    pub fn label_count(&self) -> usize {
        self.0.split('.').count()
    }

    /// Whether `self` lies below `suffix`: at least one whole label more.
    pub fn is_below(&self, suffix: &Hostname) -> bool {
        self.0.strip_suffix(suffix.as_str()).is_some_and(|head| head.ends_with('.'))
    }

    /// The name without its leftmost label, or `None` for a single label.
    pub fn parent(&self) -> Option<&str> {
        self.0.split_once('.').map(|(_, rest)| rest)
    }
}

/// Whether `label` is a DNS-1123 label: 1 to 63 of `a-z`, `0-9` and inner `-`.
pub fn is_dns_label(label: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    (1..=MAX_LABEL_LEN).contains(&bytes.len())
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

/// DNS names are case-insensitive and may be written with the root's dot (RFC 4343, RFC 1034 section 3.1).
pub(crate) fn normalise(text: &str) -> String {
    text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase()
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for Hostname {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Hostname {
    type Error = InvalidHostname;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Hostname> for String {
    fn from(name: Hostname) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_and_the_trailing_dot_do_not_matter() {
        assert_eq!(Hostname::parse("Web.Example.COM."), Hostname::parse("web.example.com"));
    }

    #[test]
    fn what_is_not_a_name_says_why() {
        assert_eq!(Hostname::parse(""), Err(InvalidHostname::Empty));
        assert_eq!(Hostname::parse("."), Err(InvalidHostname::Empty));
        assert!(matches!(Hostname::parse("a..b"), Err(InvalidHostname::Label { .. })));
        assert!(matches!(Hostname::parse("-a.b"), Err(InvalidHostname::Label { .. })));
        assert!(matches!(Hostname::parse("*.a.b"), Err(InvalidHostname::Label { .. })));
        assert!(matches!(Hostname::parse("192.0.2.7"), Err(InvalidHostname::IpAddress(_))));
        assert!(Hostname::parse(&"a.".repeat(127)).is_ok());
        assert!(matches!(Hostname::parse(&"a.".repeat(128)), Err(InvalidHostname::TooLong(_))));
    }

    #[test]
    fn below_means_whole_labels() {
        let suffix = Hostname::parse("example.com").unwrap();
        assert!(Hostname::parse("a.b.example.com").unwrap().is_below(&suffix));
        assert!(!Hostname::parse("badexample.com").unwrap().is_below(&suffix));
        assert!(!suffix.is_below(&suffix));
    }
}
