//! Clauses of filters: parsing and matching.

use std::cmp::Ordering;

use super::super::error::ApiError;
use super::super::validation::shorten;
use super::tokens::{Token, split_tokens};

/// The longest pattern behind `LIKE`: matching takes time in proportion to it.
const LONGEST_PATTERN: usize = 1000;

/// The field that a clause or an order refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// The kind.
    pub entity: Entity,
    /// The name.
    pub name: String,
}

/// The kinds of a record's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entity {
    Attribute,
    Metric,
    Param,
    Tag,
    Dataset,
}

/// A value of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Field {
    Number(f64),
    Text(String),
}

/// What is searched: runs or experiments.
pub(super) struct Searchable {
    /// Attributes that are numbers.
    pub numbers: &'static [&'static str],
    /// Attributes that are texts.
    pub texts: &'static [&'static str],
    /// Other names of attributes, in lower case.
    pub aliases: &'static [(&'static str, &'static str)],
    /// The other kinds of fields that it has.
    pub entities: &'static [Entity],
}

/// How a value is tested.
#[derive(Debug, Clone, PartialEq)]
enum Test {
    Number(&'static str, f64),
    Text(&'static str, String),
    Like { pattern: String, any_case: bool },
    In { values: Vec<String>, negated: bool },
    IsNull { negated: bool },
}

/// A condition on a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clause {
    pub key: Key,
    test: Test,
}

impl Clause {
    /// Whether a record matches whose values of the key are these.
    pub fn matches(&self, fields: &[Field]) -> bool {
        match &self.test {
            Test::IsNull { negated } => fields.is_empty() != *negated,
            test => fields.iter().any(|field| test.matches(field)),
        }
    }
}

impl Test {
    fn matches(&self, field: &Field) -> bool {
        match (self, field) {
            (Test::Number(sign, value), Field::Number(own)) => {
                own.partial_cmp(value).map_or(*sign == "!=", |order| compare(sign, order))
            }
            (Test::Text(sign, value), Field::Text(own)) => compare(sign, own.as_str().cmp(value)),
            (Test::Like { pattern, any_case }, Field::Text(own)) if *any_case => {
                is_like(&own.to_lowercase(), &pattern.to_lowercase())
            }
            (Test::Like { pattern, .. }, Field::Text(own)) => is_like(own, pattern),
            (Test::In { values, negated }, Field::Text(own)) => values.contains(own) != *negated,
            _ => false,
        }
    }
}

fn compare(sign: &str, order: Ordering) -> bool {
    match sign {
        "=" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    }
}

/// Whether a text matches a pattern of SQL: `%` matches any text, `_` any character.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    // `reached[i]`: whether the pattern so far matches the first `i` characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; text.len() + 1];
        for at in 0..=text.len() {
            next[at] = match part {
                '%' => reached[at] || at > 0 && next[at - 1],
                '_' => at > 0 && reached[at - 1],
                c => at > 0 && reached[at - 1] && text[at - 1] == c,
            };
        }
        reached = next;
    }
    reached[text.len()]
}

/// Parses a filter; an empty one has no clauses.
pub(super) fn parse_filter(filter: &str, searchable: &Searchable) -> Result<Vec<Clause>, ApiError> {
    let tokens = split_tokens(filter)?;
    if tokens.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = || ApiError::invalid(format!("Invalid clause(s) in filter string: '{}'", shorten(filter)));
    let mut clauses = Vec::new();
    let mut rest = tokens.as_slice();
    loop {
        let (clause, after) = parse_clause(rest, searchable).ok_or_else(wrong)??;
        clauses.push(clause);
        rest = match after {
            [] => return Ok(clauses),
            [and, more @ ..] if and.is_keyword("and") => more,
            _ => return Err(wrong()),
        };
    }
}

/// Parses the clause at the beginning of the words, and returns it with the words behind it; `None` if they do not begin with a clause.
fn parse_clause<'a>(tokens: &'a [Token], searchable: &Searchable) -> Option<Result<(Clause, &'a [Token]), ApiError>> {
    let (first, rest) = tokens.split_first()?;
    let Token::Word { parts, quoted } = first else { return None };
    let key = match parse_key(parts, *quoted, searchable) {
        Ok(key) => key,
        Err(error) => return Some(Err(error)),
    };
    let (test, rest) = match rest {
        [Token::Sign(sign), value, rest @ ..] if !["(", ")", ","].contains(sign) => {
            (parse_comparison(&key, sign, value, searchable), rest)
        }
        [is, not, null, rest @ ..] if is.is_keyword("is") && not.is_keyword("not") && null.is_keyword("null") => {
            (check_null(&key, true), rest)
        }
        [is, null, rest @ ..] if is.is_keyword("is") && null.is_keyword("null") => (check_null(&key, false), rest),
        [not, is_in, rest @ ..] if not.is_keyword("not") && is_in.is_keyword("in") => {
            parse_list(&key, rest, true, searchable)?
        }
        [is_in, rest @ ..] if is_in.is_keyword("in") => parse_list(&key, rest, false, searchable)?,
        [like, value, rest @ ..] if like.is_keyword("like") || like.is_keyword("ilike") => {
            (parse_like(&key, like.is_keyword("ilike"), value, searchable), rest)
        }
        _ => return None,
    };
    Some(test.map(|test| (Clause { key, test }, rest)))
}

