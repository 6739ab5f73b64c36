//! Splits the text of a formula into tokens with their positions.

use super::model::FormulaError;

/// A token with its position, in characters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub kind: Kind,
    pub at: usize,
    pub length: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Number(f64),
    /// The name of a job, an axis or a function.
    Name(String),
    /// The name after a dot.
    Metric(String),
    /// The value after `=` in brackets.
    Value(String),
    Symbol(&'static str),
    End,
}

impl Token {
    /// Its name in messages.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Number(number) => format!("the number {number}"),
            Kind::Name(name) => format!("`{name}`"),
            Kind::Metric(metric) => format!("the metric `{metric}`"),
            Kind::Value(value) => format!("the value `{value}`"),
            Kind::Symbol(symbol) => format!("`{symbol}`"),
            Kind::End => "the end".to_owned(),
        }
    }
}

/// Longer symbols come before their prefixes.
const SYMBOLS: &[&str] =
    &["<=", ">=", "==", "!=", "<", ">", "=", "+", "-", "*", "/", "^", "(", ")", "[", "]", ",", ":", "."];

/// The tokens of a text, the last of which is [`Kind::End`].
pub(super) fn tokenize(text: &str) -> Result<Vec<Token>, FormulaError> {
    let chars: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { chars: &chars, at: 0, tokens: Vec::new() };
    while let Some(&c) = chars.get(lexer.at) {
        if c.is_whitespace() {
            lexer.at += 1;
            continue;
        }
        lexer.read_token(c)?;
    }
    lexer.tokens.push(Token { kind: Kind::End, at: chars.len(), length: 1 });
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    chars: &'a [char],
    at: usize,
    tokens: Vec<Token>,
}

fn is_name_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn push(&mut self, kind: Kind, from: usize) {
        self.tokens.push(Token { kind, at: from, length: self.at - from });
    }

    fn follows(&self, symbol: &str) -> bool {
        self.tokens.last().is_some_and(|token| matches!(token.kind, Kind::Symbol(last) if last == symbol))
    }

    fn read_token(&mut self, c: char) -> Result<(), FormulaError> {
        let from = self.at;
        if self.follows(".") && (is_name_char(c) || matches!(c, '\'' | '"')) {
            let metric = match c {
                '\'' | '"' => self.read_quoted(c)?,
                _ => self.read_name(&['/', '-', '*', '.']),
            };
            self.push(Kind::Metric(metric), from);
        } else if self.follows("=") {
            let value = match c {
                '\'' | '"' => self.read_quoted(c)?,
                _ => self.read_bare_value(),
            };
            self.push(Kind::Value(value), from);
        } else if c.is_ascii_digit() {
            let number = self.read_number()?;
            self.push(Kind::Number(number), from);
        } else if is_name_char(c) {
            let name = self.read_name(&['-']);
            self.push(Kind::Name(name), from);
        } else {
            let rest: String = self.chars[self.at..].iter().take(2).collect();
            let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) else {
                return Err(FormulaError {
                    at: from,
                    length: 1,
                    message: format!("`{c}` is not valid in a formula"),
                    hint: Some(
                        "for example `ratio(mean(a[states=64].test/loss), mean(b.test/loss))`; see docs/src/claims.md"
                            .to_owned(),
                    ),
                });
            };
            self.at += symbol.len();
            self.push(Kind::Symbol(symbol), from);
        }
        Ok(())
    }

    /// A name; the characters `inner` are part of it if a letter, a digit or `*` follows.
    fn read_name(&mut self, inner: &[char]) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek(0) {
            let joins = inner.contains(&c)
                && self.peek(1).is_some_and(|next| is_name_char(next) || next == '*' || c == '*' && next == '/');
            let last = c == '*' && name.ends_with('/');
            if !is_name_char(c) && !joins && !last {
                break;
            }
            name.push(c);
            self.at += 1;
        }
        name
    }

    fn read_bare_value(&mut self) -> String {
        let mut value = String::new();
        while let Some(c) = self.peek(0).filter(|c| !matches!(c, ',' | ']')) {
            value.push(c);
            self.at += 1;
        }
        let trimmed = value.trim_end().to_owned();
        self.at -= value.chars().count() - trimmed.chars().count();
        trimmed
    }

    fn read_quoted(&mut self, quote: char) -> Result<String, FormulaError> {
        let from = self.at;
        let inside: String = self.chars[from + 1..].iter().take_while(|c| **c != quote).collect();
        let end = from + 1 + inside.chars().count();
        if self.chars.get(end).is_none() {
            let message = format!("the quote {quote} is not closed");
            return Err(FormulaError { at: from, length: 1, message, hint: Some(format!("close it with {quote}")) });
        }
        self.at = end + 1;
        Ok(inside)
    }

    fn read_number(&mut self) -> Result<f64, FormulaError> {
        let from = self.at;
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let digits = |lexer: &mut Self| {
            while digit(lexer.peek(0)) || lexer.peek(0) == Some('_') {
                lexer.at += 1;
            }
        };
        digits(self);
        if self.peek(0) == Some('.') && digit(self.peek(1)) {
            self.at += 1;
            digits(self);
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if digit(self.peek(1 + sign)) {
                self.at += 1 + sign;
                digits(self);
            }
        }
        let text: String = self.chars[from..self.at].iter().filter(|c| **c != '_').collect();
        let percent = self.peek(0) == Some('%');
        self.at += usize::from(percent);
        if let Some(c) = self.peek(0).filter(|c| is_name_char(*c)) {
            let message = format!("`{c}` cannot directly follow a number");
            let hint = "write units in `claimed`; in a formula, write the number in the metric's unit".to_owned();
            return Err(FormulaError { at: self.at, length: 1, message, hint: Some(hint) });
        }
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| FormulaError {
            at: from,
            length: self.at - from,
            message: format!("`{text}` is not a finite number"),
            hint: None,
        })?;
        Ok(if percent { number / 100.0 } else { number })
    }
}
