//! The fields of a request: the JSON object of its body, or its query. An error names the field that is missing or has another type.

use serde_json::{Map, Value};

use super::error::ApiError;

/// The fields of a request. Unknown ones are ignored, as protocol buffers do.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields {
    values: Map<String, Value>,
    /// The length of the body they were read from, in bytes.
    pub bytes: usize,
}

impl Fields {
    /// Those of a query. A field that is given several times is a list.
    pub fn of_query(query: &str) -> Fields {
        let mut values = Map::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            let value = Value::String(value);
            match values.get_mut(&key) {
                None => drop(values.insert(key, value)),
                Some(Value::Array(list)) => list.push(value),
                Some(first) => *first = Value::Array(vec![first.take(), value]),
            }
        }
        Fields { values, bytes: query.len() }
    }

    /// Those of a body. An empty one has none.
    pub fn of_json(body: &[u8]) -> Result<Fields, ApiError> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Fields::default());
        }
        let parsed = serde_json::from_slice(body);
        match parsed.map_err(|error| ApiError::bad_request(format!("The request is not JSON: {error}")))? {
            Value::Object(values) => Ok(Fields { values, bytes: body.len() }),
            _ => Err(ApiError::bad_request("The request is not a JSON object")),
        }
    }

    /// Those of an object in a list.
    pub fn of_value(what: &str, value: &Value) -> Result<Fields, ApiError> {
        match value {
            Value::Object(values) => Ok(Fields { values: values.clone(), bytes: 0 }),
            other => Err(invalid_value(what, other)),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).filter(|value| !value.is_null())
    }

    /// An optional text.
    pub fn maybe_text(&self, name: &str) -> Result<Option<String>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(invalid_value(name, other)),
        }
    }

    /// A text; empty if the field is missing.
    pub fn text_or_empty(&self, name: &str) -> Result<String, ApiError> {
        Ok(self.maybe_text(name)?.unwrap_or_default())
    }

    /// A text that is not empty.
    pub fn text(&self, name: &str) -> Result<String, ApiError> {
        let text = self.text_or_empty(name)?;
        if text.is_empty() { Err(missing(name)) } else { Ok(text) }
    }

    /// A whole number, which may be written as a text.
    pub fn maybe_integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        integer(value).map(Some).ok_or_else(|| invalid_value(name, value))
    }

    /// A required whole number.
    pub fn integer(&self, name: &str) -> Result<i64, ApiError> {
        self.maybe_integer(name)?.ok_or_else(|| missing(name))
    }

    /// A number. JSON has no numbers that are not finite: they are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`.
    pub fn number(&self, name: &str) -> Result<f64, ApiError> {
        let value = self.get(name).ok_or_else(|| missing(name))?;
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                other => other.parse().ok().filter(|number: &f64| number.is_finite()),
            },
            _ => None,
        };
        number.ok_or_else(|| invalid_value(name, value))
    }

    /// The values of a list; empty if the field is missing. A single value is a list of one, as in a query.
    pub fn list(&self, name: &str) -> Vec<Value> {
        match self.get(name) {
            None => Vec::new(),
            Some(Value::Array(list)) => list.clone(),
            Some(value) => vec![value.clone()],
        }
    }

    /// The objects of a list.
    pub fn objects(&self, name: &str) -> Result<Vec<Fields>, ApiError> {
        self.list(name).iter().map(|value| Fields::of_value(name, value)).collect()
    }

    /// The texts of a list.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let text = |value: Value| match value {
            Value::String(text) => Ok(text),
            other => Err(invalid_value(name, &other)),
        };
        self.list(name).into_iter().map(text).collect()
    }

    /// Whether the request has this field.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let number = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15)?;
            Some(number as i64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The error for a required field that is missing.
pub(super) fn missing(name: &str) -> ApiError {
    ApiError::invalid(format!(
        "Missing value for required parameter '{name}'. See the API docs for more information about request parameters."
    ))
}

/// The error for a field of another type.
pub(super) fn invalid_value(name: &str, value: &Value) -> ApiError {
    let shown: String = value.to_string().chars().take(100).collect();
    ApiError::invalid(format!(
        "Invalid value {shown} for parameter '{name}' supplied. See the API docs for more information about request parameters."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_bodies_and_queries() {
        let fields =
            Fields::of_json(br#"{"a": "x", "n": 3, "m": "-4", "f": 2.0, "i": "Infinity", "e": null, "l": [1]}"#)
                .unwrap();
        assert_eq!(fields.text("a"), Ok("x".to_owned()));
        assert_eq!((fields.integer("n"), fields.integer("m"), fields.integer("f")), (Ok(3), Ok(-4), Ok(2)));
        assert_eq!((fields.number("i"), fields.maybe_text("e")), (Ok(f64::INFINITY), Ok(None)));
        assert!(fields.number("n").is_ok() && fields.texts("l").is_err() && fields.objects("l").is_err());
        let fields = Fields::of_query("run_ids=a&run_ids=b%2Fc&one=1&path=");
        assert_eq!(fields.texts("run_ids"), Ok(vec!["a".to_owned(), "b/c".to_owned()]));
        assert_eq!((fields.texts("one"), fields.integer("one")), (Ok(vec!["1".to_owned()]), Ok(1)));
        assert_eq!(fields.text_or_empty("path"), Ok(String::new()));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let fields = Fields::of_json(br#"{"a": 1, "n": 1.5, "x": "abc"}"#).unwrap();
        let check = |found: ApiError, what: &str| assert!(format!("{found:?}").contains(what), "{found:?}");
        check(fields.text("b").unwrap_err(), "Missing value for required parameter 'b'");
        check(fields.text("a").unwrap_err(), "Invalid value 1 for parameter 'a'");
        check(fields.integer("n").unwrap_err(), "'n'");
        check(fields.number("x").unwrap_err(), "abc");
        for body in ["[1]", "{", "nonsense"] {
            check(Fields::of_json(body.as_bytes()).unwrap_err(), "BAD_REQUEST");
        }
        assert_eq!(Fields::of_json(b" ").unwrap(), Fields::default());
    }
}
