//! The tokens of an expression: enough of its grammar to find its end, its names and its multiplications.
//!
//! minijinja parses and evaluates the expressions. It does not provide the positions of names, which messages need, nor
//! a limit for `"text" * 100000000`; both are derived from the tokens, since an expression binds no names.

use std::ops::Range;

/// A token of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: Kind,
    /// Its position in the text, in bytes.
    pub at: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Name(String),
    /// A quoted text without the quotes; escapes are kept.
    Text(String),
    Number,
    Open(char),
    Close(char),
    /// Any other symbol: `.`, `|`, `*`, `**`, `==`, ...
    Sign(&'static str),
    /// A character that cannot start a token.
    Stray,
}

const SIGNS: &[&str] =
    &["**", "//", "==", "!=", "<=", ">=", "=", "<", ">", "*", "/", "%", "+", "-", "~", "|", ".", ",", ":"];

impl Token {
    fn is(&self, sign: &str) -> bool {
        self.kind == Kind::Sign(sign_of(sign))
    }
}

/// The element of [`SIGNS`], for its lifetime.
fn sign_of(sign: &str) -> &'static str {
    SIGNS.iter().find(|known| **known == sign).copied().unwrap_or("")
}

/// The tokens from the start of `text` up to `}}` outside of all brackets, and the position of `}}`; up to the end of
/// `text` and `None` if it is missing.
pub(crate) fn scan(text: &str) -> (Vec<Token>, Option<usize>) {
    let mut tokens = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if depth == 0 && rest.starts_with("}}") {
            return (tokens, Some(at));
        }
        let (kind, length) = match c {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '(' | '[' | '{' => {
                depth += 1;
                (Kind::Open(c), 1)
            }
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                (Kind::Close(c), 1)
            }
            '"' | '\'' => quoted(rest, c),
            c if c.is_ascii_digit() => (Kind::Number, number(rest)),
            c if c == '_' || c.is_alphabetic() => {
                let length = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
                (Kind::Name(rest[..length].to_owned()), length)
            }
            c => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Kind::Sign(sign), sign.len()),
                None => (Kind::Stray, c.len_utf8()),
            },
        };
        tokens.push(Token { kind, at: at..at + length });
        at += length;
    }
    (tokens, None)
}

/// The nesting depth of brackets.
pub(crate) fn depth(tokens: &[Token]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for token in tokens {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn quoted(rest: &str, quote: char) -> (Kind, usize) {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return (Kind::Text(rest[1..at].to_owned()), at + 1),
            _ => {}
        }
    }
    (Kind::Stray, rest.len())
}

/// The length of a number: digits, underscores, letters (`0x1f`, `1e5`), a fraction, a signed exponent.
fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        let before = bytes[at - 1];
        let fraction = byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
        let exponent = matches!(byte, b'+' | b'-') && matches!(before, b'e' | b'E') && !rest.starts_with("0x");
        if !(byte.is_ascii_alphanumeric() || byte == b'_' || fraction || exponent) {
            break;
        }
        at += 1;
    }
    at
}

/// A name with its attributes: `needs.data.outputs['x']` is `needs` with three steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub root: Step,
    pub steps: Vec<Step>,
    /// Whether a computed attribute follows, as in `params[matrix.key]`.
    pub open: bool,
    /// If it is the first argument of `best(..)`: the rest of that call, and the attributes after it.
    pub best: Option<Best>,
}

/// A call such as `best(needs.train, 'valid/loss', mode='min').matrix.states`, after its first argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Best {
    /// The metric, if it is a literal.
    pub metric: Option<Step>,
    /// Whether `mode` is given.
    pub mode: bool,
    /// The attributes that are read from the cell.
    pub steps: Vec<Step>,
}

/// A name with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub name: String,
    pub at: Range<usize>,
}

/// The names that an expression uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Variables, in order.
    pub paths: Vec<Path>,
    pub functions: Vec<Step>,
    pub filters: Vec<Step>,
    pub tests: Vec<Step>,
    /// Slices such as `[1:3]`, by the position of the colon.
    pub slices: Vec<Range<usize>>,
}