fn check_null(key: &Key, negated: bool) -> Result<Test, ApiError> {
    match key.entity {
        Entity::Param | Entity::Tag => Ok(Test::IsNull { negated }),
        _ => Err(ApiError::invalid("Only parameters and tags can be compared by IS NULL")),
    }
}

fn is_number(key: &Key, searchable: &Searchable) -> bool {
    key.entity == Entity::Metric || key.entity == Entity::Attribute && searchable.numbers.contains(&key.name.as_str())
}

fn parse_comparison(key: &Key, sign: &'static str, value: &Token, searchable: &Searchable) -> Result<Test, ApiError> {
    let name = &key.name;
    if is_number(key, searchable) {
        let number = match value {
            Token::Word { parts, quoted: false } => parts.join(".").parse::<f64>().ok(),
            _ => None,
        };
        let wrong = || ApiError::invalid(format!("Expected numeric value type for '{}'.", shorten(name)));
        return Ok(Test::Number(sign, number.ok_or_else(wrong)?));
    }
    if !["=", "!="].contains(&sign) {
        return Err(ApiError::invalid(format!(
            "Invalid comparator '{sign}' for '{}', which is a text.",
            shorten(name)
        )));
    }
    Ok(Test::Text(sign, quoted_text(key, value)?))
}

fn quoted_text(key: &Key, value: &Token) -> Result<String, ApiError> {
    match value {
        Token::Text(text) => Ok(text.clone()),
        Token::Word { parts, quoted: true } if parts.len() == 1 => Ok(parts[0].clone()),
        _ => Err(ApiError::invalid(format!(
            "Expected a quoted string value for '{}' (e.g. 'my-value').",
            shorten(&key.name)
        ))),
    }
}

fn parse_like(key: &Key, any_case: bool, value: &Token, searchable: &Searchable) -> Result<Test, ApiError> {
    if is_number(key, searchable) {
        return Err(ApiError::invalid(format!(
            "Invalid comparator 'LIKE' for '{}', which is a number.",
            shorten(&key.name)
        )));
    }
    let pattern = quoted_text(key, value)?;
    if pattern.chars().count() > LONGEST_PATTERN {
        return Err(ApiError::invalid(format!("The pattern behind LIKE has more than {LONGEST_PATTERN} characters.")));
    }
    Ok(Test::Like { pattern, any_case })
}

/// `('a', 'b')`
fn parse_list<'a>(
    key: &Key,
    tokens: &'a [Token],
    negated: bool,
    searchable: &Searchable,
) -> Option<(Result<Test, ApiError>, &'a [Token])> {
    let [Token::Sign("("), rest @ ..] = tokens else { return None };
    let end = rest.iter().position(|token| *token == Token::Sign(")"))?;
    let (inside, after) = (&rest[..end], &rest[end + 1..]);
    let fits = !is_number(key, searchable) && matches!(key.entity, Entity::Attribute | Entity::Dataset);
    if !fits {
        let message = format!("Only attributes that are texts can be compared by IN, not '{}'.", shorten(&key.name));
        return Some((Err(ApiError::invalid(message)), after));
    }
    let mut values = Vec::new();
    for (index, token) in inside.iter().enumerate() {
        match (index % 2, token) {
            (0, token) => match quoted_text(key, token) {
                Ok(text) => values.push(text),
                Err(error) => return Some((Err(error), after)),
            },
            (_, Token::Sign(",")) => {}
            _ => return None,
        }
    }
    if values.is_empty() {
        return Some((Err(ApiError::invalid("The list behind IN is empty")), after));
    }
    Some((Ok(Test::In { values, negated }), after))
}

/// The key of a name: `metrics.loss`, or an attribute without a prefix.
pub(super) fn parse_key(parts: &[String], quoted: bool, searchable: &Searchable) -> Result<Key, ApiError> {
    let wrong = |why: String| ApiError::invalid(why);
    let entity = match parts[0].to_lowercase().as_str() {
        _ if parts.len() == 1 => None,
        "metric" | "metrics" => Some(Entity::Metric),
        "param" | "params" | "parameter" | "parameters" => Some(Entity::Param),
        "tag" | "tags" => Some(Entity::Tag),
        "dataset" | "datasets" => Some(Entity::Dataset),
        "attribute" | "attributes" | "attr" | "run" => Some(Entity::Attribute),
        other => return Err(wrong(format!("Invalid entity type '{}'.", shorten(other)))),
    };
    let name = if entity.is_some() { parts[1..].join(".") } else { parts.concat() };
    let entity = entity.unwrap_or(Entity::Attribute);
    if entity != Entity::Attribute {
        return match searchable.entities.contains(&entity) && !name.is_empty() {
            true => Ok(Key { entity, name }),
            false => Err(wrong(format!("Invalid key '{}' in a search of this kind.", shorten(&parts.join("."))))),
        };
    }
    let lower = name.to_lowercase();
    let alias = searchable.aliases.iter().find(|(other, _)| *other == lower).map(|(_, name)| (*name).to_owned());
    let name = alias.unwrap_or(name);
    let known = searchable.numbers.iter().chain(searchable.texts);
    match known.clone().any(|known| *known == name) {
        true => Ok(Key { entity, name }),
        false => {
            let known: Vec<&str> = known.copied().collect();
            let hint =
                if quoted { "" } else { " Write `metrics.`, `params.` or `tags.` before the name of another key." };
            Err(wrong(format!(
                "Invalid attribute key '{}' specified. Valid keys are {}.{hint}",
                shorten(&name),
                known.join(", ")
            )))
        }
    }
}
