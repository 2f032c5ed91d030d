use std::fmt;

/// The way from the root of an object to one of its fields.
///
/// Shown as people write it: `spec.routing.tcp[0].listener.port`, `metadata.labels["a.b/c"]`; the root is shown as nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

/// One step of a [`FieldPath`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// Into the value of a mapping's key.
    Key(String),
    /// Into an item of a sequence, counted from 0.
    Index(usize),
}

impl FieldPath {
    /// The steps from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether this is the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of a key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.join(Segment::Key(key.to_owned()))
    }

    /// The path of an item below this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.join(Segment::Index(index))
    }

    /// `path` taken from here instead of from the root.
    #[must_use]
    pub fn below(&self, path: &Self) -> Self {
        Self(self.0.iter().chain(&path.0).cloned().collect())
    }

    fn join(&self, segment: Segment) -> Self {
        Self(self.0.iter().cloned().chain([segment]).collect())
    }
}

impl FromIterator<Segment> for FieldPath {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        Self(segments.into_iter().collect())
    }
}

impl From<&serde_path_to_error::Path> for FieldPath {
    /// Steps that have no place in a manifest (enum variants, unknown ones) are left out.
    fn from(path: &serde_path_to_error::Path) -> Self {
        path.iter()
            .filter_map(|segment| match segment {
                serde_path_to_error::Segment::Seq { index } => Some(Segment::Index(*index)),
                serde_path_to_error::Segment::Map { key } => Some(Segment::Key(key.clone())),
                serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => None,
            })
            .collect()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if !is_plain(key) => write!(f, "[{key:?}]")?,
                Segment::Key(key) if position == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_people_write_them() {
        let root = FieldPath::default();
        assert_eq!(root.to_string(), "");
        let port = root.key("spec").key("routing").key("tcp").index(0).key("listener").key("port");
        assert_eq!(port.to_string(), "spec.routing.tcp[0].listener.port");
        assert_eq!(root.key("metadata").key("labels").key("a.b/c").to_string(), r#"metadata.labels["a.b/c"]"#);
        assert_eq!(root.key("items").index(1).below(&root.key("kind")).to_string(), "items[1].kind");
    }
}
