//! `plugins:` of a workflow file: the WebAssembly components that its jobs use, and the substitution of their names in configs.
//!
//! A property of a step kind's schema with the `format` [`PLUGIN_NAME`] contains the name of a declared plugin. When a task is
//! resolved, the name is replaced by an object with the key [`PLUGIN_KEY`], the file as a [`LocalFile`], the version of the interface,
//! the number of the semantics and the limits. The cache key contains the content of the file, the interface, the semantics and the
//! name, which is part of the names of metrics. It does not contain the limits, since a result within one limit is also the result
//! within any larger limit.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::draft::{Reader, is_identifier};
use crate::files::LocalFile;
use crate::node::{Data, Entry, Node};
use crate::problem::{Log, Problems};
use crate::resolve::folder_of;
use crate::settings::SIZES;
use crate::source::Span;
use crate::suggest;
use crate::workflow::Workflow;

/// The `format` of a schema's property that names a plugin.
pub const PLUGIN_NAME: &str = "plugin-name";

/// The key of a resolved config that marks a plugin; its value is the plugin's name.
pub const PLUGIN_KEY: &str = "$plugin";

/// The name and version of the interface between Assay and plugins.
pub const PLUGIN_INTERFACE: &str = "assay:plugin@0.1.0";

/// The version of the meaning of limits and host calls; incremented when the same plugin could give another answer.
pub const PLUGIN_SEMANTICS: u32 = 1;

/// The maximum number of plugins of a file.
const MAX_PLUGINS: usize = 100;
/// The size limit of a component, in bytes.
const MAX_COMPONENT: u64 = 64 << 20;
/// The largest memory limit of a plugin, in bytes.
const MAX_MEMORY: u64 = 2 << 30;
/// The largest limits of a call: units of fuel, and seconds.
const MAX_FUEL: u64 = 1_000_000_000_000_000;
const MAX_SECONDS: u64 = 3_600;

/// The largest time limit of a whole step, in seconds: a week.
const MAX_STEP_SECONDS: u64 = 604_800;

const PLUGIN_KEYS: &[&str] =
    &["file", "blake3", "memory", "fuel-per-call", "fuel-per-sample", "call-seconds", "fuel-per-step", "step-seconds"];
const EXAMPLE: &str = "plugins: {sort: {file: plugins/sort.wasm}}";

/// A plugin that a workflow declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginDeclaration {
    /// Its key in `plugins:`.
    pub name: String,
    /// The path of the component, relative to the working folder if the workflow file is.
    pub file: PathBuf,
    /// The required BLAKE3 hash of the component, in hexadecimal, if the file specifies it.
    pub blake3: Option<String>,
    /// Limits that differ from the defaults.
    pub limits: ChosenLimits,
    /// The position of the declaration.
    pub(crate) span: Span,
    /// The position of its file name.
    pub(crate) file_span: Span,
}

/// The limits of a plugin that a workflow file sets; `None` means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChosenLimits {
    /// Bytes of all linear memories of an instance together.
    pub memory: Option<u64>,
    /// Units of fuel per call.
    pub fuel_per_call: Option<u64>,
    /// Additional units of fuel per call for each sequence or prediction.
    pub fuel_per_sample: Option<u64>,
    /// The time limit of a call, in seconds.
    pub call_seconds: Option<u64>,
    /// Units of fuel of a whole step.
    pub fuel_per_step: Option<u64>,
    /// The time limit of a whole step, in seconds.
    pub step_seconds: Option<u64>,
}

