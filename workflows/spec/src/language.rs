//! The functions of expressions and their evaluation: a restricted subset of minijinja.
//!
//! An expression has no loops and binds no names. Its cost is bounded by its length, the fuel and the sizes of its inputs,
//! provided that nothing in it multiplies sizes or work: `*` accepts only numbers, `range` and `join` are bounded, `map` and
//! `sum` accept no arguments that are used once per element, `selectattr` limits its comparisons, and `replace` does not
//! exist.

use std::sync::LazyLock;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters, tests};
use serde_json::Value as Json;

use crate::node::MAX_NODES;
use crate::results;

/// The instruction limit of one evaluation.
const FUEL: u64 = 10_000;
/// The longest list that `range` returns.
const MAX_RANGE: i64 = 10_000;
/// The longest text that an expression returns, in bytes.
pub(crate) const MAX_TEXT: usize = 64 << 10;
/// The longest text that `map` uses instead of a missing attribute, in bytes: it is repeated for each element.
const MAX_DEFAULT: usize = 64;
/// The maximum number of comparisons of one `selectattr`.
const MAX_COMPARISONS: usize = 1_000_000;
/// The maximum nesting depth of a computed value.
const MAX_DEPTH: usize = 32;

/// The filter that [`crate::token::guard_products`] appends to factors.
pub(crate) const NUMBER: &str = "__number";

/// The filter that makes a value a part of a text. It is used only in expressions of sub-workflows that were rewritten.
pub(crate) const TEXT: &str = "__text";

/// The filters, for messages. Each is minijinja's filter of that name, except `int`, `float`, `join`, `map`,
/// `selectattr` and `sum`, which accept less, and those that compare elements, which refuse undefined ones.
pub(crate) const FILTERS: &[&str] = &[
    "abs",
    "default",
    "first",
    "float",
    "int",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "round",
    "selectattr",
    "sort",
    "string",
    "sum",
    "trim",
    "unique",
    "upper",
];

/// The tests after `is`.
pub(crate) const TESTS: &[&str] = &[
    "defined",
    "undefined",
    "none",
    "number",
    "string",
    "mapping",
    "sequence",
    "odd",
    "even",
    "true",
    "false",
    "in",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
];

/// The functions.
pub(crate) const FUNCTIONS: &[&str] = &["range", "best", "success", "failure", "always", "cancelled"];

/// The functions about the outcomes of a task's needs: only for `if`.
pub(crate) const STATUS_FUNCTIONS: &[&str] = &["success", "failure", "always", "cancelled"];

/// The environment of all expressions.
pub(crate) static LANGUAGE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut language = Environment::empty();
    language.set_undefined_behavior(UndefinedBehavior::Strict);
    language.set_fuel(Some(FUEL));
    add_filters(&mut language);
    add_tests(&mut language);
    language.add_function("range", range);
    language.add_function("best", |job: Value, metric: &str, kwargs: Kwargs| results::best(&job, metric, kwargs));
    language.add_function("success", |state: &State| results::status(state, |status| status.success));
    language.add_function("failure", |state: &State| results::status(state, |status| status.failure));
    language.add_function("cancelled", |state: &State| results::status(state, |status| status.cancelled));
    language.add_function("always", |state: &State| results::status(state, |_| true));
    language
});

fn add_filters(language: &mut Environment<'static>) {
    language.add_filter(NUMBER, number);
    language.add_filter(TEXT, |value: Value| text_of(&value));
    language.add_filter("abs", filters::abs);
    language.add_filter("default", default);
    language.add_filter("first", filters::first);
    language.add_filter("float", float);
    language.add_filter("int", int);
    language.add_filter("join", join);
    language.add_filter("last", filters::last);
    language.add_filter("length", filters::length);
    language.add_filter("list", filters::list);
    language.add_filter("lower", filters::lower);
    language.add_filter("map", map);
    language.add_filter("max", max);
    language.add_filter("min", min);
    language.add_filter("round", filters::round);
    language.add_filter("selectattr", select_by_attribute);
    language.add_filter("sort", sort);
    language.add_filter("string", filters::string);
    language.add_filter("sum", sum);
    language.add_filter("trim", filters::trim);
    language.add_filter("unique", unique);
    language.add_filter("upper", filters::upper);
}

