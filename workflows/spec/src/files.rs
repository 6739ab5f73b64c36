//! Local files in a config: found here, read by the caller, and then identified by their content.
//!
//! A property of a step kind's schema whose `format` is [`LOCAL_FILE`] holds a path, relative to the folder of the
//! workflow file; one whose `format` is [`LOCAL_FILES`] holds a list of files and folders, or one path with [`COMPANIONS`]; one whose
//! `format` is [`LOCAL_PYTHON`] names an interpreter, whose content is a description of it. This crate reads no files:
//! [`ResolvedStep::files`] lists the files of a config, and the caller puts each into the store and calls
//! [`ResolvedStep::pin_all`], so that the config and the cache key contain the content. A list becomes a map from path to
//! content.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::artifact::{ArtifactRef, artifacts_in};
use crate::key::cache_key;
use crate::plugins::set_component;
use crate::resolve::ResolvedStep;

/// The `format` of a schema's property that names a local file.
pub const LOCAL_FILE: &str = "local-file";

/// The `format` of a schema's property that lists local files and folders.
pub const LOCAL_FILES: &str = "local-files";

/// The `format` of a schema's property that names an interpreter of Python.
pub const LOCAL_PYTHON: &str = "local-python";

/// The keyword of a property with [`LOCAL_FILES`] that lists names of files which belong to a single path, in the same folder.
pub const COMPANIONS: &str = "x-companions";

/// The schema keyword for the size limit of the file, in bytes.
pub const MOST_BYTES: &str = "x-max-bytes";

/// The keyword of a property with [`LOCAL_FILE`] that lists its values that are not paths.
pub const OTHER_VALUES: &str = "x-other-values";

/// A local file that a config names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// The key of the config, with dots between nested keys; `plugins.NAME` for the component of a plugin.
    pub key: String,
    /// The path as written, for an element of a list; `None` if the key has a single file.
    pub element: Option<String>,
    /// The path of the file.
    pub path: PathBuf,
    /// Its size limit ([`MOST_BYTES`]): a larger file must be refused before it is stored.
    pub most: Option<u64>,
    /// Whether it is an interpreter of Python, whose content is a description of it and its packages.
    pub is_python: bool,
}

impl ResolvedStep {
    /// Replaces the paths of all files by their contents, and recomputes the cache key. A list becomes a map of the contents under its
    /// key, which is empty if the list names only empty folders.
    pub fn pin_all(&mut self, contents: &[(LocalFile, ArtifactRef)]) {
        for listed in self.files.drain(..).filter(|file| file.element.is_some()) {
            if let Some(place) = value_at(&mut self.config, &listed.key) {
                *place = Value::Object(serde_json::Map::new());
            }
        }
        for (file, artifact) in contents {
            let content =
                serde_json::json!({"$artifact": artifact.hash, "name": artifact.name, "bytes": artifact.bytes});
            set_component(&mut self.config, &file.key, &content);
            match (value_at(&mut self.config, &file.key), &file.element) {
                (Some(place), None) => *place = content,
                (Some(Value::Object(contents)), Some(element)) => {
                    contents.insert(element.clone(), content);
                }
                (Some(_) | None, _) => {}
            }
        }
        self.artifacts = artifacts_in(&self.config);
        self.key = cache_key(&self.kind, self.version, &self.config, &self.on, Some(self.replicate));
    }
}

/// The value of a key with dots between nested keys.
fn value_at<'a>(config: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    key.split('.').try_fold(config, |value, part| value.get_mut(part))
}

