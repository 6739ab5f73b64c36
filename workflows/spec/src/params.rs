//! Parameters: the file's defaults, and overrides from the command line.

use serde_json::{Map, Value};

use crate::draft::Reader;
use crate::node::{self, Data, Entry, Node};
use crate::problem::{Log, Problems};
use crate::scalar;
use crate::source::{Source, Span};
use crate::suggest;

/// The overrides in a JSON or YAML file of parameters, as names and texts for [`check`](crate::check): a nested mapping names
/// its parts, such as `model.dim`, so that other parts keep their defaults.
///
/// # Errors
/// All problems of the file.
pub fn read_overrides(file: &str, text: &str) -> Result<Vec<(String, String)>, Problems> {
    let (source, mut log) = (Source::new(file, text), Log::default());
    let root = node::parse(&source, &mut log);
    let mut overrides = Vec::new();
    match root.as_ref().map(|root| (&root.data, root.span)) {
        Some((Data::Map(entries), _)) => entries.iter().for_each(|entry| flatten(&entry.key, entry, &mut overrides)),
        Some((_, span)) => log.report(span, "a file of parameters is a mapping", "for example `seed: 18`".to_owned()),
        None => {}
    }
    if log.is_empty() { Ok(overrides) } else { Err(log.into_problems(&source)) }
}

/// The leaves of an entry, each with its path.
fn flatten(path: &str, entry: &Entry, overrides: &mut Vec<(String, String)>) {
    match &entry.value.data {
        Data::Map(entries) if !entries.is_empty() => {
            entries.iter().for_each(|entry| flatten(&format!("{path}.{}", entry.key), entry, overrides));
        }
        _ => {
            let value = entry.value.to_value(&Value::Null);
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            overrides.push((path.to_owned(), text));
        }
    }
}

/// The target of an override: a parameter, or a part of one that is a mapping. Returns the rest of the path below it.
fn find<'a, 'p>(entries: &'a [Entry], path: &'p str) -> Option<(&'a Entry, &'p str)> {
    if let Some(entry) = entries.iter().find(|entry| entry.key == path) {
        return Some((entry, ""));
    }
    let starts = |entry: &&Entry| path.strip_prefix(entry.key.as_str()).is_some_and(|rest| rest.starts_with('.'));
    let entry = entries.iter().filter(starts).max_by_key(|entry| entry.key.len())?;
    Some((entry, &path[entry.key.len() + 1..]))
}

/// Replaces a part of a parameter. Returns the problem if the part does not exist, or has another type.
fn replace(value: &mut Value, default: &Node, rest: &str, text: &str) -> Result<(), Misfit> {
    if rest.is_empty() {
        *value = typed(text, default).map_err(|expected| Misfit::Type { expected, is: default.describe() })?;
        return Ok(());
    }
    let entries = match &default.data {
        Data::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    let Some((entry, rest)) = find(entries, rest) else {
        return Err(Misfit::Part { known: entries.iter().map(|entry| entry.key.clone()).collect() });
    };
    match value.as_object_mut().and_then(|map| map.get_mut(&entry.key)) {
        Some(part) => replace(part, &entry.value, rest, text),
        // An earlier override replaced the default by another mapping.
        None => Err(Misfit::Part { known: Vec::new() }),
    }
}

/// Why an override is invalid.
enum Misfit {
    /// The default has another type.
    Type { expected: &'static str, is: String },
    /// The default does not have this part, but these.
    Part { known: Vec<String> },
}

/// The parameters after overrides. An override must have the type of the default.
pub(crate) fn read(reader: &mut Reader<'_>, entries: &[Entry], overrides: &[(String, String)]) -> Map<String, Value> {
    let mut params = Map::new();
    for entry in entries {
        params.insert(entry.key.clone(), entry.value.to_value(&Value::Null));
    }
    for (name, text) in overrides {
        let Some((entry, rest)) = find(entries, name) else {
            let known: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
            let hint = match suggest::nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `-P {near}={text}`?"),
                None if known.is_empty() => "the file has no `params`".into(),
                None => format!("the file has {}", suggest::list(&known)),
            };
            let span = entries.first().map_or(Span::START, |entry| entry.key_span);
            reader.report(span, format!("`-P {name}={text}` is not a parameter of this file"), hint);
            continue;
        };
        let Some(value) = params.get_mut(&entry.key) else { continue };
        let (message, hint) = match replace(value, &entry.value, rest, text) {
            Ok(()) => continue,
            Err(Misfit::Type { expected, is }) => (
                format!("`-P {name}={text}` does not fit: `{name}` is {expected}"),
                format!("its default here is {is}"),
            ),
            Err(Misfit::Part { known }) if known.is_empty() => {
                let message = format!("`-P {name}={text}` names a part of a value that has no parts");
                (message, format!("`{}` is {}", entry.key, entry.value.describe()))
            }
            Err(Misfit::Part { known }) => {
                let message = format!("`-P {name}={text}` names a part that is not in `{}`", entry.key);
                (message, format!("it has {}", suggest::list(&known)))
            }
        };
        reader.report(entry.value.span, message, hint);
    }
    params
}

/// The text as a value of the default's type; `1` becomes `1.0` if the default is a floating-point number.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_parameters_names_the_leaves_of_its_mappings() {
        let text = "seed: 18\nmodel:\n  dim: 32\n  tags: [a, 1]\n  name: ten\n  none: {}\n";
        let pair = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
        let expected = [
            ("seed", "18"),
            ("model.dim", "32"),
            ("model.tags", "[\"a\",1]"),
            ("model.name", "ten"),
            ("model.none", "{}"),
        ];
        assert_eq!(read_overrides("p.yaml", text).unwrap(), expected.map(pair));
        let error = read_overrides("p.yaml", "- 1").unwrap_err().to_string();
        assert!(error.contains("p.yaml:1:3: a file of parameters is a mapping"), "{error}");
    }
}
