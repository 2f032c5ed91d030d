use std::cmp::Ordering;
use std::fmt;

use crate::hostname::{Hostname, InvalidHostname};

/// What a listener or a route says about host names: every name, all names below a suffix, or one name.
///
/// A wildcard is the whole leftmost label and stands for one *or more* labels (Gateway API, `Hostname`; GEP-2643):
/// `*.example.com` matches `a.example.com` and `a.b.example.com`, not `example.com`.
///
/// `Ord` is precedence: the more specific pattern is the greater one. An exact name beats every wildcard, a wildcard
/// with more labels beats one with fewer, and [`HostPattern::Any`] is the least. Ties are broken by the text, so that
/// the order is total.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// No host name was given: every name, and also a connection without any.
    Any,
    /// `*.` and this suffix.
    Wildcard(Hostname),
    /// This name alone.
    Exact(Hostname),
}

impl HostPattern {
    /// Reads `*.suffix` or a name; [`HostPattern::Any`] has no text.
    pub fn parse(text: &str) -> Result<Self, InvalidHostname> {
        match text.strip_prefix("*.") {
            Some(suffix) => Hostname::parse(suffix).map(Self::Wildcard),
            None => Hostname::parse(text).map(Self::Exact),
        }
    }

    /// Reads an optional field of Gateway API, where absent and empty both mean every name.
    pub fn parse_optional(text: Option<&str>) -> Result<Self, InvalidHostname> {
        match text {
            None | Some("") => Ok(Self::Any),
            Some(text) => Self::parse(text),
        }
    }

    /// Whether `name` is one of the names that this pattern stands for.
    pub fn matches(&self, name: &Hostname) -> bool {
        match self {
            Self::Any => true,
            Self::Wildcard(suffix) => name.is_below(suffix),
            Self::Exact(exact) => exact == name,
        }
    }

    /// Whether every name of `other` is also a name of `self`.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Wildcard(suffix), Self::Wildcard(inner)) => inner == suffix || inner.is_below(suffix),
            (Self::Wildcard(_) | Self::Exact(_), Self::Exact(name)) => self.matches(name),
            (Self::Wildcard(_) | Self::Exact(_), _) => false,
        }
    }

    /// The names that both patterns stand for, or `None` when there are none.
    ///
    /// Two patterns are either nested or apart, so the intersection is always the narrower of the two.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.covers(other) {
            Some(other.clone())
        } else if other.covers(self) {
            Some(self.clone())
        } else {
            None
        }
    }

    /// Whether some name belongs to both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The text of Gateway API's `hostname` field; `None` for [`HostPattern::Any`].
    pub fn to_field(&self) -> Option<String> {
        match self {
            Self::Any => None,
            Self::Wildcard(_) | Self::Exact(_) => Some(self.to_string()),
        }
    }

    /// What precedence compares first: the kind of pattern, then the number of its labels.
    fn specificity(&self) -> (u8, usize) {
        match self {
            Self::Any => (0, 0),
            Self::Wildcard(suffix) => (1, suffix.label_count()),
            Self::Exact(name) => (2, name.label_count()),
        }
    }
}

impl Ord for HostPattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.specificity().cmp(&other.specificity()).then_with(|| self.to_string().cmp(&other.to_string()))
    }
}

impl PartialOrd for HostPattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<Hostname> for HostPattern {
    fn from(name: Hostname) -> Self {
        Self::Exact(name)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Wildcard(suffix) => write!(f, "*.{suffix}"),
            Self::Exact(name) => write!(f, "{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few labels, so that patterns often meet.
    fn hostname() -> impl Strategy<Value = Hostname> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
            .prop_map(|labels| Hostname::parse(&labels.join(".")).unwrap())
    }

    fn pattern() -> impl Strategy<Value = HostPattern> {
        prop_oneof![
            Just(HostPattern::Any),
            hostname().prop_map(HostPattern::Wildcard),
            hostname().prop_map(HostPattern::Exact),
        ]
    }

    proptest! {
        #[test]
        fn intersection_is_what_both_match(left in pattern(), right in pattern(), name in hostname()) {
            let both = left.matches(&name) && right.matches(&name);
            let intersection = left.intersect(&right);
            prop_assert_eq!(both, intersection.is_some_and(|pattern| pattern.matches(&name)));
        }

        #[test]
        fn intersection_commutes(left in pattern(), right in pattern()) {
            prop_assert_eq!(left.intersect(&right), right.intersect(&left));
            prop_assert_eq!(left.overlaps(&right), left.intersect(&right).is_some());
        }

        #[test]
        fn cover_is_a_partial_order(a in pattern(), b in pattern(), c in pattern()) {
            prop_assert!(a.covers(&a));
            prop_assert!(!(a.covers(&b) && b.covers(&a)) || a == b);
            prop_assert!(!(a.covers(&b) && b.covers(&c)) || a.covers(&c));
        }

        #[test]
        fn what_is_covered_is_at_least_as_specific(a in pattern(), b in pattern()) {
            prop_assert!(!a.covers(&b) || a <= b);
        }

        #[test]
        fn text_round_trips(pattern in pattern()) {
            prop_assert_eq!(HostPattern::parse_optional(pattern.to_field().as_deref()).unwrap(), pattern);
        }
    }

    /// pains row 20: a wildcard of Gateway API stands for several labels, unlike one in a certificate.
    #[test]
    fn a_wildcard_matches_one_or_more_labels() {
        let pattern = HostPattern::parse("*.example.com").unwrap();
        let matches = |name: &str| pattern.matches(&Hostname::parse(name).unwrap());
        assert!(matches("a.example.com"));
        assert!(matches("a.b.example.com"));
        assert!(!matches("example.com"));
        assert!(!matches("badexample.com"));
    }

    #[test]
    fn precedence_is_exact_then_longer_wildcard_then_any() {
        let mut patterns: Vec<_> =
            ["*.com", "a.example.com", "*.example.com"].map(|text| HostPattern::parse(text).unwrap()).into();
        patterns.push(HostPattern::Any);
        patterns.sort();
        let texts: Vec<_> = patterns.iter().rev().map(ToString::to_string).collect();
        assert_eq!(texts, ["a.example.com", "*.example.com", "*.com", "*"]);
    }
}
