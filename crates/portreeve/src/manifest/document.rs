//! From text to documents in which every node knows its line.

use std::fmt;
use std::sync::Arc;

use portreeve_schema::{Path, Segment};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{MessageFormatter, Spanned, UserMessageFormatter};

use super::{Finding, Place};

/// One YAML document of a file.
#[derive(Debug)]
pub struct Document {
    file: Arc<str>,
    /// How many lines of the file stand before it.
    lines_before: u32,
    root: Spanned<Node>,
}

/// A value, as it stands in the text.
#[derive(Debug)]
enum Node {
    Scalar(Value),
    Sequence(Vec<Spanned<Node>>),
    Mapping(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Document {
    /// Every document of a file, in order; one that cannot be read does not take the others with it.
    ///
    /// Documents that hold nothing but comments are left out. JSON is read too, as the YAML that it is.
    pub fn parse_all(file: &Arc<str>, text: &str) -> Vec<Result<Self, Finding>> {
        split(text).filter_map(|(lines_before, text)| Self::parse(file, lines_before, text).transpose()).collect()
    }

    fn parse(file: &Arc<str>, lines_before: u32, text: &str) -> Result<Option<Self>, Finding> {
        if text.lines().all(is_without_content) {
            return Ok(None);
        }
        let options = serde_saphyr::options! { with_snippet: false, budget: budget(text) };
        let root = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options);
        let root = root.map_err(|error| unreadable(file, lines_before, &error))?;
        let is_empty = matches!(root.value, Node::Scalar(Value::Null));
        Ok((!is_empty).then(|| Self { file: file.clone(), lines_before, root }))
    }

    /// The document as JSON.
    pub fn to_json(&self) -> Value {
        self.root.value.to_json()
    }

    /// Where a field stands; when it is absent, where the nearest part of its path that is there stands.
    pub fn place(&self, field: &Path) -> Place {
        let line = self.lines_before + line_of(&self.root, &field.0);
        Place { file: self.file.clone(), line: Some(line), field: field.clone() }
    }
}

/// What a text may cost: as much as its length explains, so that a `List` of a whole cluster is read, and aliases that
/// grow into far more than was written are not.
fn budget(text: &str) -> Option<serde_saphyr::Budget> {
    let usual = serde_saphyr::Budget::default();
    // A node takes at least one byte, and at most two events.
    let (max_nodes, max_events) = (usual.max_nodes.max(text.len()), usual.max_events.max(2 * text.len()));
    serde_saphyr::budget! { max_nodes: max_nodes, max_events: max_events }
}

/// Cuts at the document markers: `---` at the start of a line ends a document wherever it stands, even within a block
/// scalar (YAML 1.2.2, 9.1.2), so this needs no parser. Yields each document with the number of lines before it.
fn split(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let mut rest = Some((0, text));
    std::iter::from_fn(move || {
        let (lines_before, text) = rest.take()?;
        let marker = next_marker(text);
        let (document, tail) = text.split_at(marker.map_or(text.len(), |(_, offset)| offset));
        rest = marker.map(|(line, _)| (lines_before + line, tail));
        Some((lines_before, document))
    })
}

/// The line and byte offset of the first marker that does not open `text` itself.
fn next_marker(text: &str) -> Option<(u32, usize)> {
    let mut offset = 0;
    let starts = text.split_inclusive('\n').map(|line| {
        offset += line.len();
        (offset - line.len(), line)
    });
    let mut numbered = (0..).zip(starts).skip(1);
    numbered.find(|(_, (_, line))| is_marker(line)).map(|(number, (offset, _))| (number, offset))
}

fn is_marker(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Comments, markers and directives make no document.
fn is_without_content(line: &str) -> bool {
    let line = line.trim_start_matches('\u{feff}').trim();
    line.is_empty() || line == "---" || line == "..." || line.starts_with(['#', '%'])
}

fn unreadable(file: &Arc<str>, lines_before: u32, error: &serde_saphyr::Error) -> Finding {
    let line = error.location().map_or(1, |location| narrow(location.line()));
    let message = UserMessageFormatter.format_message(error.without_snippet()).into_owned();
    Finding::error(Place::of_line(file, lines_before + line), format!("this is not valid YAML: {message}"))
}

fn line_of(node: &Spanned<Node>, path: &[Segment]) -> u32 {
    let own = narrow(node.referenced.line());
    let Some((first, rest)) = path.split_first() else { return own };
    match (&node.value, first) {
        (Node::Sequence(items), Segment::Index(index)) => items.get(*index).map_or(own, |item| line_of(item, rest)),
        (Node::Mapping(entries), Segment::Key(name)) => match entries.iter().find(|(key, _)| key.value == *name) {
            // A field is where its key is, not where its value starts.
            Some((key, _)) if rest.is_empty() => narrow(key.referenced.line()),
            Some((key, value)) => line_of(value, rest).max(narrow(key.referenced.line())),
            None => own,
        },
        _ => own,
    }
}

fn narrow(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

impl Node {
    fn to_json(&self) -> Value {
        match self {
            Self::Scalar(value) => value.clone(),
            Self::Sequence(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Mapping(entries) => {
                let fields = entries.iter().map(|(key, value)| (key.value.clone(), value.value.to_json()));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can hold")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        let number =
            Number::from_f64(value).ok_or_else(|| E::custom("JSON has no such number; quote it if it is text"))?;
        Ok(Node::Scalar(number.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Node::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = mapping.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Mapping(entries))
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
