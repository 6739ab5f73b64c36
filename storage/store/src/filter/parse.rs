//! The language of filters.

use assay_server::RunStateName;
use assay_spec::{StepKind, nearest_name};

use super::condition::{
    Condition, Matching, NumberField, NumberTest, Order, Places, RunFilter, TextField, TextTest, ValueKey, ValueTest,
};
use super::literal::{Literal, parse_duration, parse_moment, parse_number};

/// The longest filter, in characters.
const LONGEST: usize = 2000;
/// The most conditions: each is a separate query.
const MOST: usize = 20;

/// What is wrong with a filter. Places are counted in characters from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("character {}: {message}", start + 1)]
pub struct FilterError {
    /// What is wrong, in a lower-case fragment.
    pub message: String,
    /// What to write instead.
    pub hint: String,
    /// Where the wrong part starts.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl FilterError {
    /// The filter with a line below that marks the wrong part.
    #[must_use]
    pub fn marked(&self, filter: &str) -> String {
        let filter: String = filter.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let marks = "^".repeat(self.end.saturating_sub(self.start).max(1));
        format!("{filter}\n{}{marks}", " ".repeat(self.start))
    }
}

/// The fields of a run.
const FIELDS: [&str; 14] = [
    "state", "name", "file", "note", "commit", "tag", "run", "tasks", "failed", "cached", "took", "age", "started",
    "ended",
];

impl RunFilter {
    /// Reads a filter: conditions with spaces between them, all of which must hold, such as
    /// `state:failed states>32 accuracy>0.5 tag:x name~quick`.
    ///
    /// - `FIELD:VALUE` (or `=`) and `FIELD!=VALUE`; several values with commas between them: one of them.
    /// - `FIELD~PART` and `FIELD!~PART`: the text contains the part, in any case of its letters.
    /// - `FIELD<NUMBER`, `<=`, `>`, `>=`; numbers may have units (`50%`, `20k`, `3ms`).
    /// - A single word matches a part of the workflow's name. Double quotes hold names and values with spaces or signs.
    ///
    /// Fields of a run: `state`, `name`, `file`, `note`, `commit` (its beginning), `tag`, `run`, `tasks`, `failed`, `cached` (numbers of
    /// tasks), `took` and `age` (`5m`, `2h`, `7d`), `started` and `ended` (dates in UTC). Any other name is that of a parameter, of an axis
    /// of a matrix, or of a metric (its name, or its title in `kinds`); `params.X`, `matrix.X` and `metrics.X` select one of them. Conditions on
    /// axes and metrics must hold together: for tasks of the same matrix values and replicate.
    ///
    /// # Errors
    /// The first part that cannot be read, with its place.
    pub fn parse(text: &str, kinds: &[StepKind]) -> Result<Self, FilterError> {
        let mut reader = Reader { chars: text.chars().collect(), at: 0 };
        if reader.chars.len() > LONGEST {
            let message = format!("the filter is longer than {LONGEST} characters");
            return Err(reader.error(message, "use fewer conditions", LONGEST, reader.chars.len()));
        }
        let mut filter = RunFilter::default();
        while let Some(condition) = reader.next_condition(kinds)? {
            filter = filter.and(condition);
            if filter.conditions.len() > MOST {
                let message = format!("there are more than {MOST} conditions");
                return Err(reader.error(message, "use fewer conditions", reader.at, reader.at));
            }
        }
        Ok(filter)
    }
}

/// A value as a filter needs it: in double quotes if it has spaces or signs in it.
#[must_use]
pub fn quote_filter_value(value: &str) -> String {
    let is_special = |c: char| c.is_whitespace() || matches!(c, '"' | ',');
    match value.is_empty() || value.contains(is_special) {
        true => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        false => value.to_owned(),
    }
}

/// The sign between a field and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Equal,
    NotEqual,
    Contains,
    ContainsNot,
    Ordered(Order),
}

const SIGNS: [(&str, Sign); 9] = [
    ("!=", Sign::NotEqual),
    ("!~", Sign::ContainsNot),
    ("<=", Sign::Ordered(Order::AtMost)),
    (">=", Sign::Ordered(Order::AtLeast)),
    (":", Sign::Equal),
    ("=", Sign::Equal),
    ("~", Sign::Contains),
    ("<", Sign::Ordered(Order::Below)),
    (">", Sign::Ordered(Order::Above)),
];

/// A word of the filter with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    text: String,
    quoted: bool,
    start: usize,
    end: usize,
}

struct Reader {
    chars: Vec<char>,
    at: usize,
}

impl Reader {
    fn error(&self, message: impl Into<String>, hint: impl Into<String>, start: usize, end: usize) -> FilterError {
        FilterError { message: message.into(), hint: hint.into(), start, end }
    }

