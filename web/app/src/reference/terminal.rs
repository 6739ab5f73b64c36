//! A step kind as text for a terminal: `assay help train`.

use assay_spec::{Better, StepKind, json_schema};

use super::examples::example;
use super::fields::{Field, Form, Parts, parts_of_definition};
use super::metrics::meaning;

/// The text of `assay help KIND`, in lines of at most `width` columns where words allow it.
pub fn describe_kind(kind: &StepKind, width: usize) -> String {
    let document = json_schema(std::slice::from_ref(kind));
    let mut text = Text { lines: Vec::new(), width };
    text.wrapped(0, &format!("{}: {}", kind.name, kind.about));
    text.wrapped(
        0,
        &format!("Version {} of the step kind; results of other versions are not taken from the cache.", kind.version),
    );
    text.heading("Options of `with:` (each also takes an expression, `${{ .. }}`)");
    text.parts(2, &parts_of_definition(&document, &format!("with-{}", kind.name)));
    let inputs = inputs(&document, kind);
    if !inputs.is_empty() {
        text.heading("Inputs");
        text.wrapped(
            2,
            &format!("{}: artifacts of other jobs, as in ${{{{ needs.JOB.outputs.NAME }}}}", inputs.join(", ")),
        );
    }
    text.heading("Outputs (needs.JOB.outputs.NAME)");
    kind.outputs.iter().for_each(|output| text.entry(2, output.name, output.about));
    if kind.declares("outputs") {
        text.wrapped(2, "those that the option `outputs` names");
    }
    text.heading("Metrics (* stands for one part of a name)");
    for metric in kind.metrics {
        let better = match metric.better {
            Better::Lower => Some("lower is better"),
            Better::Higher => Some("higher is better"),
            Better::Neither => None,
        };
        let unit = Some(metric.unit).filter(|unit| !unit.is_empty());
        let shown = metric.headline.map(|column| format!("column `{column}`"));
        let notes: Vec<&str> = unit.into_iter().chain(better).chain(shown.as_deref()).collect();
        let notes = if notes.is_empty() { String::new() } else { format!(" [{}]", notes.join("; ")) };
        text.entry(2, metric.name, &format!("{}{notes}", meaning(kind.name, metric.name).unwrap_or_default()));
    }
    if kind.declares("metrics") {
        text.wrapped(
            2,
            "any metric of the step; those that the option `metrics` names are columns of the table of results",
        );
    }
    if let Some(example) = example(kind.name) {
        text.heading("Example");
        text.lines.extend(example.trim_end().lines().map(|line| format!("  {line}").trim_end().to_owned()));
    }
    text.lines.join("\n")
}

/// The options that take artifacts.
pub fn inputs(document: &serde_json::Value, kind: &StepKind) -> Vec<String> {
    let Parts::Keys(fields) = parts_of_definition(document, &format!("with-{}", kind.name)) else { return Vec::new() };
    fields.into_iter().filter(|field| field.kind.contains("artifact")).map(|field| field.name).collect()
}

struct Text {
    lines: Vec<String>,
    width: usize,
}

impl Text {
    fn heading(&mut self, title: &str) {
        self.lines.push(String::new());
        self.lines.push(format!("{title}:"));
    }

    fn parts(&mut self, indent: usize, parts: &Parts) {
        match parts {
            Parts::Plain => {}
            Parts::Choices(choices) => choices.iter().for_each(|(value, about)| self.entry(indent, value, about)),
            Parts::Keys(fields) => fields.iter().for_each(|field| self.field(indent, field)),
            Parts::Forms(forms) => forms.iter().for_each(|form| self.form(indent, form)),
        }
    }

    fn field(&mut self, indent: usize, field: &Field) {
        let need = if field.required { ", required".to_owned() } else { String::new() };
        let default = field.default.as_ref().map_or_else(String::new, |value| format!(", default {value}"));
        self.wrapped(indent, &format!("{}: {}{need}{default}", field.name, field.kind));
        self.wrapped(indent + 4, &field.about);
        self.parts(indent + 4, &field.parts);
    }

    fn form(&mut self, indent: usize, form: &Form) {
        self.entry(indent, &form.tag, &form.about);
        form.fields.iter().for_each(|field| self.field(indent + 4, field));
    }

    /// A name with its meaning; the meaning stands below where the name is long.
    fn entry(&mut self, indent: usize, name: &str, about: &str) {
        const COLUMN: usize = 14;
        if name.chars().count() > COLUMN {
            self.wrapped(indent, name);
            self.wrapped(indent + 4, about);
        } else {
            let start = self.lines.len();
            self.wrapped(indent + COLUMN + 2, about);
            let head = format!("{:indent$}{name:<width$}", "", width = COLUMN + 2);
            match self.lines.get_mut(start) {
                Some(line) => *line = format!("{head}{}", line.trim_start()),
                None => self.lines.push(head.trim_end().to_owned()),
            }
        }
    }

    /// Text in lines of the width, broken between words.
    fn wrapped(&mut self, indent: usize, text: &str) {
        let room = self.width.saturating_sub(indent).max(30);
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
                self.lines.push(format!("{:indent$}{line}", ""));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        if !line.is_empty() {
            self.lines.push(format!("{:indent$}{line}", ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_described_with_all_that_it_declares() {
        for kind in crate::commands::step_kinds() {
            let text = describe_kind(&kind, 100);
            for word in
                kind.outputs.iter().map(|output| output.name).chain(kind.metrics.iter().map(|metric| metric.name))
            {
                assert!(text.contains(word), "`{word}` is not in the help of `{}`:\n{text}", kind.name);
            }
            assert!(text.contains(&format!("uses: {}", kind.name)), "the example of `{}`", kind.name);
        }
    }

    #[test]
    fn options_are_shown_with_types_ranges_defaults_and_choices() {
        let kinds = crate::commands::step_kinds();
        let train = describe_kind(kinds.iter().find(|kind| kind.name == "train").expect("train"), 100);
        for line in [
            "  data: artifact, required",
            "  accumulate: whole number, 1 to 65536, default 1",
            "      family: ten",
            "          truncate: true or false, default true",
            "      name: adamw",
        ] {
            assert!(train.lines().any(|found| found.starts_with(line)), "`{line}` is not in:\n{train}");
        }
        assert!(train.lines().all(|line| line.chars().count() <= 100 || line.contains('{')), "{train}");
    }
}
