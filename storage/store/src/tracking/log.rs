//! Logs data of clients: metrics, parameters, tags and datasets, in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use assay_schema::{metric_point, run, segment, task, tracked_metric, tracked_run};
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, QueryFilter, Set};
use serde_json::Value;

use super::error::database;
use super::runs::{
    NAME_TAG, NOTE_TAG, attempt_of, find_run, last_values, metric_view, require_active, update_run, update_task,
    update_tracked,
};
use super::{TrackedBatch, TrackedMetric, TrackingError};
use crate::record::insert_points;
use crate::rows::{from_json, to_json};
use crate::seal::{metrics_error, points_of, to_point};
use crate::store::run_blocking;
use crate::{Store, StoreError};

/// Rows per statement: each has 5 values, and SQLite accepts 32766 in a statement.
const ROWS: usize = 4000;

/// The identity of a point in its run: name, step, time, and the bits of the value.
type PointKey = (String, i64, i64, u64);

impl Store {
    /// Adds data to a run. A point that the run already has is dropped.
    ///
    /// # Errors
    /// If the run does not exist or is deleted, a parameter already has another value, a tag to be removed does not exist, or the store
    /// cannot be written.
    pub async fn log_tracked(&self, key: &str, batch: TrackedBatch) -> Result<(), TrackingError> {
        let tx = self.database.begin_write().await?;
        let row = find_run(&tx, key).await?;
        require_active(&row)?;
        log_params(&tx, &row, &batch.params).await?;
        log_tags(&tx, &row, &batch).await?;
        if !batch.inputs.is_empty() {
            log_inputs(&tx, &row, batch.inputs).await?;
        }
        if !batch.metrics.is_empty() {
            self.log_metrics(&tx, row.run, batch.metrics).await?;
        }
        tx.commit().await.map_err(database)?;
        Ok(())
    }

    async fn log_metrics(
        &self,
        tx: &DatabaseTransaction,
        run: i64,
        points: Vec<TrackedMetric>,
    ) -> Result<(), TrackingError> {
        let names: BTreeSet<&str> = points.iter().map(|point| point.name.as_str()).collect();
        let latest = tracked_metric::Entity::find()
            .filter(tracked_metric::Column::Run.eq(run))
            .filter(tracked_metric::Column::Name.is_in(names));
        let latest = latest.all(tx).await.map_err(database)?.into_iter().map(metric_view);
        let mut latest: BTreeMap<String, TrackedMetric> = latest.map(|point| (point.name.clone(), point)).collect();
        let mut known: Option<BTreeSet<PointKey>> = None;
        let (mut new, mut batch) = (Vec::new(), BTreeSet::new());
        for point in points {
            let is_latest = latest.get(&point.name).is_none_or(|last| rank(&point) > rank(last));
            if !is_latest {
                // It is an older point that arrived late, or a repeated point.
                if known.is_none() {
                    known = Some(self.known_points(tx, run).await?);
                }
                if known.as_ref().is_some_and(|known| known.contains(&point_key(&point))) {
                    continue;
                }
            }
            if !batch.insert(point_key(&point)) {
                continue;
            }
            if is_latest {
                latest.insert(point.name.clone(), point.clone());
            }
            new.push(point);
        }
        let new: Vec<_> = new.into_iter().map(|point| (point.name, point.step, point.value, point.at)).collect();
        insert_points(tx, (run, 0, 1), &new).await.map_err(database)?;
        write_latest(tx, run, latest.into_values()).await?;
        let done = task::Entity::find_by_id((run, 0)).one(tx).await.map_err(database)?;
        if done.is_some_and(|task| task.metrics.is_some()) {
            let values = last_values(tx, run).await?;
            update_task(tx, run, task::ActiveModel { metrics: Set(Some(values)), ..Default::default() }).await?;
        }
        Ok(())
    }

    /// Every stored point of a run.
    async fn known_points(&self, tx: &DatabaseTransaction, run: i64) -> Result<BTreeSet<PointKey>, StoreError> {
        let attempt = attempt_of(run);
        let tail = metric_point::Entity::find().filter(points_of(attempt)).all(tx).await.map_err(database)?;
        let mut points: Vec<_> = tail.into_iter().map(to_point).collect();
        if let Some(sealed) = segment::Entity::find_by_id((run, 0, 1)).one(tx).await.map_err(database)? {
            let path = self.layout.segment(&sealed.path);
            let read = move || assay_metrics::read_points(&path, &sealed.hash).map_err(metrics_error);
            points.extend(run_blocking(read).await?);
        }
        let key = |point: assay_metrics::Point| {
            (point.name, point.step.cast_signed(), point.time.unwrap_or(0), point.value.to_bits())
        };
        Ok(points.into_iter().map(key).collect())
    }
}