    fn skip_spaces(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn sign_at(&self, at: usize) -> Option<(usize, Sign)> {
        let rest = self.chars.get(at..)?;
        let starts = |sign: &str| rest.len() >= sign.len() && sign.chars().zip(rest).all(|(a, b)| a == *b);
        SIGNS.iter().find(|(text, _)| starts(text)).map(|(text, sign)| (text.len(), *sign))
    }

    /// A word up to a space or to the first place for which `ends` is true, or the text between double quotes.
    fn word(&mut self, ends: impl Fn(&Reader, usize) -> bool) -> Result<Word, FilterError> {
        let start = self.at;
        let mut text = String::new();
        if self.chars.get(self.at) == Some(&'"') {
            self.at += 1;
            loop {
                match self.chars.get(self.at) {
                    Some('"') => break,
                    Some('\\') if matches!(self.chars.get(self.at + 1), Some('"' | '\\')) => {
                        text.push(self.chars[self.at + 1]);
                        self.at += 2;
                    }
                    Some(c) => {
                        text.push(*c);
                        self.at += 1;
                    }
                    None => {
                        return Err(self.error("this quote is not closed", "add a `\"`", start, start + 1));
                    }
                }
            }
            self.at += 1;
            return Ok(Word { text, quoted: true, start, end: self.at });
        }
        while let Some(c) = self.chars.get(self.at).filter(|c| !c.is_whitespace()) {
            if ends(self, self.at) {
                break;
            }
            text.push(*c);
            self.at += 1;
        }
        Ok(Word { text, quoted: false, start, end: self.at })
    }

    fn next_condition(&mut self, kinds: &[StepKind]) -> Result<Option<Condition>, FilterError> {
        self.skip_spaces();
        if self.at == self.chars.len() {
            return Ok(None);
        }
        let key = self.word(|reader, at| reader.sign_at(at).is_some())?;
        if key.text.is_empty() && !key.quoted {
            let length = self.sign_at(self.at).map_or(1, |(length, _)| length);
            let message = "a field is missing before this sign";
            return Err(self.error(message, "write a condition as in `state:failed`", self.at, self.at + length));
        }
        let after_key = self.at;
        self.skip_spaces();
        let Some((length, sign)) = self.sign_at(self.at) else {
            self.at = after_key;
            let test = TextTest { matching: Matching::Part, any_of: vec![key.text], negated: false };
            return Ok(Some(Condition::Text(TextField::Name, test)));
        };
        self.at += length;
        self.skip_spaces();
        let mut values = vec![self.value(&key)?];
        while self.chars.get(self.at) == Some(&',') {
            self.at += 1;
            values.push(self.value(&key)?);
        }
        if let (Sign::Ordered(_), Some(second)) = (sign, values.get(1)) {
            let hint = "write one number, or `:` before several values";
            return Err(self.error("this sign takes one value", hint, second.start, second.end));
        }
        condition(&key, sign, &values, kinds).map(Some)
    }

    fn value(&mut self, key: &Word) -> Result<Word, FilterError> {
        let word = self.word(|reader, at| reader.chars[at] == ',')?;
        if word.text.is_empty() && !word.quoted {
            let message = format!("a value is missing for `{}`", key.text);
            let end = (word.start + 1).min(self.chars.len().max(word.start));
            return Err(self.error(message, "write it behind the sign, or `\"\"` for an empty one", word.start, end));
        }
        Ok(word)
    }
}

fn wrong(word: &Word, message: String, hint: String) -> FilterError {
    FilterError { message, hint, start: word.start, end: word.end }
}

fn condition(key: &Word, sign: Sign, values: &[Word], kinds: &[StepKind]) -> Result<Condition, FilterError> {
    let field = if key.quoted { "" } else { key.text.as_str() };
    Ok(match field {
        "state" => state_condition(key, sign, values)?,
        "name" => Condition::Text(TextField::Name, text_test(key, sign, values, Matching::Whole)?),
        "file" => Condition::Text(TextField::File, text_test(key, sign, values, Matching::Whole)?),
        "note" => Condition::Text(TextField::Note, text_test(key, sign, values, Matching::Whole)?),
        "commit" => Condition::Text(TextField::Commit, text_test(key, sign, values, Matching::Start)?),
        "tag" => Condition::Tag(text_test(key, sign, values, Matching::Whole)?),
        "run" | "id" => number_condition(NumberField::Run, key, sign, values)?,
        "tasks" => number_condition(NumberField::Tasks, key, sign, values)?,
        "failed" => number_condition(NumberField::Failed, key, sign, values)?,
        "cached" => number_condition(NumberField::Cached, key, sign, values)?,
        "took" => number_condition(NumberField::Took, key, sign, values)?,
        "age" => number_condition(NumberField::Age, key, sign, values)?,
        "started" => number_condition(NumberField::Started, key, sign, values)?,
        "ended" => number_condition(NumberField::Ended, key, sign, values)?,
        _ => Condition::Value(value_key(key, kinds)?, value_test(key, sign, values)?),
    })
}

fn value_key(key: &Word, kinds: &[StepKind]) -> Result<ValueKey, FilterError> {
    let prefixes = [("params.", Places::Params), ("matrix.", Places::Matrix), ("metrics.", Places::Metrics)];
    let found = prefixes.into_iter().find_map(|(prefix, places)| Some((places, key.text.strip_prefix(prefix)?)));
    let (places, name) = found.filter(|_| !key.quoted).unwrap_or((Places::Anywhere, &key.text));
    if name.is_empty() {
        let message = format!("a name is missing in `{}`", key.text);
        return Err(wrong(key, message, "write it as in `params.seed`".to_owned()));
    }
    let declared = kinds.iter().flat_map(|kind| kind.metrics);
    let mut headlines: Vec<String> =
        declared.filter(|metric| metric.headline == Some(name)).map(|metric| metric.name.to_owned()).collect();
    headlines.sort();
    headlines.dedup();
    Ok(ValueKey { places, name: name.to_owned(), headlines })
}

fn state_condition(key: &Word, sign: Sign, values: &[Word]) -> Result<Condition, FilterError> {
    let negated = match sign {
        Sign::Equal => false,
        Sign::NotEqual => true,
        _ => return Err(wrong(key, "`state` is compared with `:` or `!=`".into(), "as in `state:failed`".into())),
    };
    let read = |word: &Word| {
        RunStateName::from_name(&word.text).ok_or_else(|| {
            let names = || RunStateName::ALL.iter().map(|state| state.name());
            let hint = match nearest_name(&word.text, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("states are {}", names().collect::<Vec<_>>().join(", ")),
            };
            wrong(word, format!("there is no state `{}`", word.text), hint)
        })
    };
    Ok(Condition::State { any_of: values.iter().map(read).collect::<Result<_, _>>()?, negated })
}

fn text_test(key: &Word, sign: Sign, values: &[Word], equal: Matching) -> Result<TextTest, FilterError> {
    let (matching, negated) = match sign {
        Sign::Equal => (equal, false),
        Sign::NotEqual => (equal, true),
        Sign::Contains => (Matching::Part, false),
        Sign::ContainsNot => (Matching::Part, true),
        Sign::Ordered(_) => {
            let message = format!("`{}` is a text and has no order", key.text);
            return Err(wrong(key, message, format!("write `{0}:VALUE` or `{0}~PART`", key.text)));
        }
    };
    Ok(TextTest { matching, any_of: values.iter().map(|word| word.text.clone()).collect(), negated })
}

fn number_condition(field: NumberField, key: &Word, sign: Sign, values: &[Word]) -> Result<Condition, FilterError> {
    let (parse, example): (fn(&str) -> Option<f64>, &str) = match field {
        NumberField::Took | NumberField::Age => (parse_duration, "a duration such as 90s, 5m, 2h or 7d"),
        NumberField::Started | NumberField::Ended => (parse_moment, "a date in UTC such as 2026-11-23"),
        _ => (parse_number, "a number"),
    };
    let read = |word: &Word| {
        let message = format!("`{}` is not a value of `{}`", word.text, key.text);
        parse(&word.text).ok_or_else(|| wrong(word, message, format!("give {example}")))
    };
    let numbers = values.iter().map(read).collect::<Result<Vec<f64>, _>>()?;
    let counted = !matches!(field, NumberField::Took | NumberField::Age | NumberField::Started | NumberField::Ended);
    let test = match sign {
        Sign::Ordered(order) => NumberTest::Ordered(order, numbers[0]),
        Sign::Equal | Sign::NotEqual if counted => {
            NumberTest::OneOf { any_of: numbers, negated: sign == Sign::NotEqual }
        }
        _ => {
            let message = format!("`{}` cannot be compared like this", key.text);
            return Err(wrong(key, message, format!("write `{0}<..` or `{0}>..`, with {example}", key.text)));
        }
    };
    Ok(Condition::Number(field, test))
}

fn value_test(key: &Word, sign: Sign, values: &[Word]) -> Result<ValueTest, FilterError> {
    let texts = || values.iter().map(|word| word.text.clone()).collect();
    Ok(match sign {
        Sign::Equal | Sign::NotEqual => ValueTest::OneOf {
            any_of: values.iter().map(|word| Literal::of(&word.text)).collect(),
            negated: sign == Sign::NotEqual,
        },
        Sign::Contains => ValueTest::Contains { any_of: texts(), negated: false },
        Sign::ContainsNot => ValueTest::Contains { any_of: texts(), negated: true },
        Sign::Ordered(order) => {
            let word = &values[0];
            let number = parse_number(&word.text).ok_or_else(|| {
                let hint = match nearest_name(&key.text, FIELDS) {
                    Some(near) => format!("give a number, or did you mean `{near}`?"),
                    None => "give a number, such as 0.5, 50%, 20k or 3ms".to_owned(),
                };
                wrong(word, format!("`{}` is not a number", word.text), hint)
            })?;
            ValueTest::Ordered(order, number)
        }
    })
}
