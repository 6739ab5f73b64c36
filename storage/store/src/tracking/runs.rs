//! Creates, reads and changes runs.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{Epoch, RunId, TaskIx};
use assay_schema::{attempt, run, task, tracked_metric, tracked_run};
use assay_server::{NewTask, RunStateName, TaskStateName};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, NotSet, QueryFilter, QueryOrder,
    Set,
};
use serde_json::{Value, json};

use super::error::{absent_run, database};
use super::experiments::find_experiment;
use super::{NewTrackedRun, ORIGIN, TASK, TrackedMetric, TrackedRun, TrackedRunChange, TrackedStatus, TrackingError};
use crate::begin::task_row;
use crate::record::attempt_row;
use crate::rows::{floats_to_json, from_json, now_millis, to_json, to_signed};
use crate::{AttemptRef, Store, StoreError};

/// Runs per statement.
const ROWS: usize = 1000;

/// Held while a run is sealed.
static SEALING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The tag with a run's name.
pub(super) const NAME_TAG: &str = "mlflow.runName";
/// The tag with a user's note.
pub(super) const NOTE_TAG: &str = "mlflow.note.content";

impl Store {
    /// Creates a run with one task and one attempt, which are in progress.
    ///
    /// # Errors
    /// If the experiment does not exist or is deleted, or the store cannot be written.
    pub async fn create_tracked_run(&self, new: NewTrackedRun) -> Result<TrackedRun, TrackingError> {
        let session = self.session()?.name().to_owned();
        let tx = self.database.begin_write().await?;
        let experiment = find_experiment(&tx, new.experiment).await?;
        if experiment.deleted {
            let id = new.experiment;
            let message = format!("The experiment {id} must be in the 'active' state. Current state is deleted.");
            return Err(TrackingError::Invalid(message));
        }
        let now = new.created_at.unwrap_or_else(|| to_signed(now_millis()));
        let row = run::ActiveModel {
            id: NotSet,
            name: Set(new.name),
            file: Set(format!("mlflow:/{}", experiment.name)),
            source: Set(format!("# Logged by an MLflow client, in the experiment {:?}.\n", experiment.name)),
            params: Set(json!({})),
            machine: Set(json!({})),
            version: Set(new.version),
            session: Set(session),
            state: Set(RunStateName::Running.name().to_owned()),
            created_at: Set(now),
            ended_at: Set(None),
            tags: Set(json!([])),
            note: Set(new.tags.get(NOTE_TAG).cloned().unwrap_or_default()),
            git_commit: Set(new.tags.get("mlflow.source.git.commit").cloned()),
            git_dirty: Set(None),
            origin: Set(ORIGIN.to_owned()),
        };
        let id = row.insert(&tx).await.map_err(database)?.id;
        task::Entity::insert(running_task(id, now)?).exec_without_returning(&tx).await.map_err(database)?;
        let worker = if new.user.is_empty() { ORIGIN.to_owned() } else { new.user.clone() };
        let attempt = attempt_row((id, 0, 1), worker, ORIGIN.to_owned(), now);
        attempt::Entity::insert(attempt).exec_without_returning(&tx).await.map_err(database)?;
        let row = tracked_run::ActiveModel {
            run: Set(id),
            key: Set(new.key.clone()),
            experiment: Set(new.experiment),
            user: Set(new.user),
            status: Set(TrackedStatus::Running.name().to_owned()),
            start_time: Set(new.start_time),
            end_time: Set(None),
            deleted: Set(false),
            tags: Set(to_json("tags", &new.tags)?),
            inputs: Set(json!([])),
        };
        tracked_run::Entity::insert(row).exec_without_returning(&tx).await.map_err(database)?;
        // Read before the commit: after an error, the client creates the run again.
        let run = run_views(&tx, vec![find_run(&tx, &new.key).await?]).await?.pop();
        tx.commit().await.map_err(database)?;
        run.ok_or_else(|| absent_run(&new.key))
    }

