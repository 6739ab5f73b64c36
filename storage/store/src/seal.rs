//! Moves the points of a finished attempt from the database to a Parquet segment.
//!
//! First, the file is written, flushed and renamed; then one transaction stores its name and deletes the points. A
//! crash between them leaves an unreferenced file, which the next sealing of the same attempt replaces.

use std::collections::BTreeMap;

use assay_metrics::{Point, Segment, SeriesSummary};
use assay_schema::{metric_point, segment};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, Set};
use serde_json::{Value, json};

use crate::failure_point::FailurePoint;
use crate::layout::Layout;
use crate::rows::{float_of_json, float_to_json, to_signed};
use crate::store::run_blocking;
use crate::{AttemptRef, Store, StoreError};

impl Store {
    /// Seals an attempt's points, unless it has none or is already sealed.
    pub(crate) async fn seal_attempt(&self, attempt: AttemptRef) -> Result<(), StoreError> {
        let failed = || StoreError::database("seal the metrics of an attempt");
        let key = (attempt.run.0, i64::from(attempt.ix.0), i64::from(attempt.epoch.0));
        let reader = self.database.reader();
        if segment::Entity::find_by_id(key).one(reader).await.map_err(failed())?.is_some() {
            return Ok(());
        }
        let tail = metric_point::Entity::find().filter(points_of(attempt)).order_by_asc(metric_point::Column::Seq);
        let rows = tail.all(reader).await.map_err(failed())?;
        let Some(last) = rows.last().map(|row| row.seq) else { return Ok(()) };

        let name = Layout::segment_name(attempt.run, attempt.ix, attempt.epoch);
        let (temporary, path) = (self.session()?.temporary(), self.layout.segment(&name));
        let points = rows.into_iter().map(to_point).collect();
        let sealed =
            run_blocking(move || assay_metrics::write_segment(points, &temporary, &path).map_err(metrics_error))
                .await?;
        self.trap.check_point(FailurePoint::SegmentWritten)?;

        let tx = self.database.begin_write().await?;
        let row = segment::ActiveModel {
            run: Set(key.0),
            ix: Set(key.1),
            epoch: Set(key.2),
            path: Set(name),
            hash: Set(sealed.hash.clone()),
            points: Set(to_signed(sealed.points)),
            series: Set(series_to_json(&sealed)),
        };
        segment::Entity::insert(row).exec_without_returning(&tx).await.map_err(failed())?;
        let written =
            metric_point::Entity::delete_many().filter(points_of(attempt)).filter(metric_point::Column::Seq.lte(last));
        written.exec(&tx).await.map_err(failed())?;
        tx.commit().await.map_err(failed())
    }
}

/// The condition that selects the rows of `metric_points` of an attempt.
pub(crate) fn points_of(attempt: AttemptRef) -> Condition {
    Condition::all()
        .add(metric_point::Column::Run.eq(attempt.run.0))
        .add(metric_point::Column::Ix.eq(i64::from(attempt.ix.0)))
        .add(metric_point::Column::Epoch.eq(i64::from(attempt.epoch.0)))
}

/// Converts a row to a point.
pub(crate) fn to_point(row: metric_point::Model) -> Point {
    Point {
        seq: row.seq.cast_unsigned(),
        name: row.name,
        step: row.step.cast_unsigned(),
        value: f64::from_bits(row.bits.cast_unsigned()),
        time: row.at,
    }
}

pub(crate) fn metrics_error(error: assay_metrics::MetricsError) -> StoreError {
    use assay_metrics::MetricsError as E;
    match error {
        E::Io { action, path, source } => StoreError::io(&format!("{action} the metric segment"), &path)(source),
        E::Damaged { .. } | E::Parquet { .. } => StoreError::damaged(error.to_string()),
    }
}

fn series_to_json(segment: &Segment) -> Value {
    let one = |(name, summary): (&String, &SeriesSummary)| {
        (name.clone(), json!({"points": summary.points, "last": float_to_json(summary.last)}))
    };
    Value::Object(segment.series.iter().map(one).collect())
}

/// The last value of each series of a segment, from its row.
pub(crate) fn last_values(series: &Value) -> Result<BTreeMap<String, f64>, StoreError> {
    let broken = || StoreError::damaged(format!("the store has a segment that claims to hold `{series}`"));
    let object = series.as_object().ok_or_else(broken)?;
    let one = |(name, summary): (&String, &Value)| {
        let last = summary.get("last").and_then(float_of_json).ok_or_else(broken)?;
        Ok((name.clone(), last))
    };
    object.iter().map(one).collect()
}
