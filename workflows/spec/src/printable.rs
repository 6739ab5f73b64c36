//! Makes external text safe to display: [`printable`].

use std::borrow::Cow;

/// The text with control characters, direction marks and invisible characters as escapes: a name in a workflow file, a path or a
/// parameter cannot move the cursor of a terminal or display its letters in another order. Line breaks are also escaped, see
/// [`printable_lines`].
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// [`printable`] for messages of several lines, which keeps line breaks.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c == '\n')
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_hidden(c) && !stays(c)) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hidden(c) && !stays(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Control characters (Cc), direction marks (Unicode Standard Annex 9), and characters that have no glyph or end a line.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_escaped_and_the_rest_stays() {
        let cases = [
            ("train[chunk=64]#2", "train[chunk=64]#2"),
            ("größe-α-語", "größe-α-語"),
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\u{0}"),
            ("\u{9b}2J\u{200b}", "\\u{9b}2J\\u{200b}"),
        ];
        for (text, expected) in cases {
            assert_eq!(printable(text), expected);
        }
        assert_eq!(printable_lines("a\nb\u{1b}"), "a\nb\\u{1b}");
    }
}
