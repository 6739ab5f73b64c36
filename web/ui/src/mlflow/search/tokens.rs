//! Words of filters and orders.

use super::super::error::ApiError;
use super::super::validation::shorten;

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a keyword or a number, without the quotes of its parts.
    Word {
        /// The parts between dots outside of quotes.
        parts: Vec<String>,
        /// Whether a part was quoted.
        quoted: bool,
    },
    /// A text in single or double quotes.
    Text(String),
    /// `=`, `!=`, `<`, `<=`, `>`, `>=`, `(`, `)` or `,`.
    Sign(&'static str),
}

impl Token {
    /// Whether it is this keyword.
    pub fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self, Token::Word { parts, quoted: false } if parts.len() == 1 && parts[0].eq_ignore_ascii_case(keyword))
    }
}

const SIGNS: [&str; 9] = ["!=", "<=", ">=", "=", "<", ">", "(", ")", ","];

/// Splits a text into words.
pub(super) fn split_tokens(text: &str) -> Result<Vec<Token>, ApiError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else if matches!(first, '\'' | '"') {
            let (inside, after) = quoted_part(rest, text)?;
            tokens.push(Token::Text(inside.to_owned()));
            rest = after;
        } else {
            let (word, after) = next_word(rest, text)?;
            tokens.push(word);
            rest = after;
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// The text between the quotes at the beginning of `rest`, and what follows them.
fn quoted_part<'a>(rest: &'a str, whole: &str) -> Result<(&'a str, &'a str), ApiError> {
    let unclosed = || ApiError::invalid(format!("A quote is not closed in '{}'", shorten(whole)));
    let quote = rest.chars().next().ok_or_else(unclosed)?;
    rest[1..].split_once(quote).ok_or_else(unclosed)
}

fn next_word<'a>(mut rest: &'a str, whole: &str) -> Result<(Token, &'a str), ApiError> {
    let (mut parts, mut quoted) = (vec![String::new()], false);
    while let Some(first) = rest.chars().next() {
        let last = parts.len() - 1;
        match first {
            '`' | '"' => {
                let (inside, after) = quoted_part(rest, whole)?;
                parts[last].push_str(inside);
                (rest, quoted) = (after, true);
            }
            '.' => {
                parts.push(String::new());
                rest = &rest[1..];
            }
            c if c.is_whitespace() || "=!<>(),'".contains(c) => break,
            c => {
                parts[last].push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    if parts.iter().all(String::is_empty) {
        return Err(ApiError::invalid(format!("Invalid clause(s) in filter string: '{}'", shorten(whole))));
    }
    Ok((Token::Word { parts, quoted }, rest))
}
