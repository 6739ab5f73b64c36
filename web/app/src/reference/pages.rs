//! The reference as pages of the book: `assay schema --pages DIR`.

use std::fmt::Write;

use assay_spec::{Better, StepKind, json_schema};

use super::examples::example;
use super::fields::{Field, Parts, parts_of_definition, top_level};
use super::metrics::meaning;
use super::terminal::inputs;

const NOTICE: &str =
    "<!-- Made by `assay schema --pages docs/src/reference`. A test compares it; change the code, not this file. -->\n";

/// A page of the book.
struct Page {
    /// The file's name.
    name: String,
    /// Markdown.
    text: String,
}

/// Every page that is made from what the step kinds declare.
fn pages(kinds: &[StepKind]) -> Vec<Page> {
    let mut pages = vec![workflow(kinds), metrics(kinds)];
    pages.extend(kinds.iter().map(step));
    pages
}

fn page(name: &str, title: &str, body: &str) -> Page {
    Page { name: format!("{name}.md"), text: format!("{NOTICE}\n# {title}\n\n{}\n", body.trim_end()) }
}

fn workflow(kinds: &[StepKind]) -> Page {
    let document = json_schema(kinds);
    let mut body =
        "Every key of a workflow file. [The workflow file](../workflow-file.md) explains them with examples. \
        Unknown keys are refused. \
        Values of `with`, `matrix` and the settings of a job may be expressions, `${{ .. }}`; names may not.\n"
            .to_owned();
    section(&mut body, "The file", &top_level(&document), 2);
    let parts = [
        ("job", "A job: `jobs.NAME`"),
        ("strategy", "`jobs.NAME.strategy`"),
        ("resource", "`jobs.NAME.resources`, one of the variants"),
        ("retry", "`jobs.NAME.retry`"),
    ];
    for (name, title) in parts {
        if let Parts::Keys(mut fields) = parts_of_definition(&document, name) {
            // A key with its own section is not described twice.
            let described =
                |field: &Field| field.name == "uses" || parts.iter().any(|(name, _)| field.name.starts_with(name));
            fields.iter_mut().filter(|field| described(field)).for_each(|field| field.parts = Parts::Plain);
            section(&mut body, title, &fields, 2);
        }
    }
    body.push_str("\n## Step kinds: `jobs.NAME.uses`\n\n| kind | what it does |\n|---|---|\n");
    for kind in kinds {
        let _ = writeln!(body, "| [`{0}`]({0}.md) | {1} |", kind.name, cell(kind.about));
    }
    page("workflow", "Keys of the workflow file", &body)
}

fn step(kind: &StepKind) -> Page {
    let document = json_schema(std::slice::from_ref(kind));
    let mut body = format!("{} In the terminal: `assay help {}`.\n", kind.about, kind.name);
    if let Some(example) = example(kind.name) {
        let _ = write!(body, "\n## Example\n\n```yaml\n{}\n```\n", example.trim_end());
    }
    match parts_of_definition(&document, &format!("with-{}", kind.name)) {
        Parts::Keys(fields) => section(&mut body, "Options: `with:`", &fields, 2),
        Parts::Forms(forms) => {
            body.push_str("\n## Options: `with:`\n");
            for form in forms {
                let _ = write!(body, "\n### `{}`\n\n{}\n", form.tag, form.about);
                table(&mut body, &form.fields);
                parts(&mut body, &form.fields, 4);
            }
        }
        Parts::Plain | Parts::Choices(_) => {}
    }
    body.push_str("\n## Inputs\n\n");
    body.push_str(&match inputs(&document, kind).as_slice() {
        [] => "None from other jobs.\n".to_owned(),
        names => format!("Artifacts of other jobs: `{}`.\n", names.join("`, `")),
    });
    body.push_str("\n## Outputs\n\n| name | content |\n|---|---|\n");
    for output in kind.outputs {
        let _ = writeln!(body, "| `{}` | {} |", output.name, cell(output.about));
    }
    if kind.declares("outputs") {
        body.push_str("\nThe outputs are those that the option `outputs` names.\n");
    }
    body.push_str("\n## Metrics\n");
    metrics_table(&mut body, kind);
    if kind.declares("metrics") {
        body.push_str("\nThe step reports any metric; those that the option `metrics` names are columns of the table of results.\n");
    }
    page(kind.name, &format!("`{}`", kind.name), &body)
}