/// The local files that a config names, in the order of the keys. `folder` is that of the workflow file.
pub(crate) fn local_files(schema: &Value, config: &Value, folder: &Path) -> Vec<LocalFile> {
    let mut keys = BTreeMap::new();
    collect_keys(schema, &[], &mut keys);
    let mut files = Vec::new();
    for (key, rule) in keys {
        let new = |element: Option<&str>, path: &Path| LocalFile {
            key: key.join("."),
            element: element.map(str::to_owned),
            path: folder.join(path),
            most: rule.most,
            is_python: rule.is_python,
        };
        match key.iter().try_fold(config, |value, part| value.get(part)) {
            Some(Value::String(value)) if rule.others.contains(&value.as_str()) => {}
            Some(Value::String(path)) if rule.companions.is_empty() => files.push(new(None, Path::new(path))),
            Some(Value::String(path)) => {
                let companions = rule.companions.iter().map(|name| Path::new(path).with_file_name(name));
                for file in [PathBuf::from(path)].into_iter().chain(companions) {
                    files.push(new(Some(&file.to_string_lossy()), &file));
                }
            }
            Some(Value::Array(paths)) => {
                files.extend(paths.iter().filter_map(Value::as_str).map(|path| new(Some(path), Path::new(path))));
            }
            _ => {}
        }
    }
    files
}

/// What a schema says of a property that holds paths.
#[derive(Debug, Default)]
struct FileRule<'a> {
    most: Option<u64>,
    companions: Vec<&'a str>,
    /// Values that are not paths.
    others: Vec<&'a str>,
    is_python: bool,
}

