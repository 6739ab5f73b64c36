//! Notes: Markdown beside a workflow file, with tables and charts of runs in fences. `markdown` turns the text into HTML, `fence` reads what a
//! fence asks for, `figure` draws it.

mod fence;
mod figure;
mod markdown;

use assay_spec::StepKind;
use assay_store::Store;
use serde::Serialize;

use crate::assets;
use crate::error::Failure;
use crate::server::{Inner, new_site};
use crate::templates::render;

/// The largest file of notes, in bytes.
pub const LARGEST_NOTES: u64 = 1 << 20;

/// Something wrong in notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoteProblem {
    /// The line of the file, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// Notes as HTML.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RenderedNotes {
    /// The content of the page's main part. Everything that a person wrote is escaped.
    pub html: String,
    /// The first heading as plain text; empty without one.
    pub title: String,
    /// What is wrong in fences.
    pub problems: Vec<NoteProblem>,
}

/// One self-contained document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotesDocument {
    /// The HTML: styles are inside, and it refers to nothing.
    pub html: String,
    /// What is wrong in fences; the document shows it at their places.
    pub problems: Vec<NoteProblem>,
}

/// Renders notes for the pages. `workflow` is the file name of the workflow that they belong to: `latest` in a fence is its latest run.
pub(crate) async fn render_notes(site: &Inner, text: &str, workflow: &str) -> Result<RenderedNotes, Failure> {
    let mut html = String::new();
    let mut problems = Vec::new();
    let document = markdown::read_markdown(text);
    for part in document.parts {
        match part {
            markdown::Part::Html(part) => html.push_str(&part),
            markdown::Part::Fence { text, line } => {
                for command in fence::read_fence(&text, line) {
                    let drawn = match command {
                        Ok(command) => {
                            let line = command.line;
                            let drawn = figure::draw_figure(site, &command, workflow).await;
                            drawn.map_err(|failure| NoteProblem { line, reason: reason_of(&failure) })
                        }
                        Err(problem) => Err(problem),
                    };
                    match drawn {
                        Ok(drawn) => html.push_str(&drawn),
                        Err(problem) => {
                            html.push_str(&render(site, "note_problem.html", &problem)?.0);
                            problems.push(problem);
                        }
                    }
                }
            }
        }
    }
    Ok(RenderedNotes { html, title: document.title, problems })
}

fn reason_of(failure: &Failure) -> String {
    if failure.hint.is_empty() { failure.error.clone() } else { format!("{}: {}", failure.error, failure.hint) }
}

/// Renders notes as one document that needs no server and no other file.
///
/// # Errors
/// If the store cannot be read.
pub async fn export_notes(
    store: Store,
    kinds: Vec<StepKind>,
    text: &str,
    workflow: &str,
    name: &str,
) -> Result<NotesDocument, String> {
    #[derive(Serialize)]
    struct Export<'a> {
        title: &'a str,
        styles: &'a str,
        html: &'a str,
    }
    let site = new_site(store, kinds, None);
    let in_words = |failure: Failure| reason_of(&failure);
    let notes = render_notes(&site, text, workflow).await.map_err(in_words)?;
    let styles = ["base.css", "parts.css"].map(|name| assets::content(name).unwrap_or_default()).concat();
    let title = if notes.title.is_empty() { name } else { &notes.title };
    // Addresses of the server mean nothing without it.
    let html = remove_local_links(&notes.html);
    let document =
        render(&site, "notes_export.html", Export { title, styles: &styles, html: &html }).map_err(in_words)?;
    Ok(NotesDocument { html: document.0, problems: notes.problems })
}

/// Removes the addresses of links that begin with a slash: those of the server's pages.
fn remove_local_links(html: &str) -> String {
    let mut rest = html;
    let mut kept = String::with_capacity(html.len());
    // The templates escape slashes as `&#x2f;` where an address is a value.
    while let Some(at) = [" href=\"/", " href=\"&#x2f;"].iter().filter_map(|start| rest.find(start)).min() {
        kept.push_str(&rest[..at]);
        let value = at + " href=\"".len();
        let end = rest[value..].find('"').map_or(rest.len(), |end| value + end + 1);
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_server_are_removed() {
        let html = "<a href=\"/runs/1\" class=\"x\">a</a><a class=\"y\" href=\"&#x2f;runs\">b</a><a href=\"https://c.org\">c</a>";
        let expected = "<a class=\"x\">a</a><a class=\"y\">b</a><a href=\"https://c.org\">c</a>";
        assert_eq!(remove_local_links(html), expected);
        assert_eq!(remove_local_links("text href=\"/x"), "text");
    }
}
