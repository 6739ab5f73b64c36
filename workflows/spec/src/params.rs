//! Parameters: the file's defaults, and what the command line puts in their place.

use serde_json::{Map, Value};

use crate::draft::Reader;
use crate::node::{Entry, Node};
use crate::scalar;
use crate::source::Span;
use crate::suggest;

/// The parameters after overrides. An override must have its default's type.
pub(crate) fn read(reader: &mut Reader<'_>, entries: &[Entry], overrides: &[(String, String)]) -> Map<String, Value> {
    let mut params = Map::new();
    for entry in entries {
        params.insert(entry.key.clone(), entry.value.to_value(&Value::Null));
    }
    for (name, text) in overrides {
        let Some(entry) = entries.iter().find(|entry| entry.key == *name) else {
            let known: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
            let hint = match suggest::nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `-P {near}={text}`?"),
                None if known.is_empty() => "the file has no `params`".into(),
                None => format!("the file has {}", suggest::list(&known)),
            };
            let span = entries.first().map_or(Span::START, |entry| entry.key_span);
            reader.report(span, format!("`-P {name}={text}` names no parameter of this file"), hint);
            continue;
        };
        match typed(text, &entry.value) {
            Ok(value) => drop(params.insert(name.clone(), value)),
            Err(expected) => {
                let message = format!("`-P {name}={text}` does not fit: `{name}` is {expected}");
                let hint = format!("its default here is {}", entry.value.describe());
                reader.report(entry.value.span, message, hint);
            }
        }
    }
    params
}

/// The text as a value of the default's type; `1` becomes `1.0` where the default is a number with a fraction.
fn typed(text: &str, default: &Node) -> Result<Value, &'static str> {
    let default = default.to_value(&Value::Null);
    let read = || scalar::resolve(text).unwrap_or(Value::Null);
    let inline = || serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let (value, fits, expected): (Value, fn(&Value) -> bool, _) = match &default {
        Value::String(_) => return Ok(Value::from(text)),
        Value::Null => return scalar::resolve(text).map_err(|_| "a finite number of at most 64 bits"),
        Value::Bool(_) => (read(), Value::is_boolean, "a boolean: `true` or `false`"),
        Value::Number(number) if number.is_f64() => (read(), Value::is_number, "a number"),
        Value::Number(_) => (read(), |value| value.is_i64() || value.is_u64(), "a whole number"),
        Value::Array(_) => (inline(), Value::is_array, "a list, such as `[1, 2]` in JSON"),
        Value::Object(_) => (inline(), Value::is_object, "a mapping, such as `{\"a\": 1}` in JSON"),
    };
    match (&default, value.as_f64()) {
        _ if !fits(&value) => Err(expected),
        (Value::Number(number), Some(value)) if number.is_f64() => Ok(Value::from(value)),
        _ => Ok(value),
    }
}