fn add_tests(language: &mut Environment<'static>) {
    language.add_test("defined", |state: &State, value: &Value| is_defined(state, value));
    language.add_test("undefined", |state: &State, value: &Value| !is_defined(state, value));
    language.add_test("none", tests::is_none);
    language.add_test("number", tests::is_number);
    language.add_test("string", tests::is_string);
    language.add_test("mapping", tests::is_mapping);
    language.add_test("sequence", tests::is_sequence);
    language.add_test("odd", tests::is_odd);
    language.add_test("even", tests::is_even);
    language.add_test("true", tests::is_true);
    language.add_test("false", tests::is_false);
    language.add_test("in", tests::is_in);
    language.add_test("eq", tests::is_eq);
    language.add_test("ne", tests::is_ne);
    language.add_test("lt", tests::is_lt);
    language.add_test("le", tests::is_le);
    language.add_test("gt", tests::is_gt);
    language.add_test("ge", tests::is_ge);
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// A type of the engine, as named in messages.
fn called(kind: ValueKind) -> String {
    match kind {
        ValueKind::Undefined => "something undefined".into(),
        ValueKind::None => "an empty value".into(),
        ValueKind::Bool => "a boolean".into(),
        ValueKind::Number => "a number".into(),
        ValueKind::String => "a text".into(),
        ValueKind::Seq | ValueKind::Iterable => "a list".into(),
        ValueKind::Map => "a mapping".into(),
        other => format!("a {other}"),
    }
}

/// The engine's messages about operators, in the terms of the other messages.
pub(crate) fn reworded(detail: &str) -> String {
    if let Some((operator, types)) =
        detail.strip_prefix("tried to use ").and_then(|rest| rest.split_once(" operator on unsupported types "))
    {
        let kind = |name: &str| match name {
            "string" => "a text".to_owned(),
            "sequence" | "iterator" => "a list".to_owned(),
            "map" => "a mapping".to_owned(),
            "none" => "an empty value".to_owned(),
            "bool" => "a boolean".to_owned(),
            other => format!("a {other}"),
        };
        let types: Vec<String> = types.split(" and ").map(kind).collect();
        return format!("`{operator}` cannot take {}", types.join(" and "));
    }
    match detail.strip_prefix("unable to calculate ") {
        Some(term) => format!("`{}` cannot be calculated", crate::scalar::shorten(term, 60)),
        None => detail.to_owned(),
    }
}

fn number(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Number | ValueKind::Bool => Ok(value),
        kind => Err(refused(format!("`*` multiplies numbers, not {}", called(kind)))),
    }
}

fn int(value: Value) -> Result<i64, Error> {
    if let Ok(whole) = i64::try_from(value.clone()) {
        return Ok(whole);
    }
    let number = float(value)?;
    if number.abs() < 9.0e15 { Ok(number.trunc() as i64) } else { Err(refused("`int` takes numbers up to 9e15")) }
}

fn float(value: Value) -> Result<f64, Error> {
    if let Some(text) = value.as_str() {
        return text.trim().parse().map_err(|_| refused(format!("`{text}` is not a number")));
    }
    f64::try_from(value.clone()).map_err(|_| refused(format!("{} is not a number", called(value.kind()))))
}

fn join(values: Value, separator: Option<String>, _: Kwargs, extra: Rest<Value>) -> Result<String, Error> {
    if !extra.is_empty() {
        return Err(refused("`join` takes one separator"));
    }
    let separator = separator.unwrap_or_default();
    let mut joined = String::new();
    for (index, value) in values.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(&separator);
        }
        joined.push_str(&text_of(&value)?);
        if joined.len() > MAX_TEXT {
            return Err(refused("the joined text has more than 64 KiB"));
        }
    }
    Ok(joined)
}

