//! Scalars: the meaning of a plain YAML scalar, and how a value is printed for people.

use serde_json::{Number, Value};

/// The meaning of a plain scalar under YAML 1.2's core schema. `yes`, `no`, `on` and `off` are texts.
///
/// # Errors
/// A message and a hint, for numbers that cannot be represented exactly or that older YAML versions read differently.
pub(crate) fn resolve(text: &str) -> Result<Value, (String, String)> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err((format!("`{text}` is not a finite number"), "write a number, or leave the key out".into()));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return u64::from_str_radix(digits, radix).map(Value::from).map_err(|_| too_large(text));
        }
    }
    if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return integer(text, unsigned);
    }
    if is_float(unsigned) {
        let number = text.parse::<f64>().ok().and_then(Number::from_f64);
        return number.map(Value::Number).ok_or_else(|| too_large(text));
    }
    Ok(Value::from(text))
}

fn integer(text: &str, digits: &str) -> Result<Value, (String, String)> {
    if digits.len() > 1 && digits.starts_with('0') {
        let plain = digits.trim_start_matches('0');
        let plain = if plain.is_empty() { "0" } else { plain };
        let message = format!("`{text}` can be read as decimal or as octal");
        return Err((message, format!("write {plain} for a number, \"{text}\" for a text")));
    }
    let plus = text.strip_prefix('+').unwrap_or(text);
    if let Ok(number) = plus.parse::<i64>() {
        return Ok(number.into());
    }
    plus.parse::<u64>().map(Value::from).map_err(|_| too_large(text))
}

fn too_large(text: &str) -> (String, String) {
    let hint = format!("whole numbers have at most 64 bits, others at most 1.7e308; write \"{text}\" if it is a text");
    (format!("`{text}` is too large for a number"), hint)
}

/// `[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?` or the same with a leading dot.
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_fits = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    mantissa_fits && exponent_fits
}

/// The description of a value in messages, with its text if that is short.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "an empty value".into(),
        Value::Bool(value) => format!("the boolean `{value}`"),
        Value::Number(number) if number.is_f64() => format!("the number `{number}`"),
        Value::Number(number) => format!("the whole number `{number}`"),
        Value::String(text) if text.is_empty() => "an empty text".into(),
        Value::String(text) => format!("the text `{}`", shorten(text, 40)),
        Value::Array(_) => "a list".into(),
        Value::Object(map) if map.contains_key("$artifact") => "an artifact".into(),
        Value::Object(_) => "a mapping".into(),
    }
}

/// The weight of a value: one for every value in it, and one for every 32 bytes of text.
pub(crate) fn weight(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / 32,
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() / 32 + weight(value)).sum(),
        _ => 0,
    }
}

/// The start of a long text, on one line.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() > most {
        short.push('…');
    }
    short
}

/// A matrix value in an address: a YAML scalar; texts are unquoted if they are simple and would still be texts. Two
/// values have the same notation only if they are equal.
#[must_use]
pub fn in_address(value: &Value) -> String {
    match value {
        Value::String(text) if is_simple(text) && resolve(text).is_ok_and(|value| value.is_string()) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(in_address).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let name = |key: &str| if is_simple(key) { key.to_owned() } else { Value::from(key).to_string() };
            let entries = map.iter().map(|(key, value)| format!("{}:{}", name(key), in_address(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        scalar => scalar.to_string(),
    }
}

fn is_simple(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars_mean_what_yaml_1_2_says() {
        let cases = [
            ("17", json!(17)),
            ("+17", json!(17)),
            ("-17", json!(-17)),
            ("0", json!(0)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("3e-3", json!(0.003)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("-1.5E+2", json!(-150.0)),
            ("true", json!(true)),
            ("~", json!(null)),
            ("", json!(null)),
        ];
        for (text, value) in cases {
            assert_eq!(resolve(text), Ok(value), "{text}");
        }
        for text in
            ["no", "yes", "on", "off", "NO", "y", "1_000", "1:30", "2026-01-01", "e5", ".", "-", "1e", "0x", "0xg"]
        {
            assert_eq!(resolve(text), Ok(json!(text)), "{text}");
        }
        for text in
            ["017", "-08", "00", ".inf", "-.INF", ".nan", "1e999", "99999999999999999999", "-9223372036854775809"]
        {
            assert!(resolve(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_in_an_address_cannot_be_taken_for_something_else() {
        let cases = [
            (json!(16), "16"),
            (json!(0.5), "0.5"),
            (json!("ring"), "ring"),
            (json!("16"), "\"16\""),
            (json!("true"), "\"true\""),
            (json!("a,b=c]"), "\"a,b=c]\""),
            (json!(""), "\"\""),
            (json!(null), "null"),
            (json!({"family": "ten", "sizes": [1, 2]}), "{family:ten,sizes:[1,2]}"),
            (json!({"a:1,b": 2}), "{\"a:1,b\":2}"),
            (json!("a#1"), "\"a#1\""),
        ];
        for (value, text) in cases {
            assert_eq!(in_address(&value), text);
        }
    }
}
