//! Names that have to fit where they are used.

use std::borrow::Cow;

use portreeve_api::names::MAX_LABEL_VALUE;
use sha2::{Digest, Sha256};

/// Digits of the hash that stands for the rest of a name that is too long.
const HASH_DIGITS: usize = 8;

/// `name` as the value of a label: itself when it fits, else its beginning and a hash of all of it.
pub(crate) fn label_value(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_LABEL_VALUE {
        return Cow::Borrowed(name);
    }
    let beginning: String = name.chars().take(MAX_LABEL_VALUE - HASH_DIGITS - 1).collect();
    let hash = Sha256::digest(name).iter().take(HASH_DIGITS / 2).fold(0_u32, |hash, byte| hash << 8 | u32::from(*byte));
    Cow::Owned(format!("{beginning}-{hash:0HASH_DIGITS$x}"))
}

/// Names in a sentence, at most ten of them.
pub(crate) fn list<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let mut names = names.into_iter();
    let first: Vec<&str> = names.by_ref().take(10).map(String::as_str).collect();
    let more = if names.next().is_some() { " and others" } else { "" };
    format!("{}{more}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// traps: 25
    #[test]
    fn a_long_name_becomes_a_label_that_tells_it_from_others() {
        let (one, other) = ("a".repeat(70), "a".repeat(71));
        assert_eq!(label_value(&one).len(), MAX_LABEL_VALUE);
        assert_ne!(label_value(&one), label_value(&other));
        assert_eq!(label_value("app"), "app");
    }
}
