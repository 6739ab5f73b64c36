//! Curves from segments and from the database. An attempt has points in both if some were reported after its end.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{Epoch, RunId, TaskIx};
use assay_metrics::{Curve, Point, thin_curve};
use assay_schema::{attempt, metric_point, segment, task};
use sea_orm::{
    ColumnTrait, DatabaseTransaction, DbBackend, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder,
    QuerySelect, Statement,
};

use crate::seal::{last_values, metrics_error, points_of, to_point};
use crate::store::run_blocking;
use crate::{AttemptRef, Series, SeriesView, Store, StoreError, rows};

/// The last point in the database of each series of each attempt of a run.
const LAST_POINTS: &str = "select p.ix as ix, p.epoch as epoch, p.name as name, p.bits as bits from metric_points p \
     join (select ix, epoch, name, max(seq) as seq from metric_points where run = ? group by ix, epoch, name) l \
     on p.ix = l.ix and p.epoch = l.epoch and p.seq = l.seq where p.run = ?";

/// A row of [`LAST_POINTS`].
#[derive(Debug, FromQueryResult)]
struct LastPoint {
    ix: i64,
    epoch: i64,
    name: String,
    bits: i64,
}

impl Store {
    /// The named curves of a task, or all of them if none is named. If `max_points` is given, each is reduced to it such
    /// that spikes stay visible.
    ///
    /// They are the curves of the latest attempt, unless `epoch` names another one; for a cached task, those of the
    /// attempt that did the work.
    ///
    /// # Errors
    /// If the store cannot be read, or a segment is damaged.
    pub async fn series(
        &self,
        run: RunId,
        task: TaskIx,
        epoch: Option<Epoch>,
        names: &[String],
        max_points: Option<usize>,
    ) -> Result<SeriesView, StoreError> {
        let tx = self.database.snapshot().await?;
        let Some(attempt) = find_attempt(&tx, run, task, epoch).await? else {
            return Ok(SeriesView { attempt: None, series: Vec::new() });
        };
        let key = (attempt.run.0, i64::from(attempt.ix.0), i64::from(attempt.epoch.0));
        let sealed = segment::Entity::find_by_id(key).one(&tx).await.map_err(query_error)?;
        let mut tail = metric_point::Entity::find().filter(points_of(attempt)).order_by_asc(metric_point::Column::Seq);
        if !names.is_empty() {
            tail = tail.filter(metric_point::Column::Name.is_in(names.iter().map(String::as_str)));
        }
        let tail: Vec<Point> = tail.all(&tx).await.map_err(query_error)?.into_iter().map(to_point).collect();
        drop(tx);

        let file = sealed.map(|row| (self.layout.segment(&row.path), row.hash));
        let names = names.to_vec();
        let series = run_blocking(move || {
            let sealed = match file {
                Some((path, hash)) => assay_metrics::read_segment(&path, &hash, &names).map_err(metrics_error)?,
                None => Vec::new(),
            };
            Ok(merge_curves(sealed, tail).into_values().map(|curve| series_of(curve, max_points)).collect())
        })
        .await?;
        Ok(SeriesView { attempt: Some(attempt), series })
    }

