//! A JSON Schema as a list of documented fields. It reads the schema of the workflow file, in which every value may also be an
//! expression; that is stated once in the documents and left out here.

use std::collections::BTreeSet;

use serde_json::Value;

/// How deep mappings are described; deeper ones would be a schema that refers to itself.
const MAX_DEPTH: usize = 8;

/// One key of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The key as it is written.
    pub name: String,
    /// Type and range, such as `whole number, 1 to 65536`.
    pub kind: String,
    /// Whether the mapping is refused without it.
    pub required: bool,
    /// The default in JSON.
    pub default: Option<String>,
    /// What it means, on one line.
    pub about: String,
    /// What its value consists of.
    pub parts: Parts,
}

/// What the value of a field consists of.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Parts {
    /// A plain value.
    #[default]
    Plain,
    /// One of these texts, with their meanings.
    Choices(Vec<(String, String)>),
    /// A mapping with these keys.
    Keys(Vec<Field>),
    /// A mapping of one of several forms.
    Forms(Vec<Form>),
}

/// One of the forms of a mapping, known by the value of one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    /// The key and the value by which the form is known, such as `family: ten`.
    pub tag: String,
    /// What the form is for.
    pub about: String,
    /// Its other keys.
    pub fields: Vec<Field>,
}

/// The parts of the definition with this name: `with-train`, `strategy`, ...
pub fn parts_of_definition(document: &Value, name: &str) -> Parts {
    let reader = Reader { document };
    match document.pointer(&format!("/$defs/{name}")) {
        Some(schema) => reader.parts(schema, 0),
        None => Parts::Plain,
    }
}

/// The keys of the document itself.
pub fn top_level(document: &Value) -> Vec<Field> {
    Reader { document }.keys(document, 0)
}

struct Reader<'s> {
    document: &'s Value,
}

impl<'s> Reader<'s> {
    /// The schema that a reference names, or the only real alternative of `anyOf`: expressions and `null` are none.
    fn follow(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..MAX_DEPTH {
            let next = match self.reference(schema).or_else(|| self.only_alternative(schema)) {
                Some(next) => next,
                None => break,
            };
            schema = next;
        }
        schema
    }

