//! Adds a run to a store.

use std::collections::BTreeMap;

use assay_core::RunId;
use assay_store::{LONGEST_PARAM, LONGEST_TAG, NewTrackedRun, Store, TrackedBatch, TrackedRunChange};

use crate::{ForeignRun, ImportError};

/// Points in one transaction.
const POINTS: usize = 50_000;

/// What adding a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The store has a new run.
    New(RunId),
    /// The store had this run already.
    Known(RunId),
}

/// Adds a run to the experiment of its name, which is created if it is missing. A run that an interrupted import left is completed.
/// `version` is the version of this program.
///
/// # Errors
/// If the experiment is deleted, a file cannot be read, or the store cannot be written. The store then has the run as far as it was
/// added, in the state `running`; adding it again completes it.
pub async fn add_run(store: &Store, run: ForeignRun, version: &str) -> Result<Added, ImportError> {
    let known = store.tracked_run(&run.key).await?;
    let id = match known {
        Some(known) if known.status.is_final() => return Ok(Added::Known(known.run)),
        Some(known) => known.run,
        None => {
            let new = NewTrackedRun {
                key: run.key.clone(),
                experiment: find_experiment(store, &run.experiment).await?,
                name: run.name.clone(),
                user: run.user.clone(),
                start_time: run.start_time,
                created_at: Some(run.start_time),
                tags: BTreeMap::from([("mlflow.runName".to_owned(), run.name.clone())]),
                version: version.to_owned(),
            };
            store.create_tracked_run(new).await?.run
        }
    };
    let cut = |pairs: Vec<(String, String)>, longest: usize| {
        pairs.into_iter().map(|(name, value)| (name, value.chars().take(longest).collect())).collect()
    };
    let batch = TrackedBatch {
        params: cut(run.params, LONGEST_PARAM),
        tags: cut(run.tags, LONGEST_TAG),
        ..TrackedBatch::default()
    };
    store.log_tracked(&run.key, batch).await?;
    let mut points = run.metrics;
    // A point after the latest one of its metric is new: in this order no transaction has to read those before it.
    points.sort_by_key(|point| (point.step, point.at));
    let mut points = points.into_iter().peekable();
    while points.peek().is_some() {
        let metrics = points.by_ref().take(POINTS).collect();
        store.log_tracked(&run.key, TrackedBatch { metrics, ..TrackedBatch::default() }).await?;
    }
    for (path, file) in run.files {
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        let artifact = store.ingest_file(&file, &name).await?;
        store.add_tracked_file(&run.key, &path, artifact).await?;
    }
    let change = TrackedRunChange {
        status: Some(run.status),
        end_time: run.end_time.or(Some(run.start_time)),
        ..TrackedRunChange::default()
    };
    store.change_tracked_run(&run.key, change).await?;
    Ok(Added::New(id))
}

async fn find_experiment(store: &Store, name: &str) -> Result<i64, ImportError> {
    let known = store.experiments().await?.into_iter().find(|experiment| experiment.name == name);
    match known {
        Some(experiment) => Ok(experiment.id),
        None => Ok(store.create_experiment(name, "", &BTreeMap::new()).await?),
    }
}
