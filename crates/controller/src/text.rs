//! Texts about failures.

use std::error::Error;

/// What an error says, and what its causes say that it does not say itself.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    // Of an answer of the API server only its words; kube adds the whole answer in Rust's own notation.
    if let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() {
        return if status.message.is_empty() { format!("status {}", status.code) } else { status.message.clone() };
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
