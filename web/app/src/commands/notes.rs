//! `assay notes`: notes of a workflow as one document.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use assay_spec::printable;
use assay_ui::{LARGEST_NOTES, export_notes};

use crate::cli::{CommandError, NotesArgs};
use crate::terminal::print_line;

/// What the name of a file of notes ends with.
const ENDING: &str = ".notes.md";

pub async fn run(home: &Path, args: &NotesArgs) -> Result<ExitCode, CommandError> {
    let shown = printable(&args.file.display().to_string()).to_string();
    let text = read_notes(&args.file).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    let store = super::existing_store(home).await?;
    let name = args.file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let stem = name.strip_suffix(ENDING).or_else(|| name.strip_suffix(".md")).unwrap_or(&name).to_owned();
    // A workflow file may have either ending.
    let workflow = ["yaml", "yml"].map(|ending| format!("{stem}.{ending}"));
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let workflow = workflow.iter().find(|file| folder.join(file).is_file()).unwrap_or(&workflow[0]);
    let document = export_notes(store, super::step_kinds().to_vec(), &text, workflow, &stem).await?;
    if args.output == Path::new("-") {
        super::print_out(&document.html)?;
    } else {
        let to = printable(&args.output.display().to_string()).to_string();
        std::fs::write(&args.output, &document.html).map_err(|error| format!("cannot write `{to}`: {error}"))?;
    }
    for problem in &document.problems {
        print_line(format_args!("{shown}:{}: {}", problem.line, printable(&problem.reason)));
    }
    Ok(if document.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_notes(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| error.to_string())?;
    // A device or a pipe has no size that could be asked for.
    opened.take(LARGEST_NOTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST_NOTES { Err(format!("it is larger than {LARGEST_NOTES} bytes")) } else { Ok(text) }
}
