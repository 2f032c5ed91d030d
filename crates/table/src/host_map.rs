use std::collections::HashMap;

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
        match name {
            None => self.any.as_ref(),
            Some(name) => self.find_named(name).or(self.any.as_ref()),
        }
    }

    fn find_named(&self, name: &Hostname) -> Option<&T> {
        if let Some(value) = self.exact.get(name) {
            return Some(value);
        }
        let mut rest = name.parent();
        while let Some(suffix) = rest {
            if let Some(value) = self.wildcard.get(suffix) {
                return Some(value);
            }
            rest = suffix.split_once('.').map(|(_, tail)| tail);
        }
        None
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
