//! The cache key: one hash over everything that can change what a task computes, and nothing else.

use serde_json::Value;

/// BLAKE3 of the canonical JSON of `{config, kind, replicate, version}`, in lower-case hexadecimal.
///
/// `config` counts artifacts by their hash alone: a file's name is for people. The replicate counts as 1 where there
/// is none, so that giving a job a second replicate does not run the first one again.
pub(crate) fn cache_key(kind: &str, version: u32, config: &Value, replicate: Option<u32>) -> String {
    let mut text = String::from("{\"config\":");
    write_canonical(config, &mut text);
    text.push_str(",\"kind\":");
    write_canonical(&Value::from(kind), &mut text);
    text.push_str(&format!(",\"replicate\":{},\"version\":{version}}}", replicate.unwrap_or(1)));
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// JSON without spaces, with the keys of every object sorted by their bytes.
pub(crate) fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) if map.contains_key("$artifact") => {
            out.push_str("{\"$artifact\":");
            write_canonical(&map["$artifact"], out);
            out.push('}');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            write_joined(out, ('{', '}'), entries, |(key, value), out| {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            });
        }
        Value::Array(items) => write_joined(out, ('[', ']'), items, write_canonical),
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn write_joined<T>(
    out: &mut String,
    (open, close): (char, char),
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}
