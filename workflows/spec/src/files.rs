//! Local files in a config: found here, read by the caller, and then identified by their content.
//!
//! A property of a step kind's schema with the `format` [`LOCAL_FILE`] contains a path, relative to the folder of the workflow
//! file; one with the `format` [`LOCAL_FILES`] contains a list of files and folders. This crate reads no files:
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

/// The schema keyword for the size limit of the file, in bytes.
pub const MOST_BYTES: &str = "x-max-bytes";

/// A local file that a config names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalFile {
    /// The key of the config; `plugins.NAME` for the component of a plugin.
    pub key: String,
    /// The path as written, for an element of a list; `None` if the key has a single file.
    pub element: Option<String>,
    /// The path of the file.
    pub path: PathBuf,
    /// Its size limit ([`MOST_BYTES`]): a larger file must be refused before it is stored.
    pub most: Option<u64>,
}

impl ResolvedStep {
    /// Replaces the paths of all files by their contents, and recomputes the cache key. A list becomes a map of the contents under its
    /// key, which is empty if the list names only empty folders.
    pub fn pin_all(&mut self, contents: &[(LocalFile, ArtifactRef)]) {
        for listed in self.files.drain(..).filter(|file| file.element.is_some()) {
            if let Some(place) = self.config.get_mut(&listed.key) {
                *place = Value::Object(serde_json::Map::new());
            }
        }
        for (file, artifact) in contents {
            let content =
                serde_json::json!({"$artifact": artifact.hash, "name": artifact.name, "bytes": artifact.bytes});
            set_component(&mut self.config, &file.key, &content);
            match (self.config.get_mut(&file.key), &file.element) {
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

/// The local files of a config, in the order of the keys. `folder` is the folder of the workflow file.
pub(crate) fn local_files(schema: &Value, config: &Value, folder: &Path) -> Vec<LocalFile> {
    let mut keys = BTreeMap::new();
    collect_keys(schema, &mut keys);
    let mut files = Vec::new();
    for (key, most) in keys {
        match config.get(key) {
            Some(Value::String(path)) => {
                files.push(LocalFile { key: key.to_owned(), element: None, path: folder.join(path), most });
            }
            Some(Value::Array(paths)) => files.extend(paths.iter().filter_map(Value::as_str).map(|path| LocalFile {
                key: key.to_owned(),
                element: Some(path.to_owned()),
                path: folder.join(path),
                most,
            })),
            _ => {}
        }
    }
    files
}

/// The names of all properties in the schema that contain paths of local files, with their size limits.
fn collect_keys<'a>(schema: &'a Value, keys: &mut BTreeMap<&'a str, Option<u64>>) {
    match schema {
        Value::Object(map) => {
            for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if matches!(property.get("format").and_then(Value::as_str), Some(LOCAL_FILE | LOCAL_FILES)) {
                    keys.insert(name, property.get(MOST_BYTES).and_then(Value::as_u64));
                }
            }
            map.values().for_each(|part| collect_keys(part, keys));
        }
        Value::Array(parts) => parts.iter().for_each(|part| collect_keys(part, keys)),
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

    #[test]
    fn only_what_the_schema_calls_a_file_is_one() {
        let config = json!({"file": "texts/a.txt", "name": "b.txt", "seed": 1});
        let found = local_files(&schema(), &config, Path::new("/flows"));
        assert_eq!(
            found,
            [LocalFile { key: "file".into(), element: None, path: "/flows/texts/a.txt".into(), most: Some(9) }]
        );
        assert_eq!(local_files(&schema(), &json!({"file": 3}), Path::new("/flows")), []);
        let absolute = local_files(&schema(), &json!({"file": "/a.txt"}), Path::new("/flows"));
        assert_eq!(absolute[0].path, Path::new("/a.txt"));
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
        let config = json!({"files": ["a.py", "lib/b.py"]});
        let mut step = ResolvedStep {
            kind: "command".into(),
            version: 1,
            replicate: 1,
            files: local_files(&schema, &config, Path::new("/flows")),
            artifacts: Vec::new(),
            key: String::new(),
            warnings: Vec::new(),
            on: Value::Null,
            config,
        };
        assert_eq!(step.files[1].path, Path::new("/flows/lib/b.py"));
        let content = |hash: &str| ArtifactRef { hash: hash.repeat(64), name: "f".into(), bytes: 3 };
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
