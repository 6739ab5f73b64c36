//! All points of a run: of one metric for clients, of any task for exports.

use assay_core::{Epoch, RunId, TaskIx};
use assay_schema::{metric_point, segment, tracked_run};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};

use super::TrackedMetric;
use super::error::database;
use super::runs::attempt_of;
use crate::seal::{metrics_error, points_of, to_point};
use crate::store::run_blocking;
use crate::{AttemptRef, PointView, Store, StoreError};

impl Store {
    /// All points of one attempt, in the order in which they were reported.
    ///
    /// # Errors
    /// If the store cannot be read, or the segment of the attempt is damaged.
    pub async fn points(&self, run: RunId, task: TaskIx, epoch: Epoch) -> Result<Vec<PointView>, StoreError> {
        self.points_of_attempt(AttemptRef { run, ix: task, epoch }).await
    }

    async fn points_of_attempt(&self, attempt: AttemptRef) -> Result<Vec<PointView>, StoreError> {
        let tx = self.database.snapshot().await?;
        let key = (attempt.run.0, i64::from(attempt.ix.0), i64::from(attempt.epoch.0));
        let sealed = segment::Entity::find_by_id(key).one(&tx).await.map_err(database)?;
        let tail = metric_point::Entity::find().filter(points_of(attempt)).order_by_asc(metric_point::Column::Seq);
        let tail = tail.all(&tx).await.map_err(database)?;
        drop(tx);
        let mut points = Vec::new();
        if let Some(row) = sealed {
            let path = self.layout.segment(&row.path);
            let read = move || assay_metrics::read_points(&path, &row.hash).map_err(metrics_error);
            points = run_blocking(read).await?;
        }
        points.extend(tail.into_iter().map(to_point));
        let view = |point: assay_metrics::Point| PointView {
            name: point.name,
            step: point.step,
            value: point.value,
            time: point.time,
        };
        Ok(points.into_iter().map(view).collect())
    }

    /// The points of a metric of a run that a client logs, in the order of time, step and value; none if the run does not exist.
    ///
    /// # Errors
    /// If the store cannot be read, or the segment of the run is damaged.
    pub async fn tracked_history(&self, key: &str, name: &str) -> Result<Vec<TrackedMetric>, StoreError> {
        let found = tracked_run::Entity::find().filter(tracked_run::Column::Key.eq(key));
        let Some(row) = found.one(self.database.reader()).await.map_err(database)? else { return Ok(Vec::new()) };
        let points = self.points_of_attempt(attempt_of(row.run)).await?;
        let own = points.into_iter().filter(|point| point.name == name).map(|point| TrackedMetric {
            name: point.name,
            value: point.value,
            at: point.time.unwrap_or(0),
            step: point.step.cast_signed(),
        });
        let mut own: Vec<TrackedMetric> = own.collect();
        own.sort_by(|a, b| (a.at, a.step).cmp(&(b.at, b.step)).then(a.value.total_cmp(&b.value)));
        Ok(own)
    }
}
