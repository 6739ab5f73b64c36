//! Notes beside workflow files. Only files beside workflows that the store knows are read, and only by the server of this machine: the
//! workflows of a server with worker nodes are files of other machines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use assay_store::RunFilter;
use axum::extract::State;
use axum::response::Html;
use serde::Serialize;

use crate::error::Failure;
use crate::notes::{LARGEST_NOTES, RenderedNotes, render_notes};
use crate::query::Choices;
use crate::server::{Inner, Site};
use crate::templates::render;

/// How many of the latest runs are looked at for their workflows.
const MOST_RUNS: u64 = 500;

#[derive(Debug, Serialize)]
struct NotesPage {
    title: String,
    live: bool,
    /// Whether this server shows notes.
    served: bool,
    /// The workflow files that have notes.
    files: BTreeSet<String>,
    /// The notes that are shown, and whose they are.
    notes: Option<RenderedNotes>,
    file: String,
}

/// The page.
pub(crate) async fn show(State(site): State<Site>, choices: Choices) -> Result<Html<String>, Failure> {
    choices.only(&["workflow"])?;
    let files = find_files(&site).await?;
    let served = site.hub.is_none();
    let Some(file) = choices.get("workflow") else {
        let page =
            NotesPage { title: "Notes".to_owned(), live: false, served, files, notes: None, file: String::new() };
        return render(&site, "notes.html", page);
    };
    if !files.contains(file) {
        let error =
            format!("`{}` has no notes, or no run of it is in the store", file.chars().take(200).collect::<String>());
        return Err(Failure::not_found(error, "see the page of notes for the workflows that have some"));
    }
    let text = read_notes(&notes_path(file))?;
    let name = Path::new(file).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let notes = render_notes(&site, &text, &name).await?;
    let title = if notes.title.is_empty() { format!("Notes of {file}") } else { notes.title.clone() };
    let page =
        NotesPage { title, live: false, served, files: BTreeSet::new(), notes: Some(notes), file: file.to_owned() };
    render(&site, "notes.html", page)
}

/// The workflow files of the latest runs that have notes beside them.
pub(crate) async fn find_files(site: &Inner) -> Result<BTreeSet<String>, Failure> {
    if site.hub.is_some() {
        return Ok(BTreeSet::new());
    }
    let runs = site.store.find_runs(&RunFilter::default(), MOST_RUNS, 0).await?;
    let files: BTreeSet<String> = runs.into_iter().map(|run| run.file).collect();
    Ok(files.into_iter().filter(|file| notes_path(file).is_file()).collect())
}

/// `NAME.notes.md` beside `NAME.yaml`.
fn notes_path(workflow: &str) -> PathBuf {
    Path::new(workflow).with_extension("notes.md")
}

fn read_notes(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::internal(format!("cannot read `{}`: {error}", path.display()));
    if std::fs::metadata(path).map_err(failed)?.len() > LARGEST_NOTES {
        let error = format!("`{}` is larger than {LARGEST_NOTES} bytes", path.display());
        return Err(Failure { status: 413, error, hint: "divide it, or remove what is not text".into() });
    }
    std::fs::read_to_string(path).map_err(failed)
}