    fn reference(&self, schema: &Value) -> Option<&'s Value> {
        self.document.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    fn only_alternative(&self, schema: &'s Value) -> Option<&'s Value> {
        match *self.alternatives(schema) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The members of `anyOf` other than expressions and `null`.
    fn alternatives(&self, schema: &'s Value) -> Vec<&'s Value> {
        let all = schema.get("anyOf").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let real = |part: &&Value| {
            part.get("$ref") != Some(&Value::from("#/$defs/expression"))
                && part.get("type") != Some(&Value::from("null"))
        };
        all.iter().filter(real).collect()
    }

    /// Whether the schema is that of an artifact, which files write as an expression.
    fn is_artifact(&self, schema: &Value) -> bool {
        schema.pointer("/properties/$artifact").is_some()
    }

    /// A keyword of the schema or of one that it refers to; the outermost counts.
    fn keyword(&self, mut schema: &'s Value, key: &str) -> Option<&'s Value> {
        for _ in 0..MAX_DEPTH {
            if let Some(value) = schema.get(key) {
                return Some(value);
            }
            schema = self.reference(schema).or_else(|| self.only_alternative(schema))?;
        }
        None
    }

    fn parts(&self, schema: &'s Value, depth: usize) -> Parts {
        let schema = self.follow(schema);
        if depth >= MAX_DEPTH || self.is_artifact(schema) {
            return Parts::Plain;
        }
        if let Some(items) = schema.get("items") {
            return self.parts(items, depth + 1);
        }
        if let Some(several) = Some(self.alternatives(schema)).filter(|several| several.len() > 1) {
            let parts = several.into_iter().map(|part| self.parts(part, depth + 1));
            return parts.into_iter().find(|parts| *parts != Parts::Plain).unwrap_or_default();
        }
        if let Some(variants) = schema.get("oneOf").and_then(Value::as_array) {
            return self.variants(variants, depth);
        }
        match self.keys(schema, depth) {
            keys if keys.is_empty() => Parts::Plain,
            keys => Parts::Keys(keys),
        }
    }

    fn variants(&self, variants: &'s [Value], depth: usize) -> Parts {
        let about = |schema: &Value| one_line(schema.get("description"));
        let constants = variants.iter().map(|variant| Some((plain(variant.get("const")?), about(variant))));
        if let Some(choices) = constants.collect::<Option<Vec<_>>>() {
            return Parts::Choices(choices);
        }
        let form = |variant: &'s Value| {
            let properties = variant.get("properties")?.as_object()?;
            let (key, value) = properties.iter().find_map(|(key, schema)| Some((key, schema.get("const")?)))?;
            let mut fields = self.keys(variant, depth);
            fields.retain(|field| field.name != *key);
            Some(Form { tag: format!("{key}: {}", plain(value)), about: about(variant), fields })
        };
        match variants.iter().map(form).collect::<Option<Vec<_>>>() {
            Some(forms) => Parts::Forms(forms),
            None => Parts::Plain,
        }
    }

    /// The properties of an object schema, required ones first.
    fn keys(&self, schema: &'s Value, depth: usize) -> Vec<Field> {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
        let field = |(name, schema): (&String, &'s Value)| Field {
            name: name.clone(),
            kind: self.kind(schema),
            required: required.contains(name.as_str()),
            default: self.keyword(schema, "default").filter(|value| !value.is_null()).map(Value::to_string),
            about: one_line(self.keyword(schema, "description")),
            parts: self.parts(schema, depth + 1),
        };
        let mut fields: Vec<Field> = properties.map(field).collect();
        fields.sort_by_key(|field| !field.required);
        fields
    }

    /// Type and range of a value, for people.
    fn kind(&self, schema: &'s Value) -> String {
        let followed = self.follow(schema);
        if self.is_artifact(followed) {
            return "artifact".into();
        }
        let several = self.alternatives(followed);
        if several.len() > 1 {
            let kinds: Vec<String> = several.into_iter().map(|part| self.kind(part)).collect();
            return kinds.join(" or ");
        }
        if let Some(variants) = followed.get("oneOf").and_then(Value::as_array) {
            return if variants.iter().all(|variant| variant.get("const").is_some()) { "choice" } else { "mapping" }
                .into();
        }
        if let Some(constant) = followed.get("const") {
            return format!("`{}`", plain(constant));
        }
        let types = match followed.get("type") {
            Some(Value::Array(types)) => {
                types.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect()
            }
            Some(Value::String(name)) => vec![name.as_str()],
            _ => vec!["any value"],
        };
        let kinds: Vec<String> = types.into_iter().map(|name| self.kind_of_type(name, followed)).collect();
        kinds.join(" or ")
    }

    fn kind_of_type(&self, name: &str, schema: &'s Value) -> String {
        match name {
            "integer" => format!("whole number{}", range(schema)),
            "number" => format!("number{}", range(schema)),
            "boolean" => "true or false".into(),
            "string" if schema.get("format") == Some(&Value::from("local-file")) => "path of a local file".into(),
            "string" if schema.get("format") == Some(&Value::from("plugin-name")) => "name of a plugin".into(),
            "string" => "text".into(),
            "array" => {
                let items = schema.get("items").map_or_else(|| "values".to_owned(), |items| plural(&self.kind(items)));
                // The range of the items stands apart from the length of the list.
                let items = items.split_once(", ").map_or(items.clone(), |(kind, range)| format!("{kind} ({range})"));
                match (schema.get("minItems").and_then(Value::as_u64), schema.get("maxItems").and_then(Value::as_u64)) {
                    (Some(least), Some(most)) if least == most => format!("list of {least} {items}"),
                    (_, Some(most)) => format!("list of up to {most} {items}"),
                    _ => format!("list of {items}"),
                }
            }
            "object" => match schema.get("additionalProperties").filter(|rest| rest.is_object()) {
                Some(rest) => format!("mapping of names to {}", plural(&self.kind(rest))),
                None => "mapping".into(),
            },
            other => other.into(),
        }
    }
}

/// A kind in the plural, as far as kinds occur in lists.
fn plural(kind: &str) -> String {
    for (one, many) in [
        ("whole number", "whole numbers"),
        ("number", "numbers"),
        ("text", "texts"),
        ("mapping", "mappings"),
        ("artifact", "artifacts"),
        ("choice", "choices"),
        ("list", "lists"),
    ] {
        if let Some(rest) = kind.strip_prefix(one) {
            return format!("{many}{rest}");
        }
    }
    format!("{kind}s")
}

/// The bounds of a number: `, 1 to 64`, `, at least 1`, `, above 0`; empty without bounds.
fn range(schema: &Value) -> String {
    let bound = |key: &str| schema.get(key).filter(|value| value.is_number()).map(number);
    let (least, above) = (bound("minimum"), bound("exclusiveMinimum"));
    let (most, below) = (bound("maximum"), bound("exclusiveMaximum"));
    let low = least.clone().map(|least| format!("at least {least}")).or(above.map(|above| format!("above {above}")));
    let high = most.clone().map(|most| format!("at most {most}")).or(below.map(|below| format!("below {below}")));
    match (least, most, low, high) {
        (Some(least), Some(most), ..) => format!(", {least} to {most}"),
        (.., Some(low), Some(high)) => format!(", {low} and {high}"),
        (.., Some(bound), None) | (.., None, Some(bound)) => format!(", {bound}"),
        _ => String::new(),
    }
}

/// A number without a fraction of zero.
fn number(value: &Value) -> String {
    match (value.as_i64(), value.as_f64()) {
        (None, Some(number)) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
        _ => value.to_string(),
    }
}

/// A value as a workflow file writes it: texts without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A description on one line.
fn one_line(description: Option<&Value>) -> String {
    let text = description.and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(schema: Value) -> Vec<Field> {
        let Parts::Keys(fields) = parts_of_definition(&json!({"$defs": {"it": schema}}), "it") else { panic!("keys") };
        fields
    }

    #[test]
    fn kinds_ranges_and_defaults_are_read() {
        let expression = json!({"$ref": "#/$defs/expression"});
        for (schema, kind, default) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 64, "default": 4}), "whole number, 1 to 64", Some("4")),
            (json!({"type": "integer", "minimum": 0}), "whole number, at least 0", None),
            (json!({"type": "number", "minimum": 0.0, "maximum": 0.99}), "number, 0 to 0.99", None),
            (json!({"type": "number", "exclusiveMinimum": 0}), "number, above 0", None),
            (json!({"type": ["integer", "null"], "default": null}), "whole number", None),
            (
                json!({"type": "array", "items": {"type": "integer", "minimum": 1}}),
                "list of whole numbers (at least 1)",
                None,
            ),
            (
                json!({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
                "list of 2 numbers",
                None,
            ),
            (
                json!({"anyOf": [{"type": "boolean", "default": true}, expression.clone()]}),
                "true or false",
                Some("true"),
            ),
            (json!({"type": "string", "format": "local-file"}), "path of a local file", None),
            (json!({"type": "object", "additionalProperties": {"type": "string"}}), "mapping of names to texts", None),
            (json!({"oneOf": [{"const": "a"}, {"const": "b"}]}), "choice", None),
        ] {
            let found = fields(json!({"properties": {"x": schema}})).remove(0);
            assert_eq!((found.kind.as_str(), found.default.as_deref()), (kind, default), "{schema}");
        }
    }

    #[test]
    fn forms_are_known_by_their_tag_and_required_keys_come_first() {
        let document = json!({"$defs": {
            "it": {"properties": {
                "late": {"type": "boolean"},
                "model": {"$ref": "#/$defs/model", "description": "The\nmodel."},
            }, "required": ["model"]},
            "model": {"description": "Not this.", "oneOf": [
                {"description": "A ring.", "properties": {"family": {"const": "ten"}, "dim": {"type": "integer"}}},
                {"properties": {"family": {"const": "pulse"}}},
            ]},
        }});
        let Parts::Keys(fields) = parts_of_definition(&document, "it") else { panic!("keys") };
        assert_eq!(fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), ["model", "late"]);
        assert_eq!((fields[0].about.as_str(), fields[0].required), ("The model.", true));
        let Parts::Forms(forms) = &fields[0].parts else { panic!("forms") };
        assert_eq!((forms[0].tag.as_str(), forms[0].about.as_str()), ("family: ten", "A ring."));
        assert_eq!(forms[0].fields[0].name, "dim");
        assert!(forms[1].fields.is_empty());
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let document = json!({"$defs": {"it": {"properties": {"x": {"$ref": "#/$defs/it"}}}}});
        assert_ne!(parts_of_definition(&document, "it"), Parts::Plain);
        let document = json!({"$defs": {"it": {"$ref": "#/$defs/it"}}});
        assert_eq!(parts_of_definition(&document, "it"), Parts::Plain);
    }
}
