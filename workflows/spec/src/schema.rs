//! Whether a value satisfies a JSON Schema, and what to tell a person if not.
//!
//! Draft 2020-12 as far as schemars 1 writes it for configs: `type`, `properties`, `required`,
//! `additionalProperties`, `items`, `prefixItems`, `enum`, `const`, `allOf`, `anyOf`, `oneOf`, `$ref` into `$defs`,
//! and the bounds of numbers, texts and lists. `format` and `pattern` are left to the kind's own check.

use serde_json::{Map, Value};

use crate::node::{Data, Node};
use crate::source::Span;
use crate::suggest;

mod choice;
mod normal;
mod scalar_rules;

pub(crate) use normal::normalized;

/// How deep schemas may refer to one another.
const MAX_DEPTH: usize = 64;

/// Something that does not satisfy the schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mismatch {
    pub span: Span,
    pub message: String,
    pub hint: Option<String>,
    /// Whether an expression made the value, so that other cells may have others.
    pub computed: bool,
}

/// A value with what to call it and what to underline where something is missing in it.
#[derive(Clone, Copy)]
struct Target<'a> {
    node: &'a Node,
    name: &'a str,
    key_span: Span,
}

/// Everything about a value that does not satisfy the schema. `name` is what the value is called in messages,
/// `key_span` is underlined where a key is missing.
pub(crate) fn mismatches(schema: &Value, node: &Node, name: &str, key_span: Span) -> Vec<Mismatch> {
    let mut validator = Validator { root: schema, found: Vec::new(), depth: 0 };
    validator.validate(schema, Target { node, name, key_span });
    validator.found
}

struct Validator<'s> {
    root: &'s Value,
    found: Vec<Mismatch>,
    depth: usize,
}

impl<'s> Validator<'s> {
    fn report(&mut self, at: Target<'_>, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.report_at(at.node.span, at.node.computed, message, hint);
    }

    fn report_at(&mut self, span: Span, computed: bool, message: impl Into<String>, hint: impl Into<Option<String>>) {
        self.found.push(Mismatch { span, message: message.into(), hint: hint.into(), computed });
    }

    fn validate(&mut self, schema: &'s Value, at: Target<'_>) {
        if at.node.data == Data::Unknown || self.depth >= MAX_DEPTH {
            return;
        }
        self.depth += 1;
        match schema {
            Value::Bool(false) => self.report(at, format!("{} is not wanted here", at.name), "leave it out".to_owned()),
            Value::Object(schema) => self.object_schema(schema, at),
            _ => {}
        }
        self.depth -= 1;
    }

    fn object_schema(&mut self, schema: &'s Map<String, Value>, at: Target<'_>) {
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|path| self.look_up(path)) {
            self.validate(target, at);
        }
        for part in schema.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.validate(part, at);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(branches) = schema.get(key).and_then(Value::as_array) {
                self.choice(branches, at);
            }
        }
        if !self.has_type(schema, at) || !self.is_listed(schema, at) {
            return;
        }
        match &at.node.data {
            Data::Map(_) => self.map(schema, at),
            Data::List(items) => self.list(schema, items, at),
            Data::Scalar(value) => self.bounds(schema, value, at),
            Data::Unknown => {}
        }
    }

    /// The schema that `#/$defs/NAME` means.
    fn look_up(&self, path: &str) -> Option<&'s Value> {
        self.root.pointer(path.strip_prefix('#')?)
    }

    /// A schema that is nothing but a reference, followed.
    fn followed(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..MAX_DEPTH {
            if ["properties", "type", "allOf", "required"].iter().any(|key| schema.get(key).is_some()) {
                break;
            }
            match schema.get("$ref").and_then(Value::as_str).and_then(|path| self.look_up(path)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    fn map(&mut self, schema: &'s Map<String, Value>, at: Target<'_>) {
        let Data::Map(entries) = &at.node.data else { return };
        let empty = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        let rest = schema.get("additionalProperties");
        for entry in entries {
            let name = format!("`{}`", entry.key);
            let target = Target { node: &entry.value, name: &name, key_span: entry.key_span };
            match (properties.and_then(|properties| properties.get(&entry.key)), rest) {
                (Some(schema), _) => self.validate(schema, target),
                (None, Some(Value::Bool(false))) => {
                    let known = properties.unwrap_or(&empty).keys().map(String::as_str);
                    let hint = match (suggest::nearest(&entry.key, known.clone()), known.clone().count()) {
                        (Some(near), _) => format!("did you mean `{near}`?"),
                        (None, 0) => "leave it out".to_owned(),
                        (None, _) => format!("known keys: {}", suggest::list(&known.collect::<Vec<_>>())),
                    };
                    let message = format!("unknown key `{}` in {}", entry.key, at.name);
                    self.report_at(entry.key_span, at.node.computed, message, hint);
                }
                (None, Some(schema)) => self.validate(schema, target),
                (None, None) => {}
            }
        }
        self.required(schema, at);
    }

    fn required(&mut self, schema: &'s Map<String, Value>, at: Target<'_>) {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let missing: Vec<&str> = required.filter_map(Value::as_str).filter(|key| at.node.get(key).is_none()).collect();
        if missing.is_empty() {
            return;
        }
        let properties = schema.get("properties");
        let about = missing.iter().filter_map(|key| {
            let schema = self.followed(properties?.get(*key)?);
            let own = properties?.get(*key)?.get("description");
            let text = own.or_else(|| schema.get("description"))?.as_str()?;
            Some(format!("`{key}`: {}", text.lines().next().unwrap_or_default()))
        });
        let about: Vec<String> = about.collect();
        let add = if missing.len() == 1 { "add it" } else { "add them" };
        let hint = if about.is_empty() { add.to_owned() } else { about.join(" ") };
        let span = if at.node.computed { at.node.span } else { at.key_span };
        let message = format!("{} lacks {}", at.name, suggest::list(&missing));
        self.report_at(span, at.node.computed, message, hint);
    }

    fn list(&mut self, schema: &'s Map<String, Value>, items: &[Node], at: Target<'_>) {
        let count = items.len() as u64;
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let values = |count: u64| if count == 1 { "1 value".to_owned() } else { format!("{count} values") };
        if count < least {
            let message = format!("{} takes at least {}, not {count}", at.name, values(least));
            self.report(at, message, "add what is missing".to_owned());
        }
        if count > most {
            let message = format!("{} takes at most {}, not {count}", at.name, values(most));
            self.report(at, message, "take some away".to_owned());
        }
        let first = schema.get("prefixItems").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let rest = schema.get("items");
        let name = format!("an item of {}", at.name.trim_start_matches("an item of "));
        for (index, node) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or(rest) {
                self.validate(schema, Target { node, name: &name, key_span: node.span });
            }
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            self.unique(items, at);
        }
    }

    fn unique(&mut self, items: &[Node], at: Target<'_>) {
        let mut seen = std::collections::BTreeSet::new();
        for item in items.iter().filter(|item| item.data != Data::Unknown) {
            if !seen.insert(item.to_value(&Value::Null).to_string()) {
                let message = format!("{} has {} twice", at.name, item.describe());
                self.report_at(item.span, item.computed, message, "keep one of them".to_owned());
            }
        }
    }
}