    /// A run by its identifier for clients.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn tracked_run(&self, key: &str) -> Result<Option<TrackedRun>, StoreError> {
        let tx = self.database.snapshot().await?;
        let found = tracked_run::Entity::find().filter(tracked_run::Column::Key.eq(key)).all(&tx).await;
        Ok(run_views(&tx, found.map_err(database)?).await?.pop())
    }

    /// The runs of these experiments, including deleted ones, the latest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn tracked_runs(&self, experiments: &[i64]) -> Result<Vec<TrackedRun>, StoreError> {
        let tx = self.database.snapshot().await?;
        let query = tracked_run::Entity::find().order_by_desc(tracked_run::Column::Run);
        let mut found = query.all(&tx).await.map_err(database)?;
        let experiments: BTreeSet<i64> = experiments.iter().copied().collect();
        found.retain(|row| experiments.contains(&row.experiment));
        run_views(&tx, found).await
    }

    /// Changes a run. A final status ends its task and seals its points; any other status reopens it.
    ///
    /// # Errors
    /// If it does not exist, it is deleted and is not restored, or the store cannot be written.
    pub async fn change_tracked_run(&self, key: &str, change: TrackedRunChange) -> Result<TrackedRun, TrackingError> {
        let tx = self.database.begin_write().await?;
        let row = find_run(&tx, key).await?;
        match change.deleted {
            None => require_active(&row)?,
            Some(false) if !row.deleted => {
                return Err(TrackingError::Invalid(format!(
                    "The run {key} must be in the 'deleted' state. Current state is active."
                )));
            }
            Some(true) => require_active(&row)?,
            Some(false) => {}
        }
        if let Some(name) = change.name {
            let mut tags: BTreeMap<String, String> = from_json("tags", &row.tags)?;
            tags.insert(NAME_TAG.to_owned(), name.clone());
            let named = tracked_run::ActiveModel { tags: Set(to_json("tags", &tags)?), ..Default::default() };
            update_tracked(&tx, row.run, named).await?;
            update_run(&tx, row.run, run::ActiveModel { name: Set(name), ..Default::default() }).await?;
        }
        if let Some(deleted) = change.deleted {
            let row_change = tracked_run::ActiveModel { deleted: Set(deleted), ..Default::default() };
            update_tracked(&tx, row.run, row_change).await?;
        }
        if let Some(end) = change.end_time {
            let ended = tracked_run::ActiveModel { end_time: Set(Some(end)), ..Default::default() };
            update_tracked(&tx, row.run, ended).await?;
        }
        let ended = match change.status {
            None => false,
            Some(status) => {
                set_status(&tx, row.run, status, change.end_time).await?;
                status.is_final()
            }
        };
        let run = run_views(&tx, vec![find_run(&tx, key).await?]).await?.pop();
        tx.commit().await.map_err(database)?;
        if ended {
            // Two processes of a client may end a run at the same time. Two concurrent sealings would write the same segment with
            // different points.
            let _one = SEALING.lock().await;
            // The change is committed. Points that are not sealed are read from the database, and `recover_runs` seals them later.
            let _ = self.seal_attempt(attempt_of(row.run)).await;
        }
        run.ok_or_else(|| absent_run(key))
    }
}

/// The only attempt of a run.
pub(super) fn attempt_of(run: i64) -> AttemptRef {
    AttemptRef { run: RunId(run), ix: TaskIx(0), epoch: Epoch(1) }
}

/// The only task of a run.
fn running_task(run: i64, now: i64) -> Result<task::ActiveModel, StoreError> {
    let new = NewTask {
        address: TASK.to_owned(),
        cell: TASK.to_owned(),
        job: TASK.to_owned(),
        kind: ORIGIN.to_owned(),
        matrix: BTreeMap::new(),
        replicate: None,
        needs: Vec::new(),
        each: None,
    };
    Ok(task::ActiveModel {
        state: Set(TaskStateName::Running.name().to_owned()),
        config: Set(Some(json!({}))),
        attempts: Set(1),
        started_at: Set(Some(now)),
        ..task_row(run, 0, new)?
    })
}

pub(super) async fn find_run(tx: &DatabaseTransaction, key: &str) -> Result<tracked_run::Model, TrackingError> {
    let found = tracked_run::Entity::find().filter(tracked_run::Column::Key.eq(key)).one(tx).await;
    found.map_err(database)?.ok_or_else(|| absent_run(key))
}

pub(super) fn require_active(row: &tracked_run::Model) -> Result<(), TrackingError> {
    match row.deleted {
        false => Ok(()),
        true => Err(TrackingError::Invalid(format!(
            "The run {} must be in the 'active' state. Current state is deleted.",
            row.key
        ))),
    }
}

pub(super) async fn update_tracked(
    tx: &DatabaseTransaction,
    run: i64,
    row: tracked_run::ActiveModel,
) -> Result<(), TrackingError> {
    let update = tracked_run::Entity::update_many().set(row).filter(tracked_run::Column::Run.eq(run));
    update.exec(tx).await.map_err(database)?;
    Ok(())
}

