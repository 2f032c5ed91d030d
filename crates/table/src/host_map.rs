use std::collections::HashMap;
use std::iter;

use portreeve_names::{HostPattern, Hostname};

/// Values found by host name, the most specific pattern first: exact, then the longest wildcard, then any.
///
/// A look-up costs one hash per label of the name, however many entries there are.
#[derive(Clone, Debug, PartialEq)]
pub struct HostMap<T> {
    exact: HashMap<Hostname, T>,
    /// By suffix, without the `*.`.
    wildcard: HashMap<Hostname, T>,
    any: Option<T>,
}

impl<T> HostMap<T> {
    /// The value whose pattern is the most specific one that matches; without a name only "any" matches.
    pub fn find(&self, name: Option<&Hostname>) -> Option<&T> {
        self.matching(name).next()
    }

    /// Every value whose pattern matches, the most specific first; without a name only "any" matches.
    pub fn matching<'a, 'n>(&'a self, name: Option<&'n Hostname>) -> impl Iterator<Item = &'a T> + use<'a, 'n, T> {
        let exact = name.and_then(|name| self.exact.get(name));
        let suffixes = iter::successors(name.and_then(Hostname::parent), |suffix| Some(suffix.split_once('.')?.1));
        exact.into_iter().chain(suffixes.filter_map(|suffix| self.wildcard.get(suffix))).chain(&self.any)
    }

    /// The value of exactly this pattern.
    pub fn get(&self, pattern: &HostPattern) -> Option<&T> {
        match pattern {
            HostPattern::Any => self.any.as_ref(),
            HostPattern::Wildcard(suffix) => self.wildcard.get(suffix),
            HostPattern::Exact(name) => self.exact.get(name),
        }
    }

    /// The value of exactly this pattern, made by `default` if there is none.
    pub fn entry_or_insert_with(&mut self, pattern: HostPattern, default: impl FnOnce() -> T) -> &mut T {
        match pattern {
            HostPattern::Any => self.any.get_or_insert_with(default),
            HostPattern::Wildcard(suffix) => self.wildcard.entry(suffix).or_insert_with(default),
            HostPattern::Exact(name) => self.exact.entry(name).or_insert_with(default),
        }
    }

    /// Puts `value` at `pattern` unless a value is there already; says whether it was put.
    ///
    /// Whoever comes first keeps the place, so a map is filled in order of precedence.
    pub fn insert_first(&mut self, pattern: HostPattern, value: T) -> bool {
        if self.get(&pattern).is_some() {
            return false;
        }
        self.entry_or_insert_with(pattern, || value);
        true
    }

    /// Every value with its pattern, the most specific first.
    pub fn iter(&self) -> impl Iterator<Item = (HostPattern, &T)> {
        let exact = self.exact.iter().map(|(name, value)| (HostPattern::Exact(name.clone()), value));
        let wildcard = self.wildcard.iter().map(|(suffix, value)| (HostPattern::Wildcard(suffix.clone()), value));
        let any = self.any.iter().map(|value| (HostPattern::Any, value));
        let mut entries: Vec<_> = exact.chain(wildcard).chain(any).collect();
        entries.sort_by(|(left, _), (right, _)| right.cmp(left));
        entries.into_iter()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.any.is_none()
    }
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), any: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Hostname {
        Hostname::parse(text).unwrap()
    }

    fn pattern(text: &str) -> HostPattern {
        if text == "*" { HostPattern::Any } else { HostPattern::parse(text).unwrap() }
    }

    fn map(patterns: &[&'static str]) -> HostMap<&'static str> {
        let mut map = HostMap::default();
        for text in patterns {
            assert!(map.insert_first(pattern(text), *text), "{text} is there twice");
        }
        map
    }

    #[test]
    fn the_most_specific_pattern_wins() {
        let map = map(&["*", "*.com", "*.example.com", "a.example.com"]);
        let found = |text: &str| *map.find(Some(&name(text))).unwrap();
        assert_eq!(found("a.example.com"), "a.example.com");
        assert_eq!(found("b.example.com"), "*.example.com");
        assert_eq!(found("x.a.example.com"), "*.example.com");
        assert_eq!(found("example.com"), "*.com");
        assert_eq!(found("example.org"), "*");
        assert_eq!(map.find(None), Some(&"*"));
    }

    #[test]
    fn without_a_name_only_any_matches() {
        assert_eq!(map(&["*.com", "a.com"]).find(None), None);
    }

    #[test]
    fn all_that_match_come_in_order_of_precedence() {
        let map = map(&["*", "*.com", "*.example.com", "a.example.com", "*.org"]);
        let found: Vec<_> = map.matching(Some(&name("a.example.com"))).copied().collect();
        assert_eq!(found, ["a.example.com", "*.example.com", "*.com", "*"]);
    }

    #[test]
    fn whoever_comes_first_keeps_the_place() {
        let mut map = HostMap::default();
        for text in ["*", "*.com", "a.com"] {
            assert!(map.insert_first(pattern(text), 1));
            assert!(!map.insert_first(pattern(text), 2));
            assert_eq!(map.get(&pattern(text)), Some(&1));
        }
    }

    proptest! {
        /// The fast look-up and the algebra of `names` say the same.
        #[test]
        fn a_look_up_finds_what_the_patterns_say(
            texts in prop::collection::hash_set("(\\*\\.)?[ab](\\.[ab]){0,2}|\\*", 0..8),
            asked in "[ab](\\.[ab]){0,3}",
        ) {
            let (asked, mut map) = (name(&asked), HostMap::default());
            for text in &texts {
                map.insert_first(pattern(text), pattern(text));
            }
            let mut expected: Vec<_> =
                texts.iter().map(|text| pattern(text)).filter(|pattern| pattern.matches(&asked)).collect();
            expected.sort_by(|left, right| right.cmp(left));
            let found: Vec<_> = map.matching(Some(&asked)).cloned().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
