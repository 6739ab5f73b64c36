//! The settings of a task: resources, retries, limits. Read once per job, or once per cell if they contain expressions.

use std::time::Duration;

use serde_json::Value;

use crate::draft::Reader;
use crate::node::{Data, Node};
use crate::suggest;
use crate::workflow::{Backoff, Escalation, FAILURE_CLASSES, Resource, Retry};

/// The limit of threads, retries and times: far larger than useful values, and small enough to avoid overflow.
const MANY: u64 = 100_000;
const LARGEST_FACTOR: f64 = 100.0;
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

pub(crate) const RESOURCE_KEYS: &[&str] = &["backend", "cpus", "memory", "exclusive", "label"];
pub(crate) const RETRY_KEYS: &[&str] = &["max", "when", "backoff", "escalate", "exclude-node"];
pub(crate) const ESCALATE_KEYS: &[&str] = &["memory", "timeout"];
pub(crate) const BACKOFF_KEYS: &[&str] = &["duration", "factor"];

/// Units of time, in milliseconds.
const TIMES: &[(&str, f64)] = &[("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3_600e3), ("d", 86_400e3)];

/// Units of memory, in bytes; a number without a unit is in bytes.
pub(crate) const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];

impl Reader<'_> {
    /// An integer within bounds. For any other value `None`, and a problem unless the value is only unknown.
    pub fn whole(&mut self, node: &Node, key: &str, least: u64, most: u64) -> Option<u64> {
        let Data::Scalar(value) = &node.data else {
            if node.data != Data::Unknown {
                let message = format!("`{key}` takes a whole number, not {}", node.describe());
                self.report(node.span, message, format!("for example `{key}: {}`", least.max(2)));
            }
            return None;
        };
        match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                let message = format!("`{key}` takes a whole number from {least} to {most}, not {}", node.describe());
                self.report(node.span, message, format!("for example `{key}: {}`", least.max(2)));
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, node: &Node, key: &str) -> Option<bool> {
        match &node.data {
            Data::Scalar(Value::Bool(value)) => Some(*value),
            Data::Unknown => None,
            _ => {
                let hint = match node.as_str().map(str::to_lowercase).as_deref() {
                    Some("yes" | "on" | "y") => "YAML 1.2 reads this as a text: write `true`",
                    Some("no" | "off" | "n") => "YAML 1.2 reads this as a text: write `false`",
                    _ => "write `true` or `false`",
                };
                let message = format!("`{key}` takes a boolean, not {}", node.describe());
                self.report(node.span, message, hint.to_owned());
                None
            }
        }
    }

    /// `timeout-minutes`: a number, possibly with a fraction.
    pub fn timeout(&mut self, node: &Node) -> Option<Duration> {
        let minutes = match &node.data {
            Data::Unknown => return None,
            Data::Scalar(value) => value.as_f64(),
            _ => None,
        };
        let limit = minutes.filter(|minutes| *minutes > 0.0 && *minutes * 60.0 <= LONGEST.as_secs_f64());
        if limit.is_none() {
            let message = format!("`timeout-minutes` takes a positive number of minutes, not {}", node.describe());
            self.report(node.span, message, "for example `timeout-minutes: 30`, at most a year".to_owned());
        }
        limit.map(|minutes| Duration::from_secs_f64(minutes * 60.0))
    }

    /// `resources`: a variant, or a list of variants.
    pub fn resources(&mut self, node: &Node) -> Vec<Resource> {
        let items = match &node.data {
            Data::List(items) => items.as_slice(),
            Data::Unknown => return Vec::new(),
            _ => std::slice::from_ref(node),
        };
        if items.is_empty() {
            let hint = "leave the key out for one thread of the backend `cpu`".to_owned();
            self.report(node.span, "`resources` lists no variant", hint);
        }
        items.iter().map(|item| self.resource(item)).collect()
    }

    fn resource(&mut self, node: &Node) -> Resource {
        let mut resource = Resource::default();
        if node.data == Data::Unknown {
            return resource;
        }
        let entries = self.entries(node, "a variant of `resources`", "resources: [{backend: cpu, cpus: 2}]");
        self.known_keys(entries, RESOURCE_KEYS, "`resources`");
        for entry in entries {
            let value = &entry.value;
            match entry.key.as_str() {
                "backend" => match value.as_str() {
                    Some(name) if crate::draft::is_identifier(name) => resource.backend = name.to_owned(),
                    _ if value.data == Data::Unknown => {}
                    _ => {
                        let message = format!("`backend` takes a name, not {}", value.describe());
                        self.report(value.span, message, "`assay backends` lists this machine's".to_owned());
                    }
                },
                "cpus" => resource.cpus = self.whole(value, "cpus", 1, MANY).map_or(1, |cpus| cpus as u32),
                "memory" => resource.memory = self.quantity(value, "memory", "2GiB", SIZES).map(|bytes| bytes as u64),
                "exclusive" => resource.exclusive = self.boolean(value, "exclusive").unwrap_or(false),
                "label" => match value.as_str() {
                    Some(label) if is_label(label) => resource.label = Some(label.to_owned()),
                    _ if value.data == Data::Unknown => {}
                    _ => {
                        let message = format!("`label` takes a word, not {}", value.describe());
                        self.report(value.span, message, "name a label of `assay worker --label`".to_owned());
                    }
                },
                _ => {}
            }
        }
        resource
    }

    /// `retry`.
    pub fn retry(&mut self, node: &Node) -> Retry {
        let mut retry = Retry::default();
        if node.data == Data::Unknown {
            return retry;
        }
        let entries = self.entries(node, "`retry`", "retry: {max: 2, when: [preempted, oom]}");
        self.known_keys(entries, RETRY_KEYS, "`retry`");
        for entry in entries {
            match entry.key.as_str() {
                "max" => retry.max = self.whole(&entry.value, "max", 0, MANY).map_or(0, |max| max as u32),
                "when" => retry.when = self.failure_classes(&entry.value),
                "backoff" => retry.backoff = self.backoff(&entry.value),
                "escalate" => retry.escalate = self.escalation(&entry.value),
                "exclude-node" => retry.exclude_node = self.boolean(&entry.value, "exclude-node").unwrap_or(false),
                _ => {}
            }
        }
        self.check_escalation(node, &mut retry);
        if !entries.is_empty() && node.get("max").is_none() {
            let hint = "say how many further attempts there may be: `max: 2`".to_owned();
            self.report(node.span, "`retry` has no `max`", hint);
        }
        retry
    }

    /// `escalate`.
    fn escalation(&mut self, node: &Node) -> Escalation {
        let mut escalation = Escalation::default();
        if node.data == Data::Unknown {
            return escalation;
        }
        let entries = self.entries(node, "`escalate`", "escalate: {memory: \"*1.5\"}");
        self.known_keys(entries, ESCALATE_KEYS, "`escalate`");
        for entry in entries {
            match entry.key.as_str() {
                "memory" => escalation.memory = self.factor(&entry.value, "memory"),
                "timeout" => escalation.timeout = self.factor(&entry.value, "timeout"),
                _ => {}
            }
        }
        escalation
    }

    /// A factor such as `*1.5`.
    fn factor(&mut self, node: &Node, key: &str) -> Option<f64> {
        if node.data == Data::Unknown {
            return None;
        }
        let factor = node.as_str().and_then(|text| text.trim().strip_prefix('*')?.trim().parse::<f64>().ok());
        let factor = factor.filter(|factor| *factor > 1.0 && *factor <= LARGEST_FACTOR);
        if factor.is_none() {
            let message =
                format!("`{key}` takes a factor above 1 and at most {LARGEST_FACTOR}, not {}", node.describe());
            self.report(node.span, message, format!("for example `{key}: \"*1.5\"`, in quotes"));
        }
        factor
    }

    /// Checks that failures whose class is escalated are retried. Without `when`, those classes are added to the default list.
    fn check_escalation(&mut self, node: &Node, retry: &mut Retry) {
        let escalated = [("memory", "oom", retry.escalate.memory), ("timeout", "timeout", retry.escalate.timeout)];
        for (key, class, _) in escalated.into_iter().filter(|(.., factor)| factor.is_some()) {
            if retry.when.iter().any(|known| known == class) {
                continue;
            }
            match node.get("when") {
                None => retry.when.push(class.to_owned()),
                Some(when) if when.value.data == Data::Unknown => {}
                Some(when) => {
                    let message =
                        format!("`escalate` has `{key}`, but failures of the class `{class}` are not retried");
                    self.report(when.value.span, message, format!("add `{class}` to `when`"));
                }
            }
        }
    }

    /// Memory can be escalated only where `resources` limits it.
    pub fn check_escalated_memory(&mut self, retry: &Node, resources: Option<&Node>) {
        let escalate = retry.get("escalate").and_then(|escalate| escalate.value.get("memory"));
        let unlimited = |variant: &Node| variant.data != Data::Unknown && variant.get("memory").is_none();
        let limited = resources.is_some_and(|node| match &node.data {
            Data::List(variants) => !variants.iter().all(unlimited),
            _ => !unlimited(node),
        });
        if let Some(memory) = escalate.filter(|_| !limited) {
            let message = "`escalate` has `memory`, but `resources` does not limit the memory".to_owned();
            self.report(memory.value.span, message, "for example `resources: {memory: 2GiB}`".to_owned());
        }
    }

    fn failure_classes(&mut self, node: &Node) -> Vec<String> {
        let items = match &node.data {
            Data::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let known = FAILURE_CLASSES.iter().map(|(name, _)| *name);
        let mut classes: Vec<String> = Vec::new();
        for item in items.iter().filter(|item| item.data != Data::Unknown) {
            match item.as_str() {
                Some(class) if known.clone().any(|known| known == class) => {
                    if !classes.iter().any(|known| known == class) {
                        classes.push(class.to_owned());
                    }
                }
                Some(class) => {
                    let hint = suggest::hint(class, known.clone(), "classes");
                    self.report(item.span, format!("unknown class of failure `{class}`"), hint);
                }
                None => {
                    let message = format!("`when` takes classes of failure, not {}", item.describe());
                    self.report(item.span, message, "for example `when: [preempted, oom]`".to_owned());
                }
            }
        }
        classes
    }

    fn backoff(&mut self, node: &Node) -> Backoff {
        let mut backoff = Backoff::default();
        if node.data == Data::Unknown {
            return backoff;
        }
        let entries = self.entries(node, "`backoff`", "backoff: {duration: 5s, factor: 2}");
        self.known_keys(entries, BACKOFF_KEYS, "`backoff`");
        for entry in entries {
            match entry.key.as_str() {
                "duration" => {
                    if let Some(time) = self.quantity(&entry.value, "duration", "5s", TIMES) {
                        backoff.duration = Duration::from_millis(time as u64).min(LONGEST);
                    }
                }
                "factor" => match &entry.value.data {
                    Data::Scalar(Value::Number(factor))
                        if factor.as_f64().is_some_and(|f| (1.0..=1e3).contains(&f)) =>
                    {
                        backoff.factor = factor.as_f64().unwrap_or(2.0);
                    }
                    Data::Unknown => {}
                    _ => {
                        let message = format!("`factor` takes a number from 1 to 1000, not {}", entry.value.describe());
                        self.report(entry.value.span, message, "for example `factor: 2`".to_owned());
                    }
                },
                _ => {}
            }
        }
        backoff
    }

    /// A number with a unit.
    pub fn quantity(&mut self, node: &Node, key: &str, example: &str, units: &[(&str, f64)]) -> Option<f64> {
        let text = match &node.data {
            Data::Unknown => return None,
            Data::Scalar(Value::String(text)) => text.trim().to_owned(),
            Data::Scalar(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
        let quantity = number.parse::<f64>().ok().zip(unit).map(|(number, (_, scale))| number * scale);
        if let Some(quantity) = quantity.filter(|quantity| (1.0..9e15).contains(quantity)) {
            return Some(quantity);
        }
        let names: Vec<_> = units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
        let message = format!("`{key}` takes a positive number with a unit, not {}", node.describe());
        self.report(node.span, message, format!("for example `{key}: {example}`; units: {}", names.join(", ")));
        None
    }
}

/// Whether this is a valid label of a worker node: a word of at most 64 characters, without commas.
fn is_label(text: &str) -> bool {
    let good = |c: char| !c.is_whitespace() && !c.is_control() && c != ',';
    !text.is_empty() && text.chars().count() <= 64 && text.chars().all(good)
}
