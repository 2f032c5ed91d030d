use std::fmt;
use std::sync::Arc;

use portreeve_schema::Path;
use serde::Serialize;

/// Something about the manifests that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, and what to do about it.
    pub message: String,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// What stands there cannot be used.
    Error,
    /// It is used, but perhaps not as its author thinks.
    Warning,
    /// For information.
    Info,
}

/// A place in a manifest; shown as `file:line: field`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file's path, as it was reached.
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    /// Counted from 1; absent when it is the file as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Empty when it is the document as a whole.
    #[serde(skip_serializing_if = "is_root", serialize_with = "as_text")]
    pub field: Path,
}

impl Place {
    /// A file as a whole.
    pub fn of_file(file: &Arc<str>) -> Self {
        Self { file: file.clone(), line: None, field: Path::default() }
    }

    /// A line of a file.
    pub fn of_line(file: &Arc<str>, line: u32) -> Self {
        Self { file: file.clone(), line: Some(line), field: Path::default() }
    }
}

impl Finding {
    /// Something that cannot be used.
    pub fn error(place: Place, message: impl Into<String>) -> Self {
        Self { place, severity: Severity::Error, message: message.into() }
    }

    /// Something that may not be what its author thinks.
    pub fn warning(place: Place, message: impl Into<String>) -> Self {
        Self { place, severity: Severity::Warning, message: message.into() }
    }

    /// Something to know.
    pub fn info(place: Place, message: impl Into<String>) -> Self {
        Self { place, severity: Severity::Info, message: message.into() }
    }

    /// Whether what stands there cannot be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        write!(f, "{}: {severity}: {}", self.place, self.message)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !is_root(&self.field) {
            write!(f, ": {}", self.field)?;
        }
        Ok(())
    }
}

fn is_root(path: &Path) -> bool {
    path.0.is_empty()
}

fn as_text<T: fmt::Display, S: serde::Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
