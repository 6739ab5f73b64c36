//! `anyOf` and `oneOf`: finds the intended branch, so that the message is about that one.

use serde_json::Value;

use super::scalar_rules::{any_of, called, fits};
use super::{Target, Validator};
use crate::node::Data;
use crate::suggest;

impl<'s> Validator<'s> {
    /// A value that must satisfy one of several schemas. An error about satisfying two branches of a `oneOf` would not
    /// help, so both keywords mean the same here.
    pub(super) fn choice(&mut self, branches: &'s [Value], at: Target<'_>) {
        let is_null = |schema: &&'s Value| schema.get("type").and_then(Value::as_str) == Some("null");
        let all: Vec<&'s Value> = branches.iter().map(|branch| self.followed(branch)).collect();
        let (null, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(is_null);
        if !null.is_empty() && at.node.data == Data::Scalar(Value::Null) {
            return;
        }
        match rest.as_slice() {
            [] => self.report(at, format!("{} takes no value here", at.name), "leave it out".to_owned()),
            [only] => self.validate(only, at),
            _ if self.listed_choice(&rest, at) || self.tagged_choice(&rest, at) => {}
            _ => self.free_choice(&rest, at),
        }
    }

    /// Branches that each list values: an enumeration whose members have descriptions.
    fn listed_choice(&mut self, branches: &[&'s Value], at: Target<'_>) -> bool {
        let mut wanted: Vec<&Value> = Vec::new();
        for branch in branches {
            match (branch.get("const"), branch.get("enum").and_then(Value::as_array)) {
                (Some(value), _) => wanted.push(value),
                (None, Some(values)) => wanted.extend(values),
                (None, None) => return false,
            }
        }
        let value = at.node.to_value(&Value::Null);
        if !wanted.contains(&&value) {
            self.not_listed(&wanted, at);
        }
        true
    }

    /// Branches that a required constant property distinguishes: an enum with a tag.
    fn tagged_choice(&mut self, branches: &[&'s Value], at: Target<'_>) -> bool {
        let Some(tag) = branches
            .first()
            .and_then(|first| tags(first).find(|tag| branches.iter().all(|branch| constant(branch, tag).is_some())))
        else {
            return false;
        };
        let wanted: Vec<&Value> = branches.iter().filter_map(|branch| constant(branch, tag)).collect();
        let shown: Vec<String> = wanted.iter().map(|value| crate::scalar::in_address(value)).collect();
        if !matches!(at.node.data, Data::Map(_)) {
            let message = format!("{} takes a mapping, not {}", at.name, at.node.describe());
            let hint = match at.node.as_str().filter(|text| shown.iter().any(|name| name == text)) {
                Some(text) => format!("write `{{{tag}: {text}}}`"),
                None => format!("it has a key `{tag}`, which is {}", any_of(&shown)),
            };
            self.report(at, message, hint);
            return true;
        }
        let Some(entry) = at.node.get(tag) else {
            let hint = match self.tag_for_keys(branches, tag, at) {
                Some(value) => format!("with these keys it is `{tag}: {value}`"),
                None => format!("it is {}", any_of(&shown)),
            };
            let span = if at.node.computed { at.node.span } else { at.key_span };
            self.report_at(span, at.node.computed, format!("{} lacks `{tag}`", at.name), hint);
            return true;
        };
        let value = entry.value.to_value(&Value::Null);
        match branches.iter().find(|branch| constant(branch, tag) == Some(&value)) {
            Some(branch) => self.validate(branch, at),
            None if entry.value.data == Data::Unknown => {}
            None => {
                let name = format!("`{tag}`");
                self.not_listed(&wanted, Target { node: &entry.value, name: &name, key_span: entry.key_span });
            }
        }
        true
    }

    /// The only tag whose branch has all keys of the value.
    fn tag_for_keys(&self, branches: &[&'s Value], tag: &str, at: Target<'_>) -> Option<String> {
        let Data::Map(entries) = &at.node.data else { return None };
        let mut fitting = branches.iter().filter(|branch| {
            let known = branch.get("properties").and_then(Value::as_object);
            !entries.is_empty() && entries.iter().all(|entry| known.is_some_and(|known| known.contains_key(&entry.key)))
        });
        let only = fitting.next()?;
        let value = constant(only, tag)?;
        fitting.next().is_none().then(|| crate::scalar::in_address(value))
    }

    /// Branches of different types, or without a distinguishing property.
    fn free_choice(&mut self, branches: &[&'s Value], at: Target<'_>) {
        let mut attempts = Vec::new();
        for branch in branches {
            let mut attempt = Validator { root: self.root, found: Vec::new(), depth: self.depth };
            attempt.validate(branch, at);
            if attempt.found.is_empty() {
                return;
            }
            attempts.push((*branch, attempt.found));
        }
        // The intended branch is the only one of the value's type, or else the one with the fewest violations, if it is unique.
        let typed =
            attempts.iter().filter(|(branch, _)| branch_type(branch).is_some_and(|name| fits(name, &at.node.data)));
        let mut typed: Vec<_> = typed.collect();
        typed.sort_by_key(|(_, found)| found.len());
        match typed.as_slice() {
            [(_, found)] => self.found.extend(found.iter().cloned()),
            [(_, least), (_, second), ..] if least.len() < second.len() => self.found.extend(least.iter().cloned()),
            _ => {
                let mut wanted: Vec<&str> =
                    branches.iter().filter_map(|branch| branch_type(branch)).map(called).collect();
                wanted.dedup();
                let message = if typed.is_empty() && !wanted.is_empty() {
                    format!("{} takes {}, not {}", at.name, wanted.join(" or "), at.node.describe())
                } else {
                    format!("{} does not have a valid form", at.name)
                };
                let forms: Vec<String> = branches.iter().filter_map(|branch| form(branch)).collect();
                let hint = (!forms.is_empty()).then(|| format!("it can be: {}", forms.join("; ")));
                self.report(at, message, hint);
            }
        }
    }
}

/// The required properties of a branch that have a constant.
fn tags(branch: &Value) -> impl Iterator<Item = &str> {
    let required = branch.get("required").and_then(Value::as_array).into_iter().flatten();
    required.filter_map(Value::as_str).filter(|name| constant(branch, name).is_some())
}

/// The constant of a branch's property.
fn constant<'s>(branch: &'s Value, property: &str) -> Option<&'s Value> {
    let schema = branch.get("properties")?.get(property)?;
    let single = schema.get("enum").and_then(Value::as_array).filter(|values| values.len() == 1);
    schema.get("const").or_else(|| single.and_then(|values| values.first()))
}

fn branch_type(branch: &Value) -> Option<&str> {
    branch.get("type").and_then(Value::as_str)
}

/// A short description of a branch.
fn form(branch: &Value) -> Option<String> {
    let about = branch.get("description").and_then(Value::as_str).and_then(|text| text.lines().next());
    let keys = branch.get("required").and_then(Value::as_array).map(|keys| {
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        format!("a mapping with {}", suggest::list(&keys))
    });
    about.map(str::to_owned).or(keys)
}