/// The places of all properties, wherever in the schema, that hold paths of local files. Definitions count as if they were at the top.
fn collect_keys<'a>(schema: &'a Value, place: &[&'a str], keys: &mut BTreeMap<Vec<&'a str>, FileRule<'a>>) {
    match schema {
        Value::Object(map) => {
            for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let place: Vec<&str> = place.iter().copied().chain([name.as_str()]).collect();
                let format = property.get("format").and_then(Value::as_str);
                if matches!(format, Some(LOCAL_FILE | LOCAL_FILES | LOCAL_PYTHON)) {
                    let words = |keyword: &str| {
                        let words = property.get(keyword).and_then(Value::as_array).into_iter().flatten();
                        words.filter_map(Value::as_str).collect()
                    };
                    let rule = FileRule {
                        most: property.get(MOST_BYTES).and_then(Value::as_u64),
                        companions: words(COMPANIONS),
                        others: words(OTHER_VALUES),
                        is_python: format == Some(LOCAL_PYTHON),
                    };
                    keys.insert(place.clone(), rule);
                }
                collect_keys(property, &place, keys);
            }
            let others = map.iter().filter(|(keyword, _)| *keyword != "properties");
            others.for_each(|(keyword, part)| collect_keys(part, if keyword == "$defs" { &[] } else { place }, keys));
        }
        Value::Array(parts) => parts.iter().for_each(|part| collect_keys(part, place, keys)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        let text = json!({"properties": {"file": {"type": "string", "format": LOCAL_FILE, MOST_BYTES: 9}, "seed": {"type": "integer"}}});
        json!({"oneOf": [text, {"properties": {"name": {"type": "string", "format": "date"}}}]})
    }

    fn content(hash: &str) -> ArtifactRef {
        ArtifactRef { hash: hash.repeat(64), name: "f".into(), bytes: 3 }
    }

    /// A step of a workflow in `/flows`.
    fn resolved(schema: &Value, config: Value) -> ResolvedStep {
        ResolvedStep {
            kind: "command".into(),
            version: 1,
            replicate: 1,
            files: local_files(schema, &config, Path::new("/flows")),
            artifacts: Vec::new(),
            key: String::new(),
            warnings: Vec::new(),
            on: Value::Null,
            config,
        }
    }

    #[test]
    fn only_what_the_schema_calls_a_file_is_one() {
        let config = json!({"file": "texts/a.txt", "name": "b.txt", "seed": 1});
        let found = local_files(&schema(), &config, Path::new("/flows"));
        assert_eq!(
            found,
            [LocalFile {
                key: "file".into(),
                element: None,
                path: "/flows/texts/a.txt".into(),
                most: Some(9),
                is_python: false
            }]
        );
        assert_eq!(local_files(&schema(), &json!({"file": 3}), Path::new("/flows")), []);
        let absolute = local_files(&schema(), &json!({"file": "/a.txt"}), Path::new("/flows"));
        assert_eq!(absolute[0].path, Path::new("/a.txt"));
    }

    #[test]
    fn a_listed_word_or_an_artifact_is_not_a_path() {
        let schema = json!({"properties": {"tokenizer": {
            "anyOf": [{"type": "string"}, {"type": "object"}], "format": LOCAL_FILE, OTHER_VALUES: ["bytes"],
        }}});
        let found = |value: Value| local_files(&schema, &json!({"tokenizer": value}), Path::new("/flows")).len();
        assert_eq!(found(json!("bytes")), 0);
        assert_eq!(found(json!({"$artifact": "0", "name": "t", "bytes": 1})), 0);
        assert_eq!(found(json!("./bytes")), 1);
    }

    #[test]
    fn files_are_found_in_nested_options_and_not_in_free_values() {
        let schema = json!({"properties": {
            "params": {"type": "object"},
            "environment": {"properties": {
                "uv": {"type": "string", "format": LOCAL_FILES, COMPANIONS: ["pyproject.toml"]},
                "python": {"type": "string", "format": LOCAL_PYTHON},
            }},
        }});
        let config = json!({"params": {"uv": "a", "python": "b"}, "environment": {"uv": "env/uv.lock"}});
        let mut step = resolved(&schema, config);
        let found: Vec<_> =
            step.files.iter().map(|file| (file.key.as_str(), file.element.as_deref().unwrap())).collect();
        assert_eq!(found, [("environment.uv", "env/uv.lock"), ("environment.uv", "env/pyproject.toml")]);
        let contents: Vec<_> = step.files.clone().into_iter().zip(["0", "1"].map(content)).collect();
        step.pin_all(&contents);
        assert_eq!(step.config["environment"]["uv"]["env/pyproject.toml"]["$artifact"], "1".repeat(64));
        let mut step = resolved(&schema, json!({"environment": {"python": ".venv/bin/python"}}));
        let python = step.files[0].clone();
        assert!(python.is_python && python.path == Path::new("/flows/.venv/bin/python") && python.element.is_none());
        step.pin_all(&[(python, content("2"))]);
        assert_eq!(step.config["environment"]["python"]["$artifact"], "2".repeat(64));
    }

    #[test]
    fn the_key_follows_from_the_content_and_not_from_the_path() {
        let pinned = |path: &str, name: &str, hash: &str| {
            let config = json!({"file": path});
            let mut step = ResolvedStep {
                kind: "prepare".into(),
                version: 1,
                replicate: 1,
                files: local_files(&schema(), &config, Path::new("")),
                artifacts: Vec::new(),
                warnings: Vec::new(),
                key: cache_key("prepare", 1, &config, &Value::Null, None),
                on: Value::Null,
                config,
            };
            let artifact = ArtifactRef { hash: hash.repeat(64), name: name.into(), bytes: 3 };
            step.pin_all(&[(step.files[0].clone(), artifact.clone())]);
            assert_eq!((step.files.len(), step.artifacts.as_slice()), (0, [artifact].as_slice()));
            step.key
        };
        assert_eq!(pinned("a.txt", "a.txt", "0"), pinned("texts/b.txt", "b.txt", "0"));
        assert_ne!(pinned("a.txt", "a.txt", "0"), pinned("a.txt", "a.txt", "1"));
    }

    #[test]
    fn a_list_of_files_becomes_a_map_from_path_to_content() {
        let schema = json!({"properties": {"files": {"type": "array", "format": LOCAL_FILES}}});
        let mut step = resolved(&schema, json!({"files": ["a.py", "lib/b.py"]}));
        assert_eq!(step.files[1].path, Path::new("/flows/lib/b.py"));
        let mut empty = step.clone();
        let contents: Vec<_> = step.files.clone().into_iter().zip(["0", "1"].map(content)).collect();
        step.pin_all(&contents);
        assert!(step.files.is_empty());
        assert_eq!(step.config["files"]["lib/b.py"]["$artifact"], "1".repeat(64));
        assert_eq!(step.artifacts.len(), 2);
        // The list names only empty folders.
        empty.pin_all(&[]);
        assert_eq!((&empty.config, empty.files.len()), (&json!({"files": {}}), 0));
    }
}
