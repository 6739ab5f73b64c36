//! `assay import`: runs that other trackers stored.

use std::path::Path;
use std::process::ExitCode;

use assay_import::{Added, ImportError, Source, add_run};
use assay_store::Store;
use serde_json::json;

use crate::cli::{CommandError, ImportArgs};
use crate::terminal::print_line;

pub async fn run(home: &Path, args: &ImportArgs) -> Result<ExitCode, CommandError> {
    // A path without runs leaves no store.
    let source = Source::open(&args.path).await.map_err(explain)?;
    let store = Store::open(home).await?;
    let (mut runs, mut failures, mut known) = (Vec::new(), Vec::new(), 0_usize);
    for id in source.runs() {
        match import_run(&store, &source, id, args).await {
            Ok((Added::New(run), name, omissions)) => {
                if !args.json {
                    print_line(format_args!("run {run}: {name}"));
                    omissions.iter().for_each(|omission| print_line(format_args!("  {omission}")));
                }
                runs.push(json!({"run": run.0, "name": name, "omissions": omissions}));
            }
            Ok((Added::Known(_), ..)) => known += 1,
            // The other runs are not held back.
            Err(error) => failures.push(explain(error).to_string()),
        }
    }
    let count = |count: usize| if count == 1 { "1 run".to_owned() } else { format!("{count} runs") };
    if args.json {
        let format = source.format().name();
        super::print_json(&json!({"format": format, "runs": runs, "known": known, "failures": failures}))?;
    } else {
        let known = if known > 0 { format!("; {} had been imported before", count(known)) } else { String::new() };
        print_line(format_args!("{} imported ({}){known}", count(runs.len()), source.format().name()));
    }
    match failures.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(format!("{} could not be imported:\n  {}", count(failures.len()), failures.join("\n  ")).into()),
    }
}

async fn import_run(
    store: &Store,
    source: &Source,
    id: &assay_import::RunId,
    args: &ImportArgs,
) -> Result<(Added, String, Vec<String>), ImportError> {
    let mut run = source.read(id).await?;
    if let Some(experiment) = &args.experiment {
        run.experiment.clone_from(experiment);
    }
    let (name, omissions) = (run.name.clone(), run.omissions.clone());
    Ok((add_run(store, run, env!("CARGO_PKG_VERSION")).await?, name, omissions))
}

fn explain(error: ImportError) -> CommandError {
    match &error {
        ImportError::Unreadable { message, hint } => format!("{message}; {hint}").into(),
        ImportError::Refused(_) | ImportError::Store(_) => error.to_string().into(),
    }
}
