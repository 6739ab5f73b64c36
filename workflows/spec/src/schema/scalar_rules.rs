//! Types, enumerations, and the bounds of numbers and texts.

use serde_json::{Map, Value};

use super::{Target, Validator};
use crate::node::Data;
use crate::scalar;
use crate::suggest;

impl<'s> Validator<'s> {
    /// Whether the value has one of the schema's types; reports it if not.
    pub(super) fn has_type(&mut self, schema: &'s Map<String, Value>, at: Target<'_>) -> bool {
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(name)) => vec![name],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        if types.iter().any(|name| fits(name, &at.node.data)) {
            return true;
        }
        if is_artifact(schema) {
            let message = format!("{} takes an artifact, not {}", at.name, at.node.describe());
            self.report(at, message, "write `${{ needs.JOB.outputs.NAME }}`".to_owned());
            return false;
        }
        let wanted: Vec<&str> = types.iter().filter(|name| **name != "null").map(|name| called(name)).collect();
        let message = format!("{} takes {}, not {}", at.name, wanted.join(" or "), at.node.describe());
        self.report(at, message, remedy(&types, at));
        false
    }

    /// Whether the value is listed by `enum` or `const`; reports it if not.
    pub(super) fn is_listed(&mut self, schema: &'s Map<String, Value>, at: Target<'_>) -> bool {
        let single = schema.get("const").map(std::slice::from_ref);
        let Some(listed) = schema.get("enum").and_then(Value::as_array).map(Vec::as_slice).or(single) else {
            return true;
        };
        let value = at.node.to_value(&Value::Null);
        if listed.iter().any(|known| same(known, &value)) {
            return true;
        }
        self.not_listed(&listed.iter().collect::<Vec<_>>(), at);
        false
    }

    /// Reports a value that is not one of the allowed values.
    pub(super) fn not_listed(&mut self, wanted: &[&Value], at: Target<'_>) {
        let texts: Vec<&str> = wanted.iter().filter_map(|value| value.as_str()).collect();
        let shown: Vec<String> =
            wanted.iter().filter(|value| !value.is_null()).map(|v| scalar::in_address(v)).collect();
        let hint = match at.node.as_str().and_then(|written| suggest::nearest(written, texts.iter().copied())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write {}", any_of(&shown)),
        };
        let message = format!("{} takes {}, not {}", at.name, any_of(&shown), at.node.describe());
        self.report(at, message, hint);
    }

    pub(super) fn bounds(&mut self, schema: &'s Map<String, Value>, value: &Value, at: Target<'_>) {
        if let Some(number) = value.as_f64() {
            self.number_bounds(schema, number, at);
        }
        let Some(text) = value.as_str() else { return };
        let length = text.chars().count() as u64;
        let bound = |key| schema.get(key).and_then(Value::as_u64);
        if let Some(least) = bound("minLength").filter(|least| length < *least) {
            let characters = if least == 1 { "1 character".to_owned() } else { format!("{least} characters") };
            let message = format!("{} takes at least {characters}, not {length}", at.name);
            self.report(at, message, "write more, or leave the key out".to_owned());
        }
        if let Some(most) = bound("maxLength").filter(|most| length > *most) {
            let message = format!("{} takes at most {most} characters, not {length}", at.name);
            self.report(at, message, "write less".to_owned());
        }
    }

    fn number_bounds(&mut self, schema: &'s Map<String, Value>, number: f64, at: Target<'_>) {
        type Broken = fn(f64, f64) -> bool;
        let rules: [(&str, Broken, &str); 5] = [
            ("minimum", |number, bound| number < bound, "at least"),
            ("maximum", |number, bound| number > bound, "at most"),
            ("exclusiveMinimum", |number, bound| number <= bound, "more than"),
            ("exclusiveMaximum", |number, bound| number >= bound, "less than"),
            ("multipleOf", |number, bound| bound != 0.0 && (number / bound).fract() != 0.0, "a multiple of"),
        ];
        for (key, broken, words) in rules {
            let Some(bound) = schema.get(key).filter(|bound| bound.as_f64().is_some_and(|b| broken(number, b))) else {
                continue;
            };
            // schemars writes the bounds of `u32` and similar types as floating-point numbers.
            let bound = match bound.as_f64() {
                Some(whole) if whole.fract() == 0.0 && whole.abs() < 1e15 => format!("{whole:.0}"),
                _ => bound.to_string(),
            };
            let message = format!("{} must be {words} {bound}, and is {}", at.name, at.node.to_value(&Value::Null));
            self.report(at, message, None);
        }
    }
}