pub(super) async fn update_run(tx: &DatabaseTransaction, id: i64, row: run::ActiveModel) -> Result<(), TrackingError> {
    run::Entity::update_many().set(row).filter(run::Column::Id.eq(id)).exec(tx).await.map_err(database)?;
    Ok(())
}

pub(super) async fn update_task(
    tx: &DatabaseTransaction,
    run: i64,
    row: task::ActiveModel,
) -> Result<(), TrackingError> {
    task::Entity::update_many().set(row).filter(task::Column::Run.eq(run)).exec(tx).await.map_err(database)?;
    Ok(())
}

async fn set_status(
    tx: &DatabaseTransaction,
    run: i64,
    status: TrackedStatus,
    end: Option<i64>,
) -> Result<(), TrackingError> {
    let row = tracked_run::ActiveModel { status: Set(status.name().to_owned()), ..Default::default() };
    update_tracked(tx, run, row).await?;
    let (run_state, task_state) = status.states();
    let end = status.is_final().then(|| end.unwrap_or_else(|| to_signed(now_millis())));
    let values = match end {
        Some(_) => Some(last_values(tx, run).await?),
        None => None,
    };
    let row = run::ActiveModel { state: Set(run_state.name().to_owned()), ended_at: Set(end), ..Default::default() };
    update_run(tx, run, row).await?;
    let row = task::ActiveModel {
        state: Set(task_state.name().to_owned()),
        ended_at: Set(end),
        metrics: Set(values),
        ..Default::default()
    };
    update_task(tx, run, row).await?;
    let row = attempt::ActiveModel { ended_at: Set(end), ..Default::default() };
    let update = attempt::Entity::update_many().set(row).filter(attempt::Column::Run.eq(run));
    update.exec(tx).await.map_err(database)?;
    Ok(())
}

/// The last value of each metric of a run, in the form of a finished task.
pub(super) async fn last_values(tx: &DatabaseTransaction, run: i64) -> Result<Value, TrackingError> {
    let latest = tracked_metric::Entity::find().filter(tracked_metric::Column::Run.eq(run)).all(tx).await;
    let values = latest.map_err(database)?.into_iter().map(metric_view).map(|metric| (metric.name, metric.value));
    Ok(floats_to_json(&values.collect()))
}

pub(super) fn metric_view(row: tracked_metric::Model) -> TrackedMetric {
    TrackedMetric { name: row.name, value: f64::from_bits(row.bits.cast_unsigned()), at: row.at, step: row.step }
}

/// The runs of these rows, in the same order, with their data from other tables.
async fn run_views(db: &impl ConnectionTrait, found: Vec<tracked_run::Model>) -> Result<Vec<TrackedRun>, StoreError> {
    let ids: Vec<i64> = found.iter().map(|row| row.run).collect();
    let (mut runs, mut metrics) = (BTreeMap::new(), BTreeMap::<i64, Vec<TrackedMetric>>::new());
    for chunk in ids.chunks(ROWS) {
        let ids = || chunk.iter().copied();
        let own = run::Entity::find().filter(run::Column::Id.is_in(ids())).all(db).await.map_err(database)?;
        runs.extend(own.into_iter().map(|row| (row.id, row)));
        let latest = tracked_metric::Entity::find().filter(tracked_metric::Column::Run.is_in(ids()));
        let latest = latest.order_by_asc(tracked_metric::Column::Name).all(db).await.map_err(database)?;
        for row in latest {
            metrics.entry(row.run).or_default().push(metric_view(row));
        }
    }
    found
        .into_iter()
        .map(|row| {
            let own = runs.remove(&row.run).ok_or_else(|| {
                StoreError::damaged(format!("the store has a logged run {} without its row of runs", row.run))
            })?;
            run_view(row, own, &mut metrics)
        })
        .collect()
}

fn run_view(
    row: tracked_run::Model,
    own: run::Model,
    metrics: &mut BTreeMap<i64, Vec<TrackedMetric>>,
) -> Result<TrackedRun, StoreError> {
    let status = TrackedStatus::from_name(&row.status)
        .ok_or_else(|| StoreError::damaged(format!("the store has a logged run with the status `{}`", row.status)))?;
    Ok(TrackedRun {
        run: RunId(row.run),
        metrics: metrics.remove(&row.run).unwrap_or_default(),
        key: row.key,
        experiment: row.experiment,
        name: own.name,
        user: row.user,
        status,
        start_time: row.start_time,
        end_time: row.end_time,
        deleted: row.deleted,
        params: from_json("parameters", &own.params)?,
        tags: from_json("tags", &row.tags)?,
        inputs: from_json("inputs", &row.inputs)?,
    })
}
