//! A directory of manifests, read so that every complaint can name file, line and field.

mod directory;
mod document;
mod finding;
mod read;

pub use directory::{Directory, Reading, Unreadable};
pub use document::Document;
pub use finding::{Finding, Place, Severity};
pub use read::{FileContents, Manifest, read, summarize_ignored};
