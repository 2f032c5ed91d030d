use std::fmt;

use crate::hostname::{Hostname, InvalidHostname, is_dns_label, normalise};
use crate::pattern::HostPattern;

/// The annotation of a ListenerSet by which patterns travel from whoever makes the listeners to a gateway that honours
/// them: a JSON object from the name of a listener to the pattern that limits the host names of its routes.
pub const SNI_PATTERNS_ANNOTATION: &str = "portreeve.dev/sni-patterns";

/// A name pattern that Gateway API cannot say: a beginning, and a final `*` that is not a whole label.
///
/// `daskgateway-*` stands for every name that starts with `daskgateway-` and goes on with one or more characters,
/// dots included. It limits which route hostnames are right on a match-all listener; it is never a listener's own
/// hostname.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SniPattern {
    prefix: String,
}

/// One entry of `routing.tcp[].sniHostnames`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SniHostname {
    /// A name or `*.suffix`: becomes a listener of its own.
    Host(HostPattern),
    /// A pattern with a final `*`: limits the names of app-managed routes.
    Pattern(SniPattern),
}

/// Why a text is not an entry of `sniHostnames`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSniHostname {
    /// Neither a name nor a wildcard.
    #[error(transparent)]
    Hostname(#[from] InvalidHostname),
    /// A `*` in another place than the whole first label or the very end.
    #[error("'{0}' has a '*' that is neither the whole first label nor the last character")]
    MisplacedWildcard(String),
}

impl SniPattern {
    /// Whether `name` is one that this pattern stands for.
    pub fn matches(&self, name: &Hostname) -> bool {
        name.as_str().strip_prefix(&self.prefix).is_some_and(|rest| !rest.is_empty())
    }

    /// Whether every name of `hosts` is one that this pattern stands for; only an exact name can be.
    pub fn covers(&self, hosts: &HostPattern) -> bool {
        match hosts {
            HostPattern::Exact(name) => self.matches(name),
            HostPattern::Any | HostPattern::Wildcard(_) => false,
        }
    }

    /// Reads a beginning and a final `*`, as in `daskgateway-*`.
    pub fn parse(text: &str) -> Result<Self, InvalidSniHostname> {
        match SniHostname::parse(text)? {
            SniHostname::Pattern(pattern) => Ok(pattern),
            SniHostname::Host(_) => Err(InvalidSniHostname::MisplacedWildcard(text.to_owned())),
        }
    }
}

impl SniHostname {
    /// Reads a name, `*.suffix`, or a pattern with a final `*`.
    pub fn parse(text: &str) -> Result<Self, InvalidSniHostname> {
        let name = normalise(text);
        let (wildcard, rest) = match name.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, name.as_str()),
        };
        match rest.split_once('*') {
            None => Ok(Self::Host(HostPattern::parse(&name)?)),
            Some((prefix, "")) if !wildcard && is_name_start(prefix) => {
                Ok(Self::Pattern(SniPattern { prefix: prefix.to_owned() }))
            }
            Some(_) => Err(InvalidSniHostname::MisplacedWildcard(text.to_owned())),
        }
    }
}

/// Whether some host name starts with `prefix` and goes on.
fn is_name_start(prefix: &str) -> bool {
    !prefix.is_empty() && format!("{prefix}x").split('.').all(is_dns_label)
}

impl fmt::Display for SniPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}*", self.prefix)
    }
}

impl fmt::Display for SniHostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(hosts) => write!(f, "{hosts}"),
            Self::Pattern(pattern) => write!(f, "{pattern}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_star_stands_for_one_or_more_characters_and_dots() {
        let pattern = SniPattern::parse("daskgateway-*").unwrap();
        let matches = |name: &str| pattern.matches(&Hostname::parse(name).unwrap());
        assert!(matches("daskgateway-jhub.0123abcd"));
        assert!(matches("daskgateway-x"));
        assert!(!matches("daskgateway"));
        assert!(!matches("other.example.com"));
    }

    #[test]
    fn names_and_wildcards_are_hosts() {
        assert!(matches!(SniHostname::parse("*.example.com"), Ok(SniHostname::Host(HostPattern::Wildcard(_)))));
        assert!(matches!(SniHostname::parse("a.example.com"), Ok(SniHostname::Host(HostPattern::Exact(_)))));
    }

    #[test]
    fn a_star_elsewhere_is_refused() {
        for text in ["*", "a*b", "a.*.b", "*.a*", "a**", "**", "-*"] {
            assert!(SniHostname::parse(text).is_err(), "{text}");
        }
    }
}