fn point_key(point: &TrackedMetric) -> PointKey {
    (point.name.clone(), point.step, point.at, point.value.to_bits())
}

/// The order of points: the largest is the latest. A value that is not a number counts as 0.
fn rank(point: &TrackedMetric) -> (i64, i64, f64) {
    (point.step, point.at, if point.value.is_nan() { 0.0 } else { point.value })
}

async fn write_latest(
    tx: &DatabaseTransaction,
    run: i64,
    latest: impl Iterator<Item = TrackedMetric>,
) -> Result<(), TrackingError> {
    let rows = latest.map(|point| tracked_metric::ActiveModel {
        run: Set(run),
        name: Set(point.name),
        step: Set(point.step),
        at: Set(point.at),
        bits: Set(point.value.to_bits().cast_signed()),
    });
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let newest = OnConflict::columns([tracked_metric::Column::Run, tracked_metric::Column::Name])
            .update_columns([tracked_metric::Column::Step, tracked_metric::Column::At, tracked_metric::Column::Bits])
            .to_owned();
        let insert = tracked_metric::Entity::insert_many(rows.by_ref().take(ROWS)).on_conflict(newest);
        insert.exec_without_returning(tx).await.map_err(database)?;
    }
    Ok(())
}

async fn log_params(
    tx: &DatabaseTransaction,
    row: &tracked_run::Model,
    params: &[(String, String)],
) -> Result<(), TrackingError> {
    if params.is_empty() {
        return Ok(());
    }
    let own = run::Entity::find_by_id(row.run).one(tx).await.map_err(database)?;
    let own = own.map_or(Value::Null, |own| own.params);
    let mut known: BTreeMap<String, String> = from_json("parameters", &own)?;
    for (name, value) in params {
        match known.get(name) {
            Some(old) if old != value => {
                return Err(TrackingError::Invalid(format!(
                    "Changing param values is not allowed. Param with key='{name}' was already logged with value='{old}' for run \
                     ID='{}'. Attempted logging new value '{value}'.",
                    row.key
                )));
            }
            Some(_) => {}
            None => drop(known.insert(name.clone(), value.clone())),
        }
    }
    let values = to_json("parameters", &known)?;
    update_run(tx, row.run, run::ActiveModel { params: Set(values.clone()), ..Default::default() }).await?;
    // Comparisons and tables show the config of a task.
    update_task(tx, row.run, task::ActiveModel { config: Set(Some(values)), ..Default::default() }).await
}

async fn log_tags(
    tx: &DatabaseTransaction,
    row: &tracked_run::Model,
    batch: &TrackedBatch,
) -> Result<(), TrackingError> {
    if batch.tags.is_empty() && batch.removed_tags.is_empty() {
        return Ok(());
    }
    let mut tags: BTreeMap<String, String> = from_json("tags", &row.tags)?;
    for name in &batch.removed_tags {
        if tags.remove(name).is_none() {
            return Err(TrackingError::Absent(format!("No tag with name: {name} in run with id {}", row.key)));
        }
    }
    tags.extend(batch.tags.iter().cloned());
    let named = batch.tags.iter().any(|(name, _)| name == NAME_TAG);
    let own = run::ActiveModel {
        name: match tags.get(NAME_TAG) {
            Some(name) if named => Set(name.clone()),
            _ => sea_orm::NotSet,
        },
        note: Set(tags.get(NOTE_TAG).cloned().unwrap_or_default()),
        ..Default::default()
    };
    update_run(tx, row.run, own).await?;
    update_tracked(tx, row.run, tracked_run::ActiveModel { tags: Set(to_json("tags", &tags)?), ..Default::default() })
        .await
}

/// Adds datasets; a dataset that the run already has, by name and digest, is not changed.
async fn log_inputs(
    tx: &DatabaseTransaction,
    row: &tracked_run::Model,
    inputs: Vec<Value>,
) -> Result<(), TrackingError> {
    let mut known: Vec<Value> = from_json("inputs", &row.inputs)?;
    let identity = |input: &Value| (input["dataset"]["name"].clone(), input["dataset"]["digest"].clone());
    for input in inputs {
        if !known.iter().any(|known| identity(known) == identity(&input)) {
            known.push(input);
        }
    }
    update_tracked(tx, row.run, tracked_run::ActiveModel { inputs: Set(Value::Array(known)), ..Default::default() })
        .await
}