    /// The names of all metrics that tasks of a run have reported, in order.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn metric_names(&self, run: RunId) -> Result<Vec<String>, StoreError> {
        let last = self.last_metrics(run).await?;
        let names: BTreeSet<String> = last.into_values().flat_map(BTreeMap::into_keys).collect();
        Ok(names.into_iter().collect())
    }

    /// The last value of each metric of each task of a run: of its outcome if it is done, otherwise of its latest
    /// attempt. Tasks without metrics are omitted.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn last_metrics(&self, run: RunId) -> Result<BTreeMap<TaskIx, BTreeMap<String, f64>>, StoreError> {
        let tx = self.database.snapshot().await?;
        let latest = latest_attempts(&tx, run).await.map_err(query_error)?;
        let mut last: BTreeMap<TaskIx, BTreeMap<String, f64>> = BTreeMap::new();
        let segments =
            segment::Entity::find().filter(segment::Column::Run.eq(run.0)).all(&tx).await.map_err(query_error)?;
        for row in segments.into_iter().filter(|row| latest.get(&row.ix) == Some(&row.epoch)) {
            last.insert(rows::task_ix(row.ix)?, last_values(&row.series)?);
        }
        for row in last_points(&tx, run).await.map_err(query_error)? {
            if latest.get(&row.ix) == Some(&row.epoch) {
                let value = f64::from_bits(row.bits.cast_unsigned());
                last.entry(rows::task_ix(row.ix)?).or_default().insert(row.name, value);
            }
        }
        let done = task::Entity::find().filter(task::Column::Run.eq(run.0)).filter(task::Column::Metrics.is_not_null());
        for row in done.all(&tx).await.map_err(query_error)? {
            last.insert(rows::task_ix(row.ix)?, rows::floats_of_json(row.metrics.as_ref())?);
        }
        last.retain(|_, metrics| !metrics.is_empty());
        Ok(last)
    }
}

fn query_error(error: DbErr) -> StoreError {
    StoreError::database("read the metrics")(error)
}

/// The attempt whose curves are requested.
async fn find_attempt(
    tx: &DatabaseTransaction,
    run: RunId,
    task: TaskIx,
    epoch: Option<Epoch>,
) -> Result<Option<AttemptRef>, StoreError> {
    if let Some(epoch) = epoch {
        return Ok(Some(AttemptRef { run, ix: task, epoch }));
    }
    let ix = i64::from(task.0);
    let row = task::Entity::find_by_id((run.0, ix)).one(tx).await.map_err(query_error)?;
    if let Some(source) = row.as_ref().map(rows::source_attempt).transpose()?.flatten() {
        return Ok(Some(source));
    }
    let latest = attempt::Entity::find()
        .filter(attempt::Column::Run.eq(run.0))
        .filter(attempt::Column::Ix.eq(ix))
        .order_by_desc(attempt::Column::Epoch)
        .one(tx)
        .await
        .map_err(query_error)?;
    latest.map(|row| rows::attempt_ref(row.run, row.ix, row.epoch)).transpose()
}

/// The number of the latest attempt of each task.
async fn latest_attempts(tx: &DatabaseTransaction, run: RunId) -> Result<BTreeMap<i64, i64>, DbErr> {
    let found: Vec<(i64, i64)> = attempt::Entity::find()
        .select_only()
        .column(attempt::Column::Ix)
        .column_as(attempt::Column::Epoch.max(), "latest")
        .filter(attempt::Column::Run.eq(run.0))
        .group_by(attempt::Column::Ix)
        .into_tuple()
        .all(tx)
        .await?;
    Ok(found.into_iter().collect())
}

async fn last_points(tx: &DatabaseTransaction, run: RunId) -> Result<Vec<LastPoint>, DbErr> {
    let values = [run.0.into(), run.0.into()];
    LastPoint::find_by_statement(Statement::from_sql_and_values(DbBackend::Sqlite, LAST_POINTS, values)).all(tx).await
}

/// Appends the points in the database to the sealed curves. No point is in both.
fn merge_curves(sealed: Vec<Curve>, tail: Vec<Point>) -> BTreeMap<String, Curve> {
    let mut curves: BTreeMap<String, Curve> = sealed.into_iter().map(|curve| (curve.name.clone(), curve)).collect();
    for point in tail {
        let curve =
            curves.entry(point.name).or_insert_with_key(|name| Curve { name: name.clone(), ..Curve::default() });
        curve.steps.push(point.step);
        curve.values.push(point.value);
    }
    curves
}

fn series_of(mut curve: Curve, max_points: Option<usize>) -> Series {
    let total = curve.values.len() as u64;
    if let Some(max_points) = max_points {
        thin_curve(&mut curve, max_points);
    }
    Series { name: curve.name, steps: curve.steps, values: curve.values, total }
}
