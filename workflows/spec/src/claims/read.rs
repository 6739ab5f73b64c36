//! Reads the section `claims:`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::formula;
use super::model::{Axis, Check, Claim, Claimed, Tolerance};
use super::quantity;
use crate::draft::{Reader, is_identifier};
use crate::node::{Data, Entry, Node};
use crate::source::Span;
use crate::template::Template;

pub(super) const CLAIM_KEYS: &[&str] =
    &["id", "says", "source", "check", "claimed", "tolerance", "arithmetic", "needs", "not-tested", "scaled", "exact"];

/// The maximum number of claims of a file, and of comparisons of one claim.
const MAX_CLAIMS: usize = 1_000;
const MAX_ARITHMETIC: usize = 100;

const EXAMPLE: &str = "claims: [{id: a, check: \"mean(x[n=2].loss) < mean(x[n=1].loss)\"}]";

/// A claim whose names have not been looked up yet.
pub(super) struct DraftClaim {
    pub claim: Claim,
    pub id_span: Span,
    /// The position of the check, if it exists.
    pub check: Option<Place>,
    /// The positions of the comparisons of `arithmetic`, in order.
    pub arithmetic: Vec<Place>,
    /// The claimed value as written: its numbers are not yet in the unit of the check.
    pub claimed: Option<DraftClaimed>,
}

/// The position of a formula: that of its value, and the number of characters of the value before the formula.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub span: Span,
    /// `None` if the source differs from the parsed text, such as for folded lines.
    pub offset: Option<usize>,
}

/// A claimed value as written.
pub(super) struct DraftClaimed {
    pub form: Form,
    pub tolerance: Option<(Quantity, Span)>,
}

pub(super) enum Form {
    Value(Quantity),
    AtLeast(Quantity),
    AtMost(Quantity),
    Between(Quantity, Quantity),
    Exponent(Quantity, Axis),
}

/// A number, its unit as written, and its position.
pub(super) struct Quantity {
    pub number: f64,
    pub unit: String,
    pub span: Span,
}

