//! Runs that are named by a commit or a branch: the latest complete run of a workflow with that commit.

use std::collections::BTreeSet;
use std::path::Path;

use assay_core::RunId;
use assay_server::RunStateName;
use assay_spec::printable;
use assay_store::{RunFilter, RunSummary, Store};
use assay_ui::comparison::Side;

use crate::cli::CommandError;
use crate::commands::find_run;
use crate::git::resolve_commit;

/// How many runs of a commit are looked at.
const MOST_RUNS: u64 = 1000;
/// How much of a commit is shown.
const SHORT: usize = 10;

/// A run named on the command line, with an optional job or cell of it.
pub struct NamedRun {
    pub run: RunId,
    pub part: Option<String>,
    commit: Option<NamedCommit>,
}

/// How a commit was named.
struct NamedCommit {
    name: String,
    hash: String,
    /// Whether the working tree of the run had changes that are not in the commit.
    is_dirty: bool,
}

impl NamedRun {
    /// The title in a report.
    pub fn title(&self, side: &Side) -> String {
        match &self.commit {
            Some(commit) if commit.name == commit.hash => format!("{} at {}", side.name(), short(&commit.hash)),
            Some(commit) => format!("{} at {} ({})", side.name(), printable(&commit.name), short(&commit.hash)),
            None => side.name(),
        }
    }

    /// A warning about the choice of the run.
    pub fn note(&self) -> Option<String> {
        let commit = self.commit.as_ref().filter(|commit| commit.is_dirty)?;
        let name = printable(&commit.name);
        Some(format!("run {} of `{name}` had uncommitted changes; no complete run of it had none", self.run))
    }
}

fn short(hash: &str) -> &str {
    hash.get(..SHORT).unwrap_or(hash)
}

/// The part of an argument before the colon.
enum Place {
    Run(RunId),
    Commit { name: String, runs: Vec<RunSummary>, hash: String },
}

/// The runs that two texts name: `RUN`, `latest`, or a commit or branch of the repository in the working folder, each with `:CELL` or
/// `:JOB`. Of a commit, the latest run of `workflow` that succeeded is meant; without a name, the workflow of the other side, or the only one
/// with such runs on both sides.
///
/// # Errors
/// If a text names no run, or it is unclear which workflow is meant.
pub async fn find_named_runs(
    store: &Store,
    texts: [&str; 2],
    workflow: Option<&str>,
) -> Result<[NamedRun; 2], CommandError> {
    let mut places = Vec::with_capacity(2);
    for text in texts {
        let (run, part) = text.split_once(':').map_or((text, None), |(run, part)| (run, Some(part.to_owned())));
        places.push((find_place(store, run).await?, part));
    }
    let workflow = match workflow {
        Some(name) => Some(name.to_owned()),
        None => choose_workflow(store, &places).await?,
    };
    let mut found = Vec::with_capacity(2);
    for (place, part) in places {
        found.push(match place {
            Place::Run(run) => NamedRun { run, part, commit: None },
            Place::Commit { name, runs, hash } => {
                let wanted = |run: &&RunSummary| workflow.as_ref().is_none_or(|workflow| run.name == *workflow);
                let is_dirty = |run: &RunSummary| run.git.as_ref().is_some_and(|git| git.dirty);
                let clean = runs.iter().filter(wanted).find(|run| !is_dirty(run));
                let run = clean.or_else(|| runs.iter().find(wanted)).ok_or_else(|| {
                    let workflow = printable(workflow.as_deref().unwrap_or_default()).into_owned();
                    format!(
                        "no run of `{workflow}` at `{}` ({}) succeeded; run it there first",
                        printable(&name),
                        short(&hash)
                    )
                })?;
                NamedRun { run: run.id, part, commit: Some(NamedCommit { is_dirty: is_dirty(run), name, hash }) }
            }
        });
    }
    found.try_into().map_err(|_| "two runs are needed".into())
}

async fn find_place(store: &Store, text: &str) -> Result<Place, CommandError> {
    if text == "latest" || text.parse::<i64>().is_ok() {
        return Ok(Place::Run(find_run(store, text).await?));
    }
    let hash = resolve_commit(Path::new("."), text).ok_or_else(|| {
        format!(
            "`{}` is neither a run (give its number, or `latest`) nor a commit or branch of the repository in this folder",
            printable(text)
        )
    })?;
    let filter = RunFilter::default().with_commit(&hash).with_state(RunStateName::Succeeded);
    let runs = store.find_runs(&filter, MOST_RUNS, 0).await?;
    if runs.is_empty() {
        let message = format!("no run at `{}` ({}) succeeded", printable(text), short(&hash));
        return Err(format!("{message}; check it out and run the workflow there first").into());
    }
    Ok(Place::Commit { name: text.to_owned(), runs, hash })
}

/// The workflow of the side that is a run; otherwise the only one that both commits have.
async fn choose_workflow(store: &Store, places: &[(Place, Option<String>)]) -> Result<Option<String>, CommandError> {
    let mut common: Option<BTreeSet<String>> = None;
    for (place, _) in places {
        let names: BTreeSet<String> = match place {
            Place::Run(run) => store.run(*run).await?.into_iter().map(|run| run.summary.name).collect(),
            Place::Commit { runs, .. } => runs.iter().map(|run| run.name.clone()).collect(),
        };
        common = Some(match common {
            None => names,
            Some(known) => known.intersection(&names).cloned().collect(),
        });
    }
    if places.iter().all(|(place, _)| matches!(place, Place::Run(_))) {
        return Ok(None);
    }
    let common: Vec<String> = common.into_iter().flatten().collect();
    match common.as_slice() {
        [one] => Ok(Some(one.clone())),
        [] => Err("no workflow has complete runs on both sides; run it at both commits first".into()),
        several => {
            let names: Vec<_> = several.iter().map(|name| printable(name).into_owned()).collect();
            Err(format!("several workflows have runs on both sides ({}); name one with --workflow", names.join(", "))
                .into())
        }
    }
}
