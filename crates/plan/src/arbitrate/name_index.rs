use std::collections::HashMap;

use portreeve_names::{HostPattern, Hostname};

/// Granted names as a tree over labels from the right, so that an overlap is found in as many steps as a name has
/// labels, however many names there are.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    root: Node,
}

/// A granted claim: its index, and the group that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    claim: usize,
    group: usize,
}

#[derive(Debug, Default)]
struct Node {
    children: HashMap<Box<str>, Node>,
    exact: Option<Grant>,
    wildcard: Option<Grant>,
    below: Below,
}

/// The first grants of two different groups strictly below a node. Two are enough to answer for any third group, and
/// for either of them.
#[derive(Clone, Copy, Debug, Default)]
struct Below([Option<Grant>; 2]);

impl NameIndex {
    /// The first grant of another group that shares a name with `hosts`.
    pub(crate) fn conflict(&self, group: usize, hosts: &HostPattern) -> Option<usize> {
        let (name, wildcard) = match hosts {
            HostPattern::Any => return None,
            HostPattern::Wildcard(suffix) => (suffix, true),
            HostPattern::Exact(name) => (name, false),
        };
        let foreign = |grant: &Option<Grant>| grant.filter(|grant| grant.group != group);
        let mut node = &self.root;
        let mut found = None;
        for label in labels(name) {
            found = found.or(foreign(&node.wildcard));
            let Some(child) = node.children.get(label) else { return found.map(|grant| grant.claim) };
            node = child;
        }
        let here = if wildcard {
            foreign(&node.wildcard).or_else(|| node.below.0.iter().find_map(&foreign))
        } else {
            foreign(&node.exact)
        };
        found.or(here).map(|grant| grant.claim)
    }

    /// Records a grant that [`NameIndex::conflict`] has let pass.
    pub(crate) fn insert(&mut self, claim: usize, group: usize, hosts: &HostPattern) {
        let grant = Grant { claim, group };
        let (name, wildcard) = match hosts {
            HostPattern::Any => return,
            HostPattern::Wildcard(suffix) => (suffix, true),
            HostPattern::Exact(name) => (name, false),
        };
        let mut node = &mut self.root;
        for label in labels(name) {
            node.below.note(grant);
            node = node.children.entry(label.into()).or_default();
        }
        let place = if wildcard { &mut node.wildcard } else { &mut node.exact };
        place.get_or_insert(grant);
        if wildcard {
            // `*.s` stands for names below `s`, so a wildcard further up meets it there too.
            node.below.note(grant);
        }
    }
}

impl Below {
    fn note(&mut self, grant: Grant) {
        match &mut self.0 {
            [first @ None, _] => *first = Some(grant),
            [Some(first), second @ None] if first.group != grant.group => *second = Some(grant),
            _ => {}
        }
    }
}

/// The labels from the right.
fn labels(name: &Hostname) -> impl Iterator<Item = &str> {
    name.as_str().rsplit('.')
}