impl Reader<'_> {
    /// The section `plugins:` of a file.
    pub fn read_plugins(&mut self, entry: &Entry) -> Vec<PluginDeclaration> {
        if entry.value.data == Data::Scalar(Value::Null) {
            return Vec::new();
        }
        let entries = self.entries(&entry.value, "`plugins`", EXAMPLE);
        if let Some(entry) = entries.get(MAX_PLUGINS) {
            self.report(entry.key_span, format!("more than {MAX_PLUGINS} plugins"), "split the file".to_owned());
        }
        entries.iter().take(MAX_PLUGINS).filter_map(|entry| self.read_plugin(entry)).collect()
    }

    fn read_plugin(&mut self, entry: &Entry) -> Option<PluginDeclaration> {
        let name = entry.key.clone();
        if !is_identifier(&name) {
            let hint = "letters, digits, `_` and `-`, beginning with a letter or `_`, at most 64".to_owned();
            self.report(entry.key_span, format!("`{name}` cannot be the name of a plugin"), hint);
        }
        let what = format!("the plugin `{name}`");
        let fields = self.entries(&entry.value, &what, "sort: {file: plugins/sort.wasm}");
        self.known_keys(fields, PLUGIN_KEYS, &what);
        let mut plugin = PluginDeclaration {
            name,
            file: PathBuf::new(),
            blake3: None,
            limits: ChosenLimits::default(),
            span: entry.key_span,
            file_span: entry.key_span,
        };
        for field in fields {
            let value = &field.value;
            match field.key.as_str() {
                "file" => {
                    let folder = folder_of(self.source.place_of(value.span.line).0);
                    plugin.file =
                        self.plain_text(field, "plugins/sort.wasm").map_or_else(PathBuf::new, |file| folder.join(file));
                    plugin.file_span = value.span;
                }
                "blake3" => plugin.blake3 = self.read_hash(field),
                "memory" => plugin.limits.memory = self.read_memory(value),
                "fuel-per-call" => plugin.limits.fuel_per_call = self.whole(value, &field.key, 1, MAX_FUEL),
                "fuel-per-sample" => plugin.limits.fuel_per_sample = self.whole(value, &field.key, 1, MAX_FUEL),
                "call-seconds" => plugin.limits.call_seconds = self.whole(value, &field.key, 1, MAX_SECONDS),
                "fuel-per-step" => plugin.limits.fuel_per_step = self.whole(value, &field.key, 1, MAX_FUEL),
                "step-seconds" => plugin.limits.step_seconds = self.whole(value, &field.key, 1, MAX_STEP_SECONDS),
                _ => {}
            }
        }
        if matches!(entry.value.data, Data::Map(_)) && entry.value.get("file").is_none() {
            let hint = "name its component: `file: plugins/sort.wasm`; `assay plugin build` makes it".to_owned();
            self.report(entry.key_span, format!("{what} has no `file`"), hint);
        }
        Some(plugin)
    }

    /// A text that is not empty and has no expressions.
    fn plain_text(&mut self, entry: &Entry, example: &str) -> Option<String> {
        match entry.value.as_str() {
            Some(text) if !text.is_empty() && !text.contains("${{") => Some(text.to_owned()),
            _ => {
                let message =
                    format!("`{}` takes a text without expressions, not {}", entry.key, entry.value.describe());
                self.report(entry.value.span, message, format!("for example `{}: {example}`", entry.key));
                None
            }
        }
    }

    fn read_hash(&mut self, entry: &Entry) -> Option<String> {
        let is_hash = |text: &&str| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let hash = entry.value.as_str().filter(is_hash).map(str::to_owned);
        if hash.is_none() {
            let message = format!("`blake3` takes 64 hexadecimal digits in lower case, not {}", entry.value.describe());
            self.report(entry.value.span, message, "`assay plugin check FILE` prints the hash".to_owned());
        }
        hash
    }

    fn read_memory(&mut self, node: &Node) -> Option<u64> {
        let bytes = self.quantity(node, "memory", "512MiB", SIZES)? as u64;
        if bytes > MAX_MEMORY {
            let message = format!("`memory` is more than the {MAX_MEMORY} bytes (2 GiB) that a plugin may have");
            self.report(node.span, message, "write at most `2GiB`".to_owned());
            return None;
        }
        Some(bytes)
    }
}

/// The JSON Schema of the section.
pub(crate) fn plugins_schema() -> Value {
    let whole =
        |most: u64, about: &str| json!({"type": "integer", "minimum": 1, "maximum": most, "description": about});
    json!({
        "type": ["object", "null"],
        "description": "The WebAssembly components that jobs use by name.",
        "additionalProperties": {
            "type": "object",
            "properties": {
                "file": {"type": "string", "description": "The component, relative to this file."},
                "blake3": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "The hash that the component must have."},
                "memory": {"type": ["string", "integer"], "description": "The most memory of an instance, at most 2GiB; 256MiB by default.", "examples": ["512MiB"]},
                "fuel-per-call": whole(MAX_FUEL, "Units of fuel of a call, about one an instruction; 2000000000 by default."),
                "fuel-per-sample": whole(MAX_FUEL, "Units of fuel of a call for each sequence or prediction; 10000000 by default."),
                "call-seconds": whole(MAX_SECONDS, "Seconds of a call, for what fuel does not count; 60 by default."),
                "fuel-per-step": whole(MAX_FUEL, "Units of fuel of a whole step; 1000000000000 by default."),
                "step-seconds": whole(MAX_STEP_SECONDS, "Seconds of a whole step; 3600 by default."),
            },
            "required": ["file"],
            "additionalProperties": false,
        },
    })
}

/// The plugins in a config: the path of each name, and the name. `keys` are the [`plugin_keys`] of its schema.
pub(crate) fn named_plugins(keys: &[&str], config: &Value) -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    if !keys.is_empty() {
        find_names(config, keys, &mut Vec::new(), &mut found);
    }
    found
}

