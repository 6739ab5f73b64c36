//! `assay get`: an output of a task, copied out of the store.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_spec::printable;
use assay_store::{Content, OutputView, Store};

use crate::cli::{CommandError, GetArgs};
use crate::terminal::print_line;

pub async fn run(home: &Path, args: &GetArgs) -> Result<ExitCode, CommandError> {
    let store = super::existing_store(home).await?;
    let run = super::find_run(&store, &args.run).await?;
    let task = super::find_task(&store, run, &args.task).await?;
    let Some(output) = task.outputs.get(&args.output) else {
        let known: Vec<&str> = task.outputs.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
        let (task, output) = (printable(&args.task), printable(&args.output));
        return Err(format!("`{task}` has no output `{output}`; it has: {known}").into());
    };
    match output {
        OutputView::Artifact { hash, name, .. } => copy_artifact(&store, hash, name, args.to.as_deref()).await,
        OutputView::Value { value } => write_value(value, args.to.as_deref()),
    }
}

async fn copy_artifact(store: &Store, hash: &str, name: &str, to: Option<&Path>) -> Result<ExitCode, CommandError> {
    let from = match store.verify_artifact(hash).await? {
        Content::Whole(path) => path,
        Content::Lost { why } => {
            let name = printable(name);
            return Err(format!("`{name}` ({hash}) cannot be used: {why}; run the workflow again").into());
        }
    };
    if to == Some(Path::new("-")) {
        let mut file = std::fs::File::open(&from)?;
        match std::io::copy(&mut file, &mut std::io::stdout().lock()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => return Ok(ExitCode::SUCCESS),
        }
    }
    let to = target_path(name, to)?;
    let failed = |error: std::io::Error| format!("cannot write `{}`: {error}", to.display());
    let mut file = std::fs::File::create(&to).map_err(failed)?;
    std::io::copy(&mut std::fs::File::open(&from)?, &mut file).map_err(failed)?;
    print_line(printable(&to.display().to_string()));
    Ok(ExitCode::SUCCESS)
}

/// The file to write: the one that was named, or one of the artifact's own name here, which is not replaced.
fn target_path(name: &str, to: Option<&Path>) -> Result<PathBuf, CommandError> {
    if let Some(to) = to {
        return Ok(if to.is_dir() { to.join(plain_name(name)) } else { to.to_owned() });
    }
    let here = PathBuf::from(plain_name(name));
    if here.exists() {
        return Err(format!("`{}` exists already; name another file with -o", here.display()).into());
    }
    Ok(here)
}

/// A name without folders: names come from steps, which may be anybody's.
fn plain_name(name: &str) -> &str {
    Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("artifact")
}

fn write_value(value: &serde_json::Value, to: Option<&Path>) -> Result<ExitCode, CommandError> {
    match to.filter(|to| *to != Path::new("-")) {
        None => super::print_json(value)?,
        Some(to) => {
            let text = serde_json::to_string_pretty(value)? + "\n";
            let written = std::fs::File::create(to).and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| format!("cannot write `{}`: {error}", to.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_artifact_is_written_outside_of_here() {
        for (name, expected) in
            [("model.onnx", "model.onnx"), ("../../etc/x", "x"), ("/etc/x", "x"), ("..", "artifact")]
        {
            assert_eq!(plain_name(name), expected);
        }
    }
}
