//! Tables that fit the terminal, and marks that it can show.

use std::io::IsTerminal;

use comfy_table::presets::{ASCII_BORDERS_ONLY_CONDENSED, UTF8_BORDERS_ONLY};
use comfy_table::{ContentArrangement, Table};
use terminal_size::{Width, terminal_size};

use crate::report::State;

/// What the place where output goes can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// How wide it is; `None` where lines may be as long as they like, such as in a file.
    pub width: Option<u16>,
    /// Whether it shows more than ASCII.
    pub is_unicode: bool,
}

impl Style {
    /// That of standard output.
    pub fn of_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let width = terminal_size().map(|(Width(width), _)| width).filter(|_| is_terminal);
        Self { width, is_unicode: locale_is_utf8(|name| std::env::var(name).ok()) }
    }

    /// A table with these columns.
    pub fn table(self, columns: &[&str]) -> Table {
        let mut table = Table::new();
        table.load_style(if self.is_unicode { UTF8_BORDERS_ONLY } else { ASCII_BORDERS_ONLY_CONDENSED });
        if let Some(width) = self.width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table.set_header(columns);
        table
    }

    /// Whether something is as it should be.
    pub fn mark(self, is_good: bool) -> &'static str {
        self.state_mark(if is_good { State::Ready } else { State::Refused })
    }

    /// Whether something is as it should be, as far as is known.
    pub fn state_mark(self, state: State) -> &'static str {
        match (self.is_unicode, state) {
            (true, State::Ready) => "✓",
            (true, State::Pending) => "…",
            (true, State::Refused) => "✗",
            (false, State::Ready) => "ok",
            (false, State::Pending) => "..",
            (false, State::Refused) => "FAIL",
        }
    }
}

/// The first that is set and not empty decides (POSIX, 8.2).
fn locale_is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_and_say_everything() {
        let long = "a message of many words that does not fit on one line of a narrow terminal";
        for is_unicode in [true, false] {
            let style = Style { width: Some(40), is_unicode };
            let mut table = style.table(&["NAME", "MESSAGE"]);
            table.add_row(["x", long]);
            let text = table.to_string();
            assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
            assert!(long.split(' ').all(|word| text.contains(word)), "{text}");
            assert_eq!(text.is_ascii(), !is_unicode, "{text}");
        }
    }

    #[test]
    fn the_locale_says_whether_there_is_more_than_ascii() {
        let of = |set: &'static [(&str, &str)]| {
            locale_is_utf8(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(of(&[("LANG", "en_US.UTF-8")]) && of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(!of(&[]) && !of(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
    }
}