fn metrics(kinds: &[StepKind]) -> Page {
    let mut body =
        "Every metric that a step reports. `*` stands for one part of a name. The last column names the column of the \
        results table in which the metric is shown by default; `assay results RUN --metrics NAME,..` shows others.\n"
            .to_owned();
    for kind in kinds {
        let _ = write!(body, "\n## `{}`\n", kind.name);
        metrics_table(&mut body, kind);
    }
    page("metrics", "Metrics", &body)
}

fn metrics_table(body: &mut String, kind: &StepKind) {
    body.push_str("\n| metric | unit | better | meaning | column |\n|---|---|---|---|---|\n");
    for metric in kind.metrics {
        let better = match metric.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
            Better::Neither => "",
        };
        let about = cell(meaning(kind.name, metric.name).unwrap_or_default());
        let column = metric.headline.unwrap_or_default();
        let row = format!("| `{}` | {} | {better} | {about} | {column} |", metric.name, metric.unit);
        let _ = writeln!(body, "{}", row.replace("|  |", "| |").replace("|  |", "| |"));
    }
}

/// A section with a table of fields, and what their values consist of below it.
fn section(body: &mut String, title: &str, fields: &[Field], level: usize) {
    let _ = write!(body, "\n{} {title}\n", "#".repeat(level));
    table(body, fields);
    parts(body, fields, level + 1);
}

fn table(body: &mut String, fields: &[Field]) {
    if fields.is_empty() {
        return;
    }
    body.push_str("\n| key | value | default | meaning |\n|---|---|---|---|\n");
    for field in fields {
        let default = match (&field.default, field.required) {
            (_, true) => "required".to_owned(),
            (Some(default), _) => format!("`{}`", cell(default)),
            (None, false) => String::new(),
        };
        let row = format!("| `{}` | {} | {default} | {} |", field.name, cell(&field.kind), cell(&about(field)));
        let _ = writeln!(body, "{}", row.replace("|  |", "| |").replace("|  |", "| |"));
    }
}

/// A field's meaning, with the values that it takes where they are few words.
fn about(field: &Field) -> String {
    let Parts::Choices(choices) = &field.parts else { return field.about.clone() };
    let choice = |(value, about): &(String, String)| match about.trim_end_matches('.') {
        "" => format!("`{value}`"),
        about => format!("`{value}` ({about})"),
    };
    let choices: Vec<String> = choices.iter().map(choice).collect();
    format!("{} One of {}.", field.about, choices.join(", ")).trim_start().to_owned()
}

/// The sections of the fields whose values are mappings.
fn parts(body: &mut String, fields: &[Field], level: usize) {
    for field in fields {
        match &field.parts {
            Parts::Keys(keys) => section(body, &format!("`{}`", field.name), keys, level.min(6)),
            Parts::Forms(forms) => {
                for form in forms {
                    let _ = write!(body, "\n{} `{}`, `{}`\n", "#".repeat(level.min(6)), field.name, form.tag);
                    if !form.about.is_empty() {
                        let _ = write!(body, "\n{}\n", form.about);
                    }
                    table(body, &form.fields);
                    parts(body, &form.fields, level + 1);
                }
            }
            Parts::Plain | Parts::Choices(_) => {}
        }
    }
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The pages as files of a folder.
///
/// # Errors
/// If the folder cannot be made or written.
pub fn write_pages(kinds: &[StepKind], folder: &std::path::Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let pages = pages(kinds);
    for page in &pages {
        std::fs::write(folder.join(&page.name), &page.text)?;
    }
    Ok(pages.len())
}