/// The names of all properties of a schema that contain names of plugins, without duplicates.
pub(crate) fn plugin_keys(schema: &Value) -> Vec<&str> {
    let mut keys = Vec::new();
    collect_keys(schema, &mut keys);
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn collect_keys<'a>(schema: &'a Value, keys: &mut Vec<&'a str>) {
    match schema {
        Value::Object(map) => {
            for (name, property) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if property.get("format").and_then(Value::as_str) == Some(PLUGIN_NAME) {
                    keys.push(name);
                }
            }
            map.values().for_each(|part| collect_keys(part, keys));
        }
        Value::Array(parts) => parts.iter().for_each(|part| collect_keys(part, keys)),
        _ => {}
    }
}

fn find_names(value: &Value, keys: &[&str], path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    let mut descend = |key: String, part: &Value| {
        path.push(key);
        find_names(part, keys, path, found);
        path.pop();
    };
    match value {
        Value::Object(map) => {
            let named = map.iter().find(|(key, value)| keys.contains(&key.as_str()) && value.is_string());
            for (key, part) in map {
                // The config of a plugin may have any keys.
                if named.is_none() || key != "config" {
                    descend(key.clone(), part);
                }
            }
            if let Some((key, Value::String(name))) = named {
                let place = path.iter().cloned().chain([key.clone()]).collect();
                found.push((place, name.clone()));
            }
        }
        Value::Array(items) => items.iter().enumerate().for_each(|(at, part)| descend(at.to_string(), part)),
        _ => {}
    }
}

/// The message and the hint for an unknown plugin name.
pub(crate) fn unknown_plugin(name: &str, plugins: &[PluginDeclaration]) -> (String, Option<String>) {
    let hint = match plugins {
        [] => Some(format!("declare it at the top of the file: `plugins: {{{name}: {{file: plugins/{name}.wasm}}}}`")),
        _ => suggest::hint(name, plugins.iter().map(|plugin| plugin.name.as_str()), "plugins"),
    };
    (format!("unknown plugin `{name}`"), hint)
}

/// Replaces the names of plugins by the plugins, whose files are still paths, and lists the files without duplicates. Unknown names
/// are kept.
pub(crate) fn insert_plugins(schema: &Value, config: &mut Value, plugins: &[PluginDeclaration]) -> Vec<LocalFile> {
    let mut files: BTreeMap<&str, LocalFile> = BTreeMap::new();
    for (path, name) in named_plugins(&plugin_keys(schema), config) {
        let pointer: String =
            path.iter().map(|key| format!("/{}", key.replace('~', "~0").replace('/', "~1"))).collect();
        let plugin = plugins.iter().find(|plugin| plugin.name == name);
        let (Some(place), Some(plugin)) = (config.pointer_mut(&pointer), plugin) else { continue };
        *place = plugin.to_value();
        files.entry(&plugin.name).or_insert_with(|| plugin.local_file());
    }
    files.into_values().collect()
}

/// Sets the content of the component of each plugin in a config that has this key of a [`LocalFile`].
pub(crate) fn set_component(config: &mut Value, key: &str, content: &Value) {
    let Some(name) = key.strip_prefix("plugins.") else { return };
    match config {
        Value::Object(map) if map.get(PLUGIN_KEY).and_then(Value::as_str) == Some(name) => {
            map.insert("component".to_owned(), content.clone());
        }
        Value::Object(map) => map.values_mut().for_each(|part| set_component(part, key, content)),
        Value::Array(items) => items.iter_mut().for_each(|part| set_component(part, key, content)),
        _ => {}
    }
}

/// The part of a plugin that the cache key contains; `None` for any other object, which counts as a whole.
pub(crate) fn counted_part(object: &Map<String, Value>) -> Option<Map<String, Value>> {
    const COUNTED: [&str; 4] = [PLUGIN_KEY, "component", "interface", "semantics"];
    const OTHERS: [&str; 2] = ["blake3", "limits"];
    let is_plugin = object.len() == COUNTED.len() + OTHERS.len()
        && COUNTED.iter().chain(&OTHERS).all(|key| object.contains_key(*key));
    is_plugin.then(|| COUNTED.iter().map(|key| ((*key).to_owned(), object[*key].clone())).collect())
}

