//! Validates a value against a JSON Schema, with messages for people.
//!
//! Draft 2020-12, limited to what schemars 1 generates for configs: `type`, `properties`, `required`,
//! `additionalProperties`, `items`, `prefixItems`, `enum`, `const`, `allOf`, `anyOf`, `oneOf`, `$ref` into `$defs`, and
//! the bounds of numbers, texts and lists. The kind's own check handles `format` and `pattern`.

use serde_json::{Map, Value};

use crate::node::{Data, Node};
use crate::source::Span;
use crate::suggest;

mod choice;
mod normal;
mod scalar_rules;

pub(crate) use normal::normalized;

/// The maximum depth of references between schemas.
const MAX_DEPTH: usize = 64;

/// A violation of the schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mismatch {
    pub span: Span,
    pub message: String,
    pub hint: Option<String>,
    /// Whether the value comes from an expression, so that other cells may have other values.
    pub computed: bool,
}

/// A value with its name in messages and the span to underline if a key is missing.
#[derive(Clone, Copy)]
struct Target<'a> {
    node: &'a Node,
    name: &'a str,
    key_span: Span,
}

/// All violations of the schema in a value. `name` is the value's name in messages, `key_span` is underlined if a key
/// is missing.
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
            Value::Bool(false) => self.report(at, format!("{} is not valid here", at.name), "leave it out".to_owned()),
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

    /// The schema at `#/$defs/NAME`.
    fn look_up(&self, path: &str) -> Option<&'s Value> {
        self.root.pointer(path.strip_prefix('#')?)
    }

    /// Follows a schema that consists only of a reference.
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
        self.sizes(schema, ("minProperties", "maxProperties"), entries.len(), "entry", "entries", at);
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
        self.sizes(schema, ("minItems", "maxItems"), items.len(), "value", "values", at);
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

    /// The bounds of the number of elements of a list or a mapping.
    fn sizes(
        &mut self,
        schema: &'s Map<String, Value>,
        (least, most): (&str, &str),
        count: usize,
        one: &str,
        many: &str,
        at: Target<'_>,
    ) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let amount = |bound: u64| format!("{bound} {}", if bound == 1 { one } else { many });
        if let Some(least) = bound(least).filter(|least| (count as u64) < *least) {
            let message = format!("{} takes at least {}, not {count}", at.name, amount(least));
            self.report(at, message, "add what is missing".to_owned());
        }
        if let Some(most) = bound(most).filter(|most| count as u64 > *most) {
            let message = format!("{} takes at most {}, not {count}", at.name, amount(most));
            self.report(at, message, "remove some".to_owned());
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::problem::Log;
    use crate::source::Source;

    /// The messages for a YAML value, one per line.
    fn told(schema: &Value, yaml: &str) -> String {
        let mut log = Log::default();
        let node = crate::node::parse(&Source::new("f", yaml), &mut log).expect("YAML");
        assert!(log.is_empty());
        let found = mismatches(&normalized(schema), &node, "`x`", Span::START);
        let line = |found: &Mismatch| match &found.hint {
            Some(hint) => format!("{}: {} ({hint})", found.span.column, found.message),
            None => format!("{}: {}", found.span.column, found.message),
        };
        found.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn check(schema: Value, cases: &[(&str, &str)]) {
        for (yaml, expected) in cases {
            assert_eq!(told(&schema, yaml), *expected, "{yaml} against {schema}");
        }
    }

    #[test]
    fn mappings_of_anything() {
        check(
            json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2}),
            &[
                ("{a: 1, b: 2}", ""),
                ("{}", "1: `x` takes at least 1 entry, not 0 (add what is missing)"),
                ("{a: 1, b: 2, c: 3}", "1: `x` takes at most 2 entries, not 3 (remove some)"),
                ("{a: b}", "5: `a` takes a whole number, not the text `b`"),
            ],
        );
    }

    #[test]
    fn lists() {
        check(
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "number"}, "uniqueItems": true}),
            &[
                ("[a, 1, 2.5]", ""),
                ("[1]", "2: an item of `x` takes a text, not the whole number `1` (put it into quotes: \"1\")"),
                ("[a, b]", "5: an item of `x` takes a number, not the text `b`"),
                ("[a, 1, 1]", "8: `x` has the whole number `1` twice (keep one of them)"),
                ("a", "1: `x` takes a list, not the text `a` (write `[a]`)"),
            ],
        );
    }

    #[test]
    fn one_of_several_types() {
        let schema = json!({"anyOf": [
            {"type": "integer", "minimum": 0},
            {"type": "array", "items": {"type": "integer"}},
            {"type": "null"},
        ]});
        check(
            schema,
            &[
                ("3", ""),
                ("~", ""),
                ("[1]", ""),
                ("-1", "1: `x` must be at least 0, and is -1"),
                ("[a]", "2: an item of `x` takes a whole number, not the text `a`"),
                ("a", "1: `x` takes a whole number or a list, not the text `a`"),
            ],
        );
    }

    #[test]
    fn of_variants_without_a_tag_the_nearest_is_told() {
        let variant = |key: &str, about: &str| {
            json!({
                "type": "object", "description": about, "properties": {key: {"type": "integer"}, "also": {}}, "required": [key],
            })
        };
        let schema = json!({"oneOf": [variant("steps", "So many steps."), variant("seconds", "So long.")]});
        check(
            schema,
            &[
                ("{steps: 3}", ""),
                ("{steps: a}", "9: `steps` takes a whole number, not the text `a`"),
                ("{also: 1}", "1: `x` does not have a valid form (it can be: So many steps.; So long.)"),
            ],
        );
    }

    #[test]
    fn numbers_and_texts_have_bounds() {
        check(
            json!({"type": "number", "exclusiveMaximum": 1.0, "multipleOf": 0.25}),
            &[
                ("0.5", ""),
                ("1", "1: `x` must be less than 1, and is 1"),
                ("0.3", "1: `x` must be a multiple of 0.25, and is 0.3"),
                (".5e0", ""),
            ],
        );
        check(json!({"const": 1.0}), &[("1", ""), ("2", "1: `x` takes `1.0`, not the whole number `2` (write `1.0`)")]);
        check(json!({"type": ["string", "null"], "maxLength": 2}), &[("éé", ""), ("~", "")]);
        check(json!(false), &[("1", "1: `x` is not valid here (leave it out)")]);
        check(json!(true), &[("1", "")]);
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        check(schema, &[("1", "")]);
        let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}});
        check(
            tree,
            &[("[[], [[]]]", ""), ("[[1]]", "3: an item of `x` takes a list, not the whole number `1` (write `[1]`)")],
        );
    }
}