const WORDS: &[&str] =
    &["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None"];

/// Finds the names of an expression.
pub(crate) fn names(tokens: &[Token]) -> Names {
    let mut found = Names::default();
    let mut brackets = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        at += 1;
        match &token.kind {
            Kind::Open(c) => brackets.push(*c),
            Kind::Close(_) => drop(brackets.pop()),
            Kind::Sign(":") if brackets.last() == Some(&'[') => found.slices.push(token.at.clone()),
            Kind::Name(name) => {
                let step = Step { name: name.clone(), at: token.at.clone() };
                let next = tokens.get(at);
                if before.is_some_and(|token| token.is("|")) {
                    found.filters.push(step);
                } else if is_test(tokens, at - 1) {
                    found.tests.push(step);
                } else if before.is_some_and(|token| token.is(".")) || WORDS.contains(&name.as_str()) {
                    // An attribute of a computed value, or a keyword.
                } else if next.is_some_and(|token| token.kind == Kind::Open('(')) {
                    found.functions.push(step);
                } else if !next.is_some_and(|token| token.is("=")) {
                    let (mut path, length) = path(step, &tokens[at..]);
                    path.best = best_call(tokens, at - 1, at + length);
                    at += length;
                    found.paths.push(path);
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether the name at this index is after `is` or `is not`.
fn is_test(tokens: &[Token], at: usize) -> bool {
    let word = |back: usize, word: &str| {
        let token = at.checked_sub(back).and_then(|at| tokens.get(at));
        token.is_some_and(|token| matches!(&token.kind, Kind::Name(name) if name == word))
    };
    let named = |word: &str| matches!(&tokens[at].kind, Kind::Name(name) if name == word);
    (word(1, "is") && !named("not")) || (word(1, "not") && word(2, "is"))
}

/// The call of `best` whose first argument is the path from the token `from` to the token `to`.
fn best_call(tokens: &[Token], from: usize, to: usize) -> Option<Best> {
    let open = from.checked_sub(1)?;
    let called = matches!(&tokens.get(open.checked_sub(1)?)?.kind, Kind::Name(name) if name == "best");
    if !called || tokens[open].kind != Kind::Open('(') {
        return None;
    }
    let metric = match tokens.get(to..to + 3) {
        Some([comma, Token { kind: Kind::Text(name), at }, next])
            if comma.is(",") && (next.is(",") || next.kind == Kind::Close(')')) =>
        {
            Some(Step { name: name.clone(), at: at.clone() })
        }
        _ => None,
    };
    let close = closing(tokens, open)?;
    let mode = tokens[to..close]
        .windows(2)
        .any(|two| matches!(&two[0].kind, Kind::Name(name) if name == "mode") && two[1].is("="));
    let root = Step { name: String::new(), at: 0..0 };
    Some(Best { metric, mode, steps: path(root, &tokens[close + 1..]).0.steps })
}

/// Follows `.name` and `['name']` after a root; also returns the number of tokens.
fn path(root: Step, rest: &[Token]) -> (Path, usize) {
    let mut path = Path { root, steps: Vec::new(), open: false, best: None };
    let mut at = 0;
    loop {
        match rest.get(at..).unwrap_or_default() {
            [dot, Token { kind: Kind::Name(name), at: place }, ..] if dot.is(".") => {
                path.steps.push(Step { name: name.clone(), at: place.clone() });
                at += 2;
            }
            [
                Token { kind: Kind::Open('['), .. },
                Token { kind: Kind::Text(name), at: place },
                Token { kind: Kind::Close(']'), .. },
                ..,
            ] => {
                path.steps.push(Step { name: name.clone(), at: place.clone() });
                at += 3;
            }
            [Token { kind: Kind::Open('['), .. }, ..] => {
                path.open = true;
                return (path, at);
            }
            _ => return (path, at),
        }
    }
}

/// The expression with the filter [`NUMBER`](crate::language::NUMBER) after both operands of each `*`, so that it
/// multiplies only numbers: minijinja repeats texts and lists with `*`, up to 100 MB each.
pub(crate) fn guard_products(text: &str, tokens: &[Token], filter: &str) -> String {
    let mut places: Vec<usize> = Vec::new();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.is("*")) {
        places.push(token.at.start);
        places.extend(operand_end(tokens, index + 1));
    }
    places.sort_unstable();
    let mut guarded = String::with_capacity(text.len() + places.len() * (filter.len() + 2));
    let mut from = 0;
    for place in places {
        guarded.push_str(&text[from..place]);
        guarded.push('|');
        guarded.push_str(filter);
        guarded.push(' ');
        from = place;
    }
    guarded.push_str(&text[from..]);
    guarded
}

/// The end, in bytes, of the operand that starts with the token `at`: signs, one value, and its attributes.
fn operand_end(tokens: &[Token], mut at: usize) -> Option<usize> {
    while tokens.get(at).is_some_and(|token| token.is("-") || token.is("+")) {
        at += 1;
    }
    let mut last = closing(tokens, at)?;
    loop {
        let next = tokens.get(last + 1);
        if next.is_some_and(|token| token.is(".") || token.is("|")) {
            last = (last + 2).min(tokens.len() - 1);
        } else if next.is_some_and(|token| matches!(token.kind, Kind::Open('(' | '['))) {
            last = closing(tokens, last + 1)?;
        } else {
            return Some(tokens[last].at.end);
        }
    }
}

/// The token that closes the bracket at this index; the index itself if there is no bracket.
fn closing(tokens: &[Token], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let names = names(&scan(text).0);
        let shown = names.paths.iter().map(|path| {
            let steps = path.steps.iter().map(|step| format!(".{}", step.name)).collect::<String>();
            format!("{}{steps}{}", path.root.name, if path.open { "[..]" } else { "" })
        });
        shown.collect()
    }

    #[test]
    fn the_end_is_found_past_texts_and_brackets() {
        for (text, end) in [
            ("a }} b", Some(2)),
            ("'}}' }}", Some(5)),
            ("{'a': {'b': 1}} }}", Some(16)),
            ("'\\'}}' }}", Some(7)),
            ("a", None),
            ("'a }}", None),
        ] {
            assert_eq!(scan(text).1, end, "{text}");
        }
    }

    #[test]
    fn names_are_found_with_their_steps() {
        assert_eq!(paths("needs.data.outputs['x'] ~ params.a"), ["needs.data.outputs.x", "params.a"]);
        assert_eq!(paths("params[matrix.key] + 1"), ["params[..]", "matrix.key"]);
        assert_eq!(paths("range(matrix.n, step=replicate)"), ["matrix.n", "replicate"]);
        assert_eq!(paths("a is not defined and b is odd or c | default(d)"), ["a", "b", "c", "d"]);
        assert_eq!(paths("(a).b.c if true else 1e5.d"), ["a"]);
        let names = names(&scan("range(3) | map(attribute='x') is odd").0);
        assert_eq!(names.functions[0].name, "range");
        assert_eq!(names.filters[0].name, "map");
        assert_eq!(names.tests[0].name, "odd");
    }

    #[test]
    fn both_sides_of_a_product_are_guarded() {
        for (text, guarded) in [
            ("a * b", "a |n * b|n "),
            ("a.b[0](1) * -c.d|int(2) + 1", "a.b[0](1) |n * -c.d|int(2)|n  + 1"),
            ("2 * (a + 'x') ** 2", "2 |n * (a + 'x')|n  ** 2"),
            ("a * b * c", "a |n * b|n  |n * c|n "),
            ("a ** b", "a ** b"),
            ("'*'", "'*'"),
            ("a *", "a |n *"),
            ("a * (", "a |n * ("),
        ] {
            assert_eq!(guard_products(text, &scan(text).0, "n"), guarded);
        }
    }
}
