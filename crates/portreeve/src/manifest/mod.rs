//! A directory of manifests, read so that every complaint can name file, line and field.

mod document;
mod field_path;
mod finding;

pub use document::Document;
pub use field_path::{FieldPath, Segment};
pub use finding::{Finding, Place, Severity};