/// Whether a value has a type, by its JSON Schema name. A float without a fraction is not an integer here: the
/// deserializer of the config does not accept it as one.
pub(super) fn fits(name: &str, data: &Data) -> bool {
    match (name, data) {
        ("object", Data::Map(_)) | ("array", Data::List(_)) | (_, Data::Unknown) => true,
        ("null", Data::Scalar(Value::Null)) | ("boolean", Data::Scalar(Value::Bool(_))) => true,
        ("string", Data::Scalar(Value::String(_))) | ("number", Data::Scalar(Value::Number(_))) => true,
        ("integer", Data::Scalar(Value::Number(number))) => !number.is_f64(),
        _ => false,
    }
}

/// Equality according to JSON Schema: 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// Whether a schema is that of an artifact: an output of an earlier task.
fn is_artifact(schema: &Map<String, Value>) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|key| key == "$artifact"))
}

/// A type's name in messages.
pub(super) fn called(name: &str) -> &str {
    match name {
        "object" => "a mapping",
        "array" => "a list",
        "boolean" => "a boolean",
        "string" => "a text",
        "number" => "a number",
        "integer" => "a whole number",
        other => other,
    }
}

/// `a`, `b` or `c`.
pub(super) fn any_of(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        [one] => format!("`{one}`"),
        [most @ .., last] => format!("{} or `{last}`", suggest::list(most)),
    }
}

/// A hint for a value of the wrong type.
fn remedy(types: &[&str], at: Target<'_>) -> Option<String> {
    let wants = |name: &str| types.contains(&name);
    let Data::Scalar(value) = &at.node.data else {
        return match &at.node.data {
            Data::List(items) if items.len() == 1 => Some("write the value without the brackets".into()),
            _ => None,
        };
    };
    match value {
        Value::Null => Some("write a value behind the colon, or leave the key out".into()),
        Value::Number(number) if wants("integer") => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 && at.node.computed => {
                Some(format!("`{number}` is not a whole number: use `//`, or write `| int` behind the expression"))
            }
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 => Some(format!("write `{whole:.0}`")),
            _ => Some("write a number without a fraction".into()),
        },
        Value::Number(_) | Value::Bool(_) if wants("string") && !at.node.computed => {
            Some(format!("put it into quotes: \"{value}\""))
        }
        Value::String(text) => text_remedy(text, types),
        scalar if wants("array") => Some(format!("write `[{}]`", scalar::in_address(scalar))),
        _ => None,
    }
}

/// A hint for a text instead of another type.
fn text_remedy(text: &str, types: &[&str]) -> Option<String> {
    let wants = |name: &str| types.contains(&name);
    let number = wants("integer") || wants("number");
    if wants("boolean") {
        return Some(match text.to_lowercase().as_str() {
            "yes" | "on" | "y" => "YAML 1.2 reads this as a text: write `true`".into(),
            "no" | "off" | "n" => "YAML 1.2 reads this as a text: write `false`".into(),
            "true" | "false" => "remove the quotes".into(),
            _ => "write `true` or `false`".into(),
        });
    }
    let meaning = scalar::resolve(text).ok().filter(Value::is_number);
    let plain = text.replace(['_', ','], "");
    let plain_meaning = scalar::resolve(&plain).ok().filter(Value::is_number);
    match (meaning, plain_meaning) {
        (Some(_), _) if number => Some("remove the quotes".into()),
        (None, Some(_)) if number => Some(format!("write `{plain}`: digits are not grouped")),
        _ if wants("array") => Some(format!("write `[{}]`", scalar::in_address(&Value::from(text)))),
        _ => None,
    }
}
