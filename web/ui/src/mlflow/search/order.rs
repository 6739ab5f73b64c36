//! Orders: `metrics.loss ASC`.

use std::cmp::Ordering;

use super::super::error::ApiError;
use super::super::validation::shorten;
use super::clause::{Field, Key, Searchable, parse_key};
use super::tokens::{Token, split_tokens};

/// One order: a key and its direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub key: Key,
    descending: bool,
}

/// Parses `KEY`, `KEY ASC` or `KEY DESC`.
pub(super) fn parse_order(text: &str, searchable: &Searchable) -> Result<Order, ApiError> {
    let wrong = || ApiError::invalid(format!("Invalid order_by clause '{}'.", shorten(text)));
    let tokens = split_tokens(text)?;
    let (Token::Word { parts, quoted }, rest) = tokens.split_first().ok_or_else(wrong)? else { return Err(wrong()) };
    let descending = match rest {
        [] => false,
        [word] if word.is_keyword("asc") => false,
        [word] if word.is_keyword("desc") => true,
        _ => return Err(wrong()),
    };
    Ok(Order { key: parse_key(parts, *quoted, searchable)?, descending })
}

impl Order {
    /// Compares two records by their values of the key. In both directions, NaN is behind other numbers, and a record without a value is
    /// last.
    pub fn compare(&self, a: Option<&Field>, b: Option<&Field>) -> Ordering {
        rank(a).cmp(&rank(b)).then_with(|| {
            let order = match (a, b) {
                (Some(Field::Number(a)), Some(Field::Number(b))) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
                (Some(Field::Text(a)), Some(Field::Text(b))) => a.cmp(b),
                _ => Ordering::Equal,
            };
            if self.descending { order.reverse() } else { order }
        })
    }
}

fn rank(field: Option<&Field>) -> u8 {
    match field {
        Some(Field::Number(number)) if number.is_nan() => 1,
        Some(_) => 0,
        None => 2,
    }
}
