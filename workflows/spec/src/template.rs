//! A value with expressions, which is filled in once for every task.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::expression::{Computed, EvaluationError, Name, Text};
use crate::node::{Data, Entry, Node};
use crate::problem::Log;
use crate::rewrite::{Renaming, Snippet};
use crate::source::{Source, Span};

/// A YAML value with compiled texts.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    /// It contains no expression.
    Fixed(Node),
    Text(Text),
    List(Span, Vec<Template>),
    Map(Span, Vec<Slot>),
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    key: String,
    key_span: Span,
    value: Template,
}

/// The moment of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before anything has run: values that depend on outputs become [`Data::Unknown`].
    Check,
    /// When all needs of the task have finished.
    Resolve,
}

impl Template {
    /// Compiles the texts of a value. An invalid text becomes an unknown value.
    pub fn compile(source: &Source, node: &Node, log: &mut Log) -> Template {
        match &node.data {
            Data::Scalar(_) => {
                let before = log.count();
                match Text::parse(source, node, log) {
                    Some(text) => Template::Text(text),
                    None if log.count() > before => Template::Fixed(Node { data: Data::Unknown, ..node.clone() }),
                    None => Template::Fixed(node.clone()),
                }
            }
            Data::Unknown => Template::Fixed(node.clone()),
            Data::List(items) => {
                let items: Vec<_> = items.iter().map(|item| Template::compile(source, item, log)).collect();
                if items.iter().all(Template::is_plain) {
                    return Template::Fixed(node.clone());
                }
                Template::List(node.span, items)
            }
            Data::Map(entries) => {
                let slots: Vec<_> = entries
                    .iter()
                    .map(|Entry { key, key_span, value }| Slot {
                        key: key.clone(),
                        key_span: *key_span,
                        value: Template::compile(source, value, log),
                    })
                    .collect();
                if slots.iter().all(|slot| slot.value.is_plain()) {
                    return Template::Fixed(node.clone());
                }
                Template::Map(node.span, slots)
            }
        }
    }

    /// Compiles a text that is an expression without `${{ }}`.
    pub fn compile_bare(source: &Source, node: &Node, log: &mut Log) -> Option<Template> {
        Text::parse_bare(source, node, log).map(Template::Text)
    }

    /// The value of a key of a mapping.
    pub fn part(&self, key: &str) -> Option<Template> {
        match self {
            Template::Fixed(node) => node.get(key).map(|entry| Template::Fixed(entry.value.clone())),
            Template::Map(_, slots) => slots.iter().find(|slot| slot.key == key).map(|slot| slot.value.clone()),
            Template::Text(_) | Template::List(..) => None,
        }
    }

    /// The keys of a mapping with their spans and values; `None` for any other value.
    pub fn entries(&self) -> Option<Vec<(Name, Template)>> {
        let name = |key: &str, span: Span| Name { name: key.to_owned(), span };
        match self {
            Template::Fixed(Node { data: Data::Map(entries), .. }) => {
                let entry = |entry: &Entry| (name(&entry.key, entry.key_span), Template::Fixed(entry.value.clone()));
                Some(entries.iter().map(entry).collect())
            }
            Template::Map(_, slots) => {
                Some(slots.iter().map(|slot| (name(&slot.key, slot.key_span), slot.value.clone())).collect())
            }
            Template::Fixed(_) | Template::Text(_) | Template::List(..) => None,
        }
    }

    /// With every expression rewritten. An expression for which that fails becomes an unknown value.
    pub fn rewrite(&self, renaming: &Renaming, log: &mut Log) -> Template {
        match self {
            Template::Fixed(node) => Template::Fixed(node.clone()),
            Template::Text(text) => match text.rewrite(renaming, log) {
                Some(text) => Template::Text(text),
                None => Template::Fixed(Node { span: text.span, data: Data::Unknown, computed: true }),
            },
            Template::List(span, items) => {
                Template::List(*span, items.iter().map(|item| item.rewrite(renaming, log)).collect())
            }
            Template::Map(span, slots) => {
                let slot = |slot: &Slot| Slot { value: slot.value.rewrite(renaming, log), ..slot.clone() };
                Template::Map(*span, slots.iter().map(slot).collect())
            }
        }
    }

    /// As one expression.
    pub fn to_snippet(&self) -> Snippet {
        match self {
            Template::Fixed(node) => Snippet::literal(&node.to_value(&Value::Null)),
            Template::Text(text) => text.to_snippet(),
            Template::List(_, items) => {
                let items = items.iter().map(|item| (String::new(), item.to_snippet()));
                Snippet::join("[", separated(items.collect()), "]")
            }
            Template::Map(_, slots) => {
                let slots =
                    slots.iter().map(|slot| (format!("{}: ", Value::from(slot.key.as_str())), slot.value.to_snippet()));
                Snippet::join("{", separated(slots.collect()), "}")
            }
        }
    }

    pub fn is_fixed(&self) -> bool {
        matches!(self, Template::Fixed(_))
    }

    /// Whether it is a literal without expressions, valid or invalid.
    fn is_plain(&self) -> bool {
        matches!(self, Template::Fixed(node) if node.data != Data::Unknown)
    }