/// `map('FILTER')` or `map(attribute='NAME')`. minijinja passes further arguments to the filter, once for each element, so
/// `map('join', text)` would multiply the text by the list.
fn map(
    state: &mut State,
    values: Value,
    filter: Option<Value>,
    argument: Option<Value>,
    kwargs: Kwargs,
) -> Result<Vec<Value>, Error> {
    if values.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if argument.is_some() {
        return Err(refused("`map` takes only the name of a filter, without its arguments"));
    }
    let attribute: Option<Value> = kwargs.get("attribute")?;
    let default: Option<Value> = kwargs.get("default")?;
    kwargs.assert_all_used()?;
    match (filter, attribute) {
        (Some(filter), None) if default.is_none() => {
            let Some(filter) = filter.as_str().filter(|name| FILTERS.contains(name)) else {
                let written = crate::scalar::shorten(filter.as_str().unwrap_or(""), 40);
                return Err(refused(format!("`map` takes the name of a filter, not `{written}`")));
            };
            values.try_iter()?.map(|value| state.apply_filter(filter, &[value])).collect()
        }
        (None, Some(attribute)) => {
            let default = default.map(small_default).transpose()?.unwrap_or(Value::UNDEFINED);
            values.try_iter()?.map(|value| attribute_of(state, &value, &attribute, &default)).collect()
        }
        _ => Err(refused("`map` takes the name of a filter, or `attribute=` and `default=`")),
    }
}

/// minijinja's `default`.
fn default(state: &State, value: &Value, arguments: Rest<Value>) -> Result<Value, Error> {
    if value.is_undefined() {
        results::forget_missing(state);
    }
    filters::default(state, value, arguments)
}

fn is_defined(state: &State, value: &Value) -> bool {
    if value.is_undefined() {
        results::forget_missing(state);
    }
    !value.is_undefined()
}

/// A value that can be compared. A value that is undefined, or that represents an error such as a metric that is not finite, is
/// refused: minijinja sorts such values before or after all others.
fn check_comparable(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        _ => reject_invalid(value),
    }
}

/// A value, or the error that it represents.
fn reject_invalid(value: Value) -> Result<Value, Error> {
    match value.kind() {
        // minijinja only reports the error of an element.
        ValueKind::Invalid => Value::from(vec![value]).try_iter()?.checked().next().unwrap_or(Ok(Value::UNDEFINED)),
        _ => Ok(value),
    }
}

/// The elements of a list that are compared with one another.
fn comparable_elements(values: &Value) -> Result<Vec<Value>, Error> {
    if values.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    values.try_iter()?.map(check_comparable).collect()
}

fn max(values: Value) -> Result<Value, Error> {
    Ok(comparable_elements(&values)?.into_iter().max().unwrap_or(Value::UNDEFINED))
}

fn min(values: Value) -> Result<Value, Error> {
    Ok(comparable_elements(&values)?.into_iter().min().unwrap_or(Value::UNDEFINED))
}

/// minijinja's `sort`, of elements that have the attributes by which they are sorted.
fn sort(state: &State, values: Value, kwargs: Kwargs) -> Result<Value, Error> {
    check_attributes(&values, &kwargs)?;
    filters::sort(state, values, kwargs)
}

/// minijinja's `unique`, with the same restriction.
fn unique(state: &State, values: Value, kwargs: Kwargs) -> Result<Value, Error> {
    check_attributes(&values, &kwargs)?;
    filters::unique(state, values, kwargs)
}

