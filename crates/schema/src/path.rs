use std::fmt;

/// Where a value is in an object; displayed as `spec.routing.tcp[0].name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<Segment>);

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// To the field of this name.
    Key(String),
    /// To the item at this place, counted from 0.
    Index(usize),
}

impl Path {
    /// The path of a field of the value at this path.
    #[must_use]
    pub fn key(&self, name: &str) -> Self {
        self.with(Segment::Key(name.to_owned()))
    }

    /// The path of an item of the list at this path.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    fn with(&self, segment: Segment) -> Self {
        Self(self.0.iter().cloned().chain([segment]).collect())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if key.contains(['.', '/']) => write!(f, "['{key}']")?,
                Segment::Key(key) if place == 0 => f.write_str(key)?,
                Segment::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}