impl Reader<'_> {
    /// The claims of a file, with their expressions compiled.
    pub fn read_claims(&mut self, entry: &Entry) -> Vec<Template> {
        let items = match &entry.value.data {
            Data::List(items) => items.as_slice(),
            Data::Scalar(Value::Null) => return Vec::new(),
            _ => {
                let message = format!("`claims` takes a list, not {}", entry.value.describe());
                self.report(entry.value.span, message, format!("for example `{EXAMPLE}`"));
                return Vec::new();
            }
        };
        if let Some(item) = items.get(MAX_CLAIMS) {
            let hint = "split the file".to_owned();
            self.report(item.span, format!("more than {MAX_CLAIMS} claims"), hint);
        }
        items.iter().take(MAX_CLAIMS).map(|item| Template::compile(self.source, item, self.log)).collect()
    }

    /// Reads a claim whose expressions are evaluated.
    pub(super) fn read_claim(&mut self, node: &Node) -> Option<DraftClaim> {
        let before = self.log.count();
        let entries = self.entries(node, "a claim", "{id: more-states-help, check: ..}");
        if !matches!(node.data, Data::Map(_)) {
            return None;
        }
        let (file, line) = self.source.place_of(node.span.line);
        let place = (file.to_owned(), line);
        let id = self.read_claim_id(node);
        let what = id.as_ref().map_or_else(|| "a claim".to_owned(), |(id, _)| format!("the claim `{id}`"));
        self.known_keys(entries, CLAIM_KEYS, &what);
        let (check, check_place) = match node.get("check") {
            Some(entry) => self.read_formula(&entry.value, "check").unzip(),
            None => (None, None),
        };
        let (arithmetic, arithmetic_places) = self.read_arithmetic(node);
        let claimed = self.read_claimed(node);
        let (id, id_span) = id?;
        let claim = Claim {
            id,
            place,
            says: self.read_words(node, "says"),
            source: self.read_words(node, "source"),
            check,
            claimed: None,
            arithmetic,
            needs: self.read_needed_backends(node),
            not_tested: self.read_words(node, "not-tested"),
            scaled: self.read_words(node, "scaled").filter(|text| !text.is_empty()),
            exact: node.get("exact").and_then(|entry| self.boolean(&entry.value, "exact")).unwrap_or(false),
            unit: String::new(),
        };
        self.check_claim_parts(node, &claim, claimed.as_ref());
        let draft = DraftClaim { claim, id_span, check: check_place, arithmetic: arithmetic_places, claimed };
        (self.log.count() == before).then_some(draft)
    }

    fn read_claim_id(&mut self, node: &Node) -> Option<(String, Span)> {
        let Some(entry) = node.get("id") else {
            self.report(node.span, "a claim has no `id`", "name it: `id: more-states-help`".to_owned());
            return None;
        };
        match entry.value.as_str().filter(|id| is_identifier(id)) {
            Some(id) => Some((id.to_owned(), entry.value.span)),
            None => {
                let message = format!("`id` takes a name, not {}", entry.value.describe());
                let hint = "letters, digits, `_` and `-`, beginning with a letter or `_`, at most 64".to_owned();
                self.report(entry.value.span, message, hint);
                None
            }
        }
    }

    /// The text of a key. For any other value, reports a problem and returns `None`.
    fn read_words(&mut self, node: &Node, key: &str) -> Option<String> {
        let entry = node.get(key)?;
        match entry.value.as_str() {
            Some(text) => Some(text.trim().to_owned()),
            None => {
                let message = format!("`{key}` takes a text, not {}", entry.value.describe());
                self.report(entry.value.span, message, "put it into quotes".to_owned());
                None
            }
        }
    }

    fn read_needed_backends(&mut self, node: &Node) -> Vec<String> {
        let Some(entry) = node.get("needs") else { return Vec::new() };
        let items = match &entry.value.data {
            Data::List(items) => items.as_slice(),
            _ => std::slice::from_ref(&entry.value),
        };
        let mut needs = Vec::new();
        for item in items {
            match item.as_str().filter(|name| is_identifier(name)) {
                Some(name) => needs.push(name.to_owned()),
                None => {
                    let message = format!("`needs` of a claim takes names of backends, not {}", item.describe());
                    self.report(item.span, message, "for example `needs: cuda`".to_owned());
                }
            }
        }
        needs
    }

    fn read_arithmetic(&mut self, node: &Node) -> (Vec<Check>, Vec<Place>) {
        let Some(entry) = node.get("arithmetic") else { return Default::default() };
        let items = match &entry.value.data {
            Data::List(items) => items.as_slice(),
            _ => std::slice::from_ref(&entry.value),
        };
        if let Some(item) = items.get(MAX_ARITHMETIC) {
            self.report(item.span, format!("more than {MAX_ARITHMETIC} comparisons in a claim"), None);
        }
        items.iter().take(MAX_ARITHMETIC).filter_map(|item| self.read_formula(item, "arithmetic")).unzip()
    }

    /// Reads a formula; reports problems at their columns.
    fn read_formula(&mut self, node: &Node, key: &str) -> Option<(Check, Place)> {
        let Some(text) = node.as_str() else {
            let message = format!("`{key}` takes a formula, not {}", node.describe());
            let hint = match key {
                "arithmetic" => "for example `arithmetic: \"17000 / 370 >= 46\"`",
                _ => "for example `check: \"ratio(a.test/loss, b.test/loss)\"`",
            };
            self.report(node.span, message, hint.to_owned());
            return None;
        };
        let written = self.source.slice(node.span);
        let offset = written.find(text).filter(|_| !node.computed).map(|at| written[..at].chars().count());
        let place = Place { span: node.span, offset };
        match formula::parse(text) {
            Ok(check) => Some((check, place)),
            Err(error) => {
                self.report(self.span_of(place, (error.at, error.length)), error.message, error.hint);
                None
            }
        }
    }

    /// The span of a part of a formula.
    pub(super) fn span_of(&self, place: Place, (at, length): (usize, usize)) -> Span {
        match place.offset {
            Some(offset) => self.source.within(place.span, offset + at, length),
            None => place.span,
        }
    }

    /// `claimed` and `tolerance`.
    fn read_claimed(&mut self, node: &Node) -> Option<DraftClaimed> {
        let tolerance = node.get("tolerance").and_then(|entry| {
            let off = self.read_quantity(&entry.value, "tolerance")?;
            if off.number < 0.0 {
                self.report(
                    entry.value.span,
                    "a tolerance cannot be below zero",
                    "for example `tolerance: 10%`".to_owned(),
                );
            }
            Some((off, entry.value.span))
        });
        let Some(entry) = node.get("claimed") else {
            if let Some((_, span)) = tolerance {
                let hint = "add the claimed value: `claimed: 53.9`".to_owned();
                self.report(span, "`tolerance` has no claimed value", hint);
            }
            return None;
        };
        let form = self.read_claimed_form(&entry.value)?;
        let takes = matches!(form, Form::Value(_) | Form::Exponent(..));
        match &tolerance {
            Some((_, span)) if !takes => {
                let hint = "move the bound instead, and delete `tolerance`".to_owned();
                self.report(*span, "`tolerance` applies to a single value, not to a bound", hint);
            }
            None if takes => {
                let hint = "give the accepted distance: `tolerance: 10%`".to_owned();
                self.report(entry.value.span, "a claimed value without a `tolerance`", hint);
            }
            _ => {}
        }
        Some(DraftClaimed { form, tolerance })
    }

    fn read_claimed_form(&mut self, node: &Node) -> Option<Form> {
        let Data::Map(entries) = &node.data else { return Some(Form::Value(self.read_quantity(node, "claimed")?)) };
        let hint =
            "one of `53.9`, `{at_least: 50}`, `{at_most: 2}`, `{between: [40, 60]}`, `{exponent: 1.0, over: length}`";
        let names: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        match names.as_slice() {
            ["at_least"] => Some(Form::AtLeast(self.read_quantity(&entries[0].value, "at_least")?)),
            ["at_most"] => Some(Form::AtMost(self.read_quantity(&entries[0].value, "at_most")?)),
            ["between"] => match &entries[0].value.data {
                Data::List(ends) if ends.len() == 2 => {
                    let (low, high) =
                        (self.read_quantity(&ends[0], "between")?, self.read_quantity(&ends[1], "between")?);
                    Some(Form::Between(low, high))
                }
                _ => {
                    let span = entries[0].value.span;
                    self.report(span, "`between` takes two numbers", "for example `{between: [40, 60]}`".to_owned());
                    None
                }
            },
            ["exponent", "over"] | ["over", "exponent"] => {
                let exponent = self.read_quantity(&node.get("exponent")?.value, "exponent")?;
                let over = &node.get("over")?.value;
                match over.as_str() {
                    Some("*") => Some(Form::Exponent(exponent, Axis::MetricPart)),
                    Some(axis) if is_identifier(axis) => Some(Form::Exponent(exponent, Axis::Matrix(axis.to_owned()))),
                    _ => {
                        let message = format!("`over` takes the name of an axis, not {}", over.describe());
                        self.report(over.span, message, "for example `over: length`".to_owned());
                        None
                    }
                }
            }
            _ => {
                let unknown = entries.iter().find(|entry| {
                    !["at_least", "at_most", "between", "exponent", "over"].contains(&entry.key.as_str())
                });
                match unknown {
                    Some(entry) => self.report(
                        entry.key_span,
                        format!("unknown key `{}` in `claimed`", entry.key),
                        hint.to_owned(),
                    ),
                    None => self.report(node.span, "`claimed` does not have a valid form", hint.to_owned()),
                }
                None
            }
        }
    }

    /// A number, or a text such as `370 ms`.
    fn read_quantity(&mut self, node: &Node, key: &str) -> Option<Quantity> {
        let found = match &node.data {
            Data::Scalar(Value::Number(number)) => number.as_f64().map(|number| (number, "")),
            Data::Scalar(Value::String(text)) => quantity::split_quantity(text),
            _ => None,
        };
        let Some((number, unit)) = found else {
            let message = format!("`{key}` takes a number, with or without a unit, not {}", node.describe());
            self.report(node.span, message, format!("for example `{key}: 53.9` or `{key}: 370 ms`"));
            return None;
        };
        Some(Quantity { number, unit: unit.to_owned(), span: node.span })
    }

    /// Reports keys that contradict each other or test nothing.
    fn check_claim_parts(&mut self, node: &Node, claim: &Claim, claimed: Option<&DraftClaimed>) {
        let span = |key: &str| node.get(key).map_or(node.span, |entry| entry.value.span);
        let written = |key: &str| node.get(key).is_some();
        let compares = claim.check.as_ref().is_some_and(|check| check.comparison.is_some());
        let id = &claim.id;
        if !["check", "arithmetic", "needs", "not-tested"].iter().any(|key| written(key)) {
            let hint = "add `check:`, `arithmetic:`, `needs:` or `not-tested:`".to_owned();
            self.report(node.span, format!("the claim `{id}` tests nothing"), hint);
        } else if claimed.is_some() && !written("check") {
            let hint =
                "add `check:`, which computes the value; write numbers that are not tested into `says`".to_owned();
            self.report(span("claimed"), format!("the claim `{id}` claims a value and has no `check`"), hint);
        } else if claimed.is_some() && compares {
            let hint = "delete one of them".to_owned();
            self.report(span("claimed"), "a check that compares cannot have a `claimed` value", hint);
        } else if claim.check.is_some() && !compares && !written("claimed") {
            let hint = "compare it, as in `.. > 1`, or add `claimed:`".to_owned();
            self.report(
                span("check"),
                "the check computes a value, but the claim does not say which value is expected",
                hint,
            );
        }
        for (key, is_empty) in [
            ("arithmetic", claim.arithmetic.is_empty()),
            ("needs", claim.needs.is_empty()),
            ("not-tested", claim.not_tested.as_ref().is_some_and(String::is_empty)),
        ] {
            let list_is_empty = |entry: &Entry| matches!(&entry.value.data, Data::List(items) if items.is_empty());
            let words_are_empty = |entry: &Entry| entry.value.as_str().is_some_and(|text| text.trim().is_empty());
            if is_empty && node.get(key).is_some_and(|entry| list_is_empty(entry) || words_are_empty(entry)) {
                self.report(
                    span(key),
                    format!("`{key}` of the claim `{id}` is empty"),
                    "fill it in or delete it".to_owned(),
                );
            }
        }
        if claim.not_tested.is_some() && (written("check") || written("needs")) {
            let hint = "delete `not-tested`, or the check".to_owned();
            self.report(span("not-tested"), "a claim with `not-tested` cannot have `check` or `needs`", hint);
        }
    }
}

impl DraftClaimed {
    /// The claimed value, with numbers that `convert` converts into the unit of the check.
    pub fn to_claimed(&self, convert: &mut dyn FnMut(&Quantity) -> f64) -> Claimed {
        match &self.form {
            Form::Value(value) | Form::Exponent(value, _) => {
                let value = convert(value);
                let tolerance = match &self.tolerance {
                    Some((off, _)) if off.unit == "%" => Tolerance::Relative(off.number / 100.0),
                    Some((off, _)) => Tolerance::Absolute(convert(off)),
                    None => Tolerance::Absolute(0.0),
                };
                Claimed::Value { value, tolerance }
            }
            Form::AtLeast(low) => Claimed::AtLeast(convert(low)),
            Form::AtMost(high) => Claimed::AtMost(convert(high)),
            Form::Between(low, high) => Claimed::Between(convert(low), convert(high)),
        }
    }

    /// The axis of `{exponent: .., over: AXIS}`.
    pub fn exponent_axis(&self) -> Option<&Axis> {
        match &self.form {
            Form::Exponent(_, axis) => Some(axis),
            _ => None,
        }
    }
}

/// The first position of each id.
pub(super) type Ids = BTreeMap<String, Span>;