/// Every plugin of a resolved config: its name, the hash of its component and its interface, without duplicates, ordered by name.
#[must_use]
pub fn plugins_in(config: &Value) -> Vec<UsedPlugin> {
    fn walk(value: &Value, found: &mut BTreeMap<(String, String), UsedPlugin>) {
        match value {
            Value::Object(map) => {
                let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
                let hash = text(map.get("component").and_then(|component| component.get("$artifact")));
                if let (Some(name), Some(hash), Some(interface)) =
                    (text(map.get(PLUGIN_KEY)), hash, text(map.get("interface")))
                {
                    found.insert((name.clone(), hash.clone()), UsedPlugin { name, hash, interface });
                }
                map.values().for_each(|part| walk(part, found));
            }
            Value::Array(items) => items.iter().for_each(|part| walk(part, found)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    walk(config, &mut found);
    found.into_values().collect()
}

/// A plugin as a task used it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsedPlugin {
    /// Its name in the workflow file.
    pub name: String,
    /// BLAKE3 of its component, in hexadecimal.
    pub hash: String,
    /// The name and version of the interface.
    pub interface: String,
}

impl PluginDeclaration {
    fn to_value(&self) -> Value {
        let ChosenLimits { memory, fuel_per_call, fuel_per_sample, call_seconds, fuel_per_step, step_seconds } =
            self.limits;
        let limits = [
            ("memory", memory),
            ("fuel_per_call", fuel_per_call),
            ("fuel_per_sample", fuel_per_sample),
            ("call_seconds", call_seconds),
            ("fuel_per_step", fuel_per_step),
            ("step_seconds", step_seconds),
        ];
        let limits: Map<String, Value> =
            limits.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))).collect();
        json!({
            PLUGIN_KEY: self.name, "component": self.file.to_string_lossy(), "interface": PLUGIN_INTERFACE,
            "semantics": PLUGIN_SEMANTICS, "blake3": self.blake3, "limits": limits,
        })
    }

    fn local_file(&self) -> LocalFile {
        LocalFile {
            key: format!("plugins.{}", self.name),
            element: None,
            path: self.file.clone(),
            most: Some(MAX_COMPONENT),
            is_python: false,
        }
    }
}

impl Workflow {
    /// The plugins that the file declares, in its order.
    #[must_use]
    pub fn plugins(&self) -> &[PluginDeclaration] {
        &self.shared.globals.plugins
    }

    /// Problems of plugins, at the positions of their file names; empty if `find_problem` finds none. It returns a message and a hint.
    pub fn plugin_problems(
        &self,
        mut find_problem: impl FnMut(&PluginDeclaration) -> Option<(String, Option<String>)>,
    ) -> Problems {
        let mut log = Log::default();
        for plugin in self.plugins() {
            if let Some((message, hint)) = find_problem(plugin) {
                log.report(plugin.file_span, format!("the plugin `{}` cannot be used: {message}", plugin.name), hint);
            }
        }
        log.into_problems(&self.shared.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        let one = json!({"type": "object", "properties": {
            "plugin": {"type": "string", "format": PLUGIN_NAME}, "config": {"type": "object"},
        }});
        json!({"properties": {"metrics": {"type": "array", "items": one}, "env": {"type": "object"}}})
    }

    fn plugin(name: &str) -> PluginDeclaration {
        PluginDeclaration {
            name: name.into(),
            file: format!("plugins/{name}.wasm").into(),
            blake3: None,
            limits: ChosenLimits { memory: Some(1 << 20), ..ChosenLimits::default() },
            span: Span::START,
            file_span: Span::START,
        }
    }

    #[test]
    fn names_are_found_where_the_schema_has_plugins_and_not_in_their_configs() {
        let config = json!({"metrics": [{"plugin": "a", "config": {"plugin": "b"}}, {"plugin": "c"}]});
        let schema = schema();
        let found = named_plugins(&plugin_keys(&schema), &config);
        let at = |index: &str, name: &str| (vec!["metrics".to_owned(), index.into(), "plugin".into()], name.to_owned());
        assert_eq!(found, [at("0", "a"), at("1", "c")]);
        assert_eq!(named_plugins(&[], &config), []);
    }

    #[test]
    fn a_name_becomes_a_plugin_whose_key_counts_content_and_not_limits() {
        let filled = |limit: u64, hash: &str| {
            let mut config = json!({"metrics": [{"plugin": "a", "config": {}}, {"plugin": "a"}]});
            let mut declared = plugin("a");
            declared.limits.memory = Some(limit);
            let files = insert_plugins(&schema(), &mut config, &[declared]);
            assert_eq!((files.len(), files[0].key.as_str()), (1, "plugins.a"));
            set_component(&mut config, &files[0].key, &json!({"$artifact": hash.repeat(64), "name": "a", "bytes": 1}));
            assert_eq!(config["metrics"][1]["plugin"]["component"]["$artifact"], hash.repeat(64));
            let used = plugins_in(&config);
            let expected =
                UsedPlugin { name: "a".into(), hash: hash.repeat(64), interface: PLUGIN_INTERFACE.to_owned() };
            assert_eq!(used, [expected]);
            let mut text = String::new();
            crate::key::write_canonical(&config, &mut text);
            text
        };
        assert_eq!(filled(1, "0"), filled(2, "0"));
        assert_ne!(filled(1, "0"), filled(1, "1"));
        assert!(filled(1, "0").contains(PLUGIN_INTERFACE) && filled(1, "0").contains("\"semantics\":1"));
    }
}