/// Checks that the attributes that `attribute=` names can be compared in every element; without it, the elements themselves.
fn check_attributes(values: &Value, kwargs: &Kwargs) -> Result<(), Error> {
    let attributes: Option<&str> = kwargs.get("attribute")?;
    let Some(attributes) = attributes else { return comparable_elements(values).map(drop) };
    for value in comparable_elements(values)? {
        for attribute in attributes.split(',').map(str::trim).filter(|attribute| !attribute.is_empty()) {
            check_comparable(follow(&value, attribute)?)?;
        }
    }
    Ok(())
}

/// The value at a path of names and indices, such as `outputs.model` or `items.0`.
fn follow(value: &Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(value.clone(), |at, part| {
        reject_invalid(match part.parse::<usize>() {
            Ok(place) => at.get_item_by_index(place)?,
            Err(_) => at.get_attr(part)?,
        })
    })
}

/// An element of a mapping or list, or `default` if it is missing.
fn attribute_of(state: &State, value: &Value, attribute: &Value, default: &Value) -> Result<Value, Error> {
    let found = match attribute.as_str() {
        Some(path) => follow(value, path),
        None => value.get_item(attribute).and_then(reject_invalid),
    };
    match found {
        Ok(found) if !found.is_undefined() => Ok(found),
        Err(error) if error.kind() != ErrorKind::UndefinedError => Err(error),
        _ if !default.is_undefined() => {
            results::forget_missing(state);
            Ok(default.clone())
        }
        _ => Err(Error::from(ErrorKind::UndefinedError)),
    }
}

/// A value that may be repeated for each element of a list.
fn small_default(value: Value) -> Result<Value, Error> {
    let small = match value.kind() {
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number => true,
        ValueKind::String => value.as_str().is_some_and(|text| text.len() <= MAX_DEFAULT),
        _ => false,
    };
    if small {
        Ok(value)
    } else {
        Err(refused(format!("`default=` of `map` takes a number or a text of up to {MAX_DEFAULT} bytes")))
    }
}

/// The sum of numbers. minijinja also accepts a `start`, and then adds texts and lists, which copies the sum for each element.
fn sum(state: &State, values: Value, attribute: Option<&str>, kwargs: Kwargs) -> Result<Value, Error> {
    if kwargs.has("start") {
        return Err(refused("`sum` takes no `start`: add it to the sum"));
    }
    let attribute = attribute.map_or_else(|| kwargs.get::<Option<&str>>("attribute"), |name| Ok(Some(name)))?;
    let part = |value: Value| match attribute {
        Some(attribute) => follow(&value, attribute).and_then(check_comparable),
        None => Ok(value),
    };
    let terms: Vec<Value> = comparable_elements(&values)?.into_iter().map(part).collect::<Result<_, Error>>()?;
    kwargs.assert_all_used()?;
    filters::sum(state, Value::from(terms), None, None, Kwargs::from_iter::<[(&str, Value); 0]>([]))
}

/// minijinja's `selectattr`, except that a missing attribute is an error for all tests but `defined` and `undefined`: any
/// other test would be false for it. The test's arguments are visited once for each element.
fn select_by_attribute(
    state: &mut State,
    values: Value,
    attribute: String,
    test: Option<String>,
    argument: Option<Value>,
) -> Result<Vec<Value>, Error> {
    let compared = argument.as_ref().and_then(Value::len).unwrap_or(1).max(1);
    if values.len().unwrap_or(0).saturating_mul(compared) > MAX_COMPARISONS {
        return Err(refused(format!("`selectattr` makes at most {MAX_COMPARISONS} comparisons")));
    }
    let mut selected = Vec::new();
    for value in values.try_iter()? {
        let part = follow(&value, &attribute)?;
        let passed = match &test {
            None => check_comparable(part)?.is_true(),
            Some(test) => {
                let part =
                    if matches!(test.as_str(), "defined" | "undefined") { part } else { check_comparable(part)? };
                let mut arguments = vec![part];
                arguments.extend(argument.clone());
                state.perform_test(test, &arguments)?
            }
        };
        if passed {
            selected.push(value);
        }
    }
    Ok(selected)
}