    pub fn span(&self) -> Span {
        match self {
            Template::Fixed(node) => node.span,
            Template::Text(text) => text.span,
            Template::List(span, _) | Template::Map(span, _) => *span,
        }
    }

    /// The number of its values, without expressions.
    pub fn size(&self) -> usize {
        fn of(node: &Node) -> usize {
            match &node.data {
                Data::List(items) => 1 + items.iter().map(of).sum::<usize>(),
                Data::Map(entries) => 1 + entries.iter().map(|entry| of(&entry.value)).sum::<usize>(),
                Data::Scalar(_) | Data::Unknown => 1,
            }
        }
        match self {
            Template::Fixed(node) => of(node),
            Template::Text(_) => 1,
            Template::List(_, items) => 1 + items.iter().map(Template::size).sum::<usize>(),
            Template::Map(_, slots) => 1 + slots.iter().map(|slot| slot.value.size()).sum::<usize>(),
        }
    }

    /// The size of a copy: the number of its values, and one more for every 64 bytes of its literal texts.
    pub fn weight(&self) -> usize {
        fn texts(node: &Node) -> usize {
            match &node.data {
                Data::Scalar(value) => value.as_str().map_or(0, str::len),
                Data::List(items) => items.iter().map(texts).sum(),
                Data::Map(entries) => entries.iter().map(|entry| entry.key.len() + texts(&entry.value)).sum(),
                Data::Unknown => 0,
            }
        }
        fn of(template: &Template) -> usize {
            match template {
                Template::Fixed(node) => texts(node),
                Template::Text(text) => text.length(),
                Template::List(_, items) => items.iter().map(of).sum(),
                Template::Map(_, slots) => slots.iter().map(|slot| slot.key.len() + of(&slot.value)).sum(),
            }
        }
        self.size() + of(self) / 64
    }

    /// The maximum cost of filling it in: see [`Computed::cost`].
    pub fn cost(&self, params: &BTreeMap<String, usize>, matrix: usize) -> usize {
        let computed = self.computed();
        let cost = computed.iter().map(|computed| computed.cost(params, matrix)).fold(0, usize::saturating_add);
        cost.saturating_add(self.size())
    }

    /// Every expression in it, in order.
    pub fn computed(&self) -> Vec<&Computed> {
        fn collect<'a>(template: &'a Template, found: &mut Vec<&'a Computed>) {
            match template {
                Template::Fixed(_) => {}
                Template::Text(text) => found.extend(text.computed().map(|computed| &**computed)),
                Template::List(_, items) => items.iter().for_each(|item| collect(item, found)),
                Template::Map(_, slots) => slots.iter().for_each(|slot| collect(&slot.value, found)),
            }
        }
        let mut found = Vec::new();
        collect(self, &mut found);
        found
    }

    /// The literal values; every text with expressions is unknown.
    pub fn without_computed(&self) -> Node {
        let literal = |span: Span, data: Data| Node { span, data, computed: false };
        match self {
            Template::Fixed(node) => node.clone(),
            Template::Text(text) => literal(text.span, Data::Unknown),
            Template::List(span, items) => {
                literal(*span, Data::List(items.iter().map(Template::without_computed).collect()))
            }
            Template::Map(span, slots) => {
                let entry = |slot: &Slot| Entry {
                    key: slot.key.clone(),
                    key_span: slot.key_span,
                    value: slot.value.without_computed(),
                };
                literal(*span, Data::Map(slots.iter().map(entry).collect()))
            }
        }
    }

    /// Evaluates the expressions. If one fails, it reports an error and its value is unknown.
    pub fn fill(&self, scope: &minijinja::Value, moment: Moment, errors: &mut Vec<EvaluationError>) -> Node {
        match self {
            Template::Fixed(node) => node.clone(),
            Template::Text(text) => {
                let unknown = Node { span: text.span, data: Data::Unknown, computed: true };
                if moment == Moment::Check && text.computed().any(|computed| computed.waits()) {
                    return unknown;
                }
                match text.evaluate(scope) {
                    Ok(value) => Node::computed(&value, text.span),
                    Err(error) => {
                        errors.push(error);
                        unknown
                    }
                }
            }
            Template::List(span, items) => {
                let items = items.iter().map(|item| item.fill(scope, moment, errors)).collect();
                Node { span: *span, data: Data::List(items), computed: false }
            }
            Template::Map(span, slots) => {
                let entries = slots
                    .iter()
                    .map(|slot| Entry {
                        key: slot.key.clone(),
                        key_span: slot.key_span,
                        value: slot.value.fill(scope, moment, errors),
                    })
                    .collect();
                Node { span: *span, data: Data::Map(entries), computed: false }
            }
        }
    }
}

/// With a comma before each part except the first.
fn separated(parts: Vec<(String, Snippet)>) -> Vec<(String, Snippet)> {
    let comma = |at: usize| if at > 0 { ", " } else { "" };
    parts.into_iter().enumerate().map(|(at, (before, part))| (format!("{}{before}", comma(at)), part)).collect()
}
