//! The cache key: one hash over everything that can change the result of a task, and nothing else.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kind::StepKind;
use crate::plugins::counted_part;
use crate::workflow::Resource;

/// BLAKE3 of the canonical JSON of `{config, kind, on, replicate, version}`, in lower-case hexadecimal.
///
/// Artifacts in `config` count only by their hash: a file's name is for people. `on` is the relevant part of the task's resources,
/// see [`key_resources`], and is omitted if null. A missing replicate counts as 1, so that adding a second replicate to a job does
/// not rerun the first one.
pub(crate) fn cache_key(kind: &str, version: u32, config: &Value, on: &Value, replicate: Option<u32>) -> String {
    let mut text = String::from("{\"config\":");
    write_canonical(config, &mut text);
    text.push_str(",\"kind\":");
    write_canonical(&Value::from(kind), &mut text);
    if !on.is_null() {
        text.push_str(",\"on\":");
        write_canonical(on, &mut text);
    }
    text.push_str(&format!(",\"replicate\":{},\"version\":{version}}}", replicate.unwrap_or(1)));
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// The part of a task's resources that its cache key contains. For a measurement these are the backend, the threads, `exclusive` and
/// the devices that `machine` lists for the backend, or for the backend on nodes with the label that the task is pinned to. For any
/// other result it is the backend alone: its bits do not depend on the number of threads. The default, the backend `cpu` alone, is left out.
pub(crate) fn key_resources(
    kind: &StepKind,
    config: &Value,
    resources: &[Resource],
    machine: &BTreeMap<String, Value>,
) -> Value {
    if kind.measures_machine(config) {
        let one = |r: &Resource| {
            let pinned = r.label.as_ref().and_then(|label| machine.get(&labelled_backend(&r.backend, label)));
            let devices = pinned.or_else(|| machine.get(&r.backend));
            json!({"backend": r.backend, "cpus": r.cpus, "exclusive": r.exclusive, "devices": devices})
        };
        return resources.iter().map(one).collect();
    }
    let backends: Vec<&str> = resources.iter().map(|resource| resource.backend.as_str()).collect();
    if backends.iter().all(|backend| *backend == Resource::default().backend) { Value::Null } else { json!(backends) }
}

/// The name under which a description of a lab lists the devices of a backend on nodes with a label.
#[must_use]
pub fn labelled_backend(backend: &str, label: &str) -> String {
    format!("{backend}@{label}")
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
            // The limits of a plugin do not count.
            let counted = counted_part(map);
            let mut entries: Vec<_> = counted.as_ref().unwrap_or(map).iter().collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> StepKind {
        StepKind {
            name: "work",
            version: 1,
            measures: false,
            about: "",
            schema: json!({}).into(),
            outputs: &[],
            metrics: &[],
            check: |_| Vec::new(),
        }
    }

    #[test]
    fn a_measurement_counts_for_its_backend_and_threads_and_a_result_for_its_backend() {
        let key_on = |measures: bool, resources: &[(&str, u32)], machine: Value| {
            let kind = StepKind { measures, ..kind() };
            let on = |(backend, cpus): &(&str, u32)| Resource {
                backend: (*backend).into(),
                cpus: *cpus,
                ..Resource::default()
            };
            let resources: Vec<Resource> = resources.iter().map(on).collect();
            let machine = BTreeMap::from([("cpu".to_owned(), machine)]);
            cache_key("work", 1, &json!({}), &key_resources(&kind, &json!({}), &resources, &machine), None)
        };
        let key = |measures, resources: &[(&str, u32)]| key_on(measures, resources, json!({"name": "Imagined 9000"}));
        let plain = [("cpu", 1)];
        for other in [&[("cuda", 1)][..], &[("cuda", 1), ("cpu", 1)], &[("cpu", 1), ("cuda", 1)]] {
            assert_ne!(key(false, other), key(false, &plain), "{other:?}");
            assert_ne!(key(true, other), key(true, &plain), "{other:?}");
        }
        assert_eq!(key(false, &[("cpu", 2)]), key(false, &plain));
        assert_ne!(key(true, &[("cpu", 2)]), key(true, &plain));
        assert_ne!(key(true, &plain), key(false, &plain));
        // Another processor, or another number of processors, changes measurements but not other results.
        for other in [json!({"name": "Imagined 9001"}), json!({"name": "Imagined 9000", "count": 2})] {
            assert_ne!(key_on(true, &plain, other.clone()), key(true, &plain), "{other}");
            assert_eq!(key_on(false, &plain, other.clone()), key(false, &plain), "{other}");
        }
        // A config may declare that its step measures.
        let schema = json!({"properties": {"timed": {"x-declares": "measurement"}}});
        let declaring = StepKind { schema: schema.into(), ..kind() };
        let on = |config: Value| key_resources(&declaring, &config, &[Resource::default()], &BTreeMap::new());
        for config in [json!({"timed": true}), json!({"timed": {"samples": 9}})] {
            assert!(on(config.clone()).to_string().contains("exclusive"), "{config}");
        }
        assert_eq!((on(json!({"timed": false})), on(json!({}))), (Value::Null, Value::Null));
        // A measurement that is pinned to a label counts for the machines that have it.
        let kind = StepKind { measures: true, ..kind() };
        let machine = |bench: &str| {
            let pinned = (labelled_backend("cpu", "bench-01"), json!({"name": bench}));
            BTreeMap::from([("cpu".to_owned(), json!({"name": "any"})), pinned])
        };
        let pinned = [Resource { label: Some("bench-01".into()), ..Resource::default() }];
        let on = |resources: &[Resource], bench: &str| key_resources(&kind, &json!({}), resources, &machine(bench));
        assert_ne!(on(&pinned, "a"), on(&pinned, "b"));
        assert_ne!(on(&pinned, "a"), on(&[Resource::default()], "a"));
        assert_eq!(on(&[Resource::default()], "a"), on(&[Resource::default()], "b"));
        // The same key as before resources were part of the key.
        assert_eq!(key(false, &plain), cache_key("work", 1, &json!({}), &Value::Null, Some(1)));
    }
}