fn range(first: i64, second: Option<i64>, step: Option<i64>) -> Result<Vec<i64>, Error> {
    let (from, to) = second.map_or((0, first), |second| (first, second));
    let step = step.unwrap_or(1);
    let span = i128::from(to) - i128::from(from);
    let count = if step == 0 { i128::MAX } else { span / i128::from(step) };
    if count > i128::from(MAX_RANGE) {
        return Err(refused(format!("`range` makes at most {MAX_RANGE} numbers")));
    }
    let mut numbers = Vec::new();
    let mut next = from;
    while (step > 0 && next < to) || (step < 0 && next > to) {
        numbers.push(next);
        match next.checked_add(step) {
            Some(after) => next = after,
            None => break,
        }
    }
    Ok(numbers)
}

/// A single value as part of a text.
pub(crate) fn text_of(value: &Value) -> Result<String, Error> {
    let json = to_json(value)?;
    match json {
        Json::String(text) => Ok(text),
        Json::Bool(_) | Json::Number(_) => Ok(json.to_string()),
        Json::Null => Err(refused("an empty value cannot be a part of a text")),
        Json::Array(_) => Err(refused("a list cannot be a part of a text; use `join`")),
        Json::Object(map) if map.contains_key("$artifact") => {
            Err(refused("an artifact cannot be a part of a text: write only the expression"))
        }
        Json::Object(_) => Err(refused("a mapping cannot be a part of a text")),
    }
}

/// Converts a result from the engine.
///
/// # Errors
/// For values that a workflow file could not contain either: undefined values, numbers beyond 64 bits or not finite,
/// values that are too large.
pub(crate) fn to_json(value: &Value) -> Result<Json, Error> {
    let mut left = (MAX_NODES, MAX_NODES * 64);
    convert(value, MAX_DEPTH, &mut left)
}

fn convert(value: &Value, depth: usize, left: &mut (usize, usize)) -> Result<Json, Error> {
    left.0 = left.0.checked_sub(1).ok_or_else(|| refused("the result has too many values"))?;
    let depth = depth.checked_sub(1).ok_or_else(|| refused("the result is nested too deep"))?;
    match value.kind() {
        ValueKind::Undefined => Err(Error::new(ErrorKind::UndefinedError, "this is not defined")),
        ValueKind::None => Ok(Json::Null),
        ValueKind::Bool => Ok(Json::Bool(value.is_true())),
        ValueKind::Number => number_to_json(value),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            if text.len() > MAX_TEXT {
                return Err(refused("the result is a text of more than 64 KiB"));
            }
            left.1 = left.1.checked_sub(text.len()).ok_or_else(|| refused("the result has too much text"))?;
            Ok(Json::from(text))
        }
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.map(|item| convert(&item, depth, left)).collect::<Result<Vec<_>, _>>().map(Json::Array)
        }
        ValueKind::Map => {
            let mut map = serde_json::Map::new();
            for key in value.try_iter()? {
                map.insert(text_of(&key)?, convert(&value.get_item(&key)?, depth, left)?);
            }
            Ok(Json::Object(map))
        }
        ValueKind::Invalid => reject_invalid(value.clone()).and_then(|value| convert(&value, depth, left)),
        kind => Err(refused(format!("{} cannot be a value", called(kind)))),
    }
}

fn number_to_json(value: &Value) -> Result<Json, Error> {
    if value.is_integer() {
        let signed = i64::try_from(value.clone()).map(Json::from);
        return signed
            .or_else(|_| u64::try_from(value.clone()).map(Json::from))
            .map_err(|_| refused(format!("{value} has more than 64 bits")));
    }
    let number = f64::try_from(value.clone())?;
    serde_json::Number::from_f64(number)
        .map(Json::Number)
        .ok_or_else(|| refused(format!("the result is not a finite number but {number}")))
}
