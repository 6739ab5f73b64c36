//! Applies batches of records: one function for each kind of record, one transaction per batch.

use std::collections::BTreeMap;

use assay_core::{Epoch, RunId, TaskIx};
use assay_protocol::{Failure, MetricPoint};
use assay_schema::{attempt, cache, claim, journal, log, metric_point, report, run, segment, task};
use assay_server::{CachedResult, LogLine, Record, RunStateName, TaskStateName};
use assay_spec::Outputs;
use sea_orm::sea_query::{Expr, Func, OnConflict, SimpleExpr};
use sea_orm::{
    ColumnTrait, DatabaseTransaction, DbErr, EntityTrait, ExprTrait, NotSet, QueryFilter, QuerySelect, Set, UpdateMany,
};
use serde_json::Value;

use crate::begin::insert_tasks;
use crate::error::StoreErrorKind;
use crate::failure_point::FailurePoint;
use crate::rows::{floats_to_json, now_millis, to_json, to_signed};
use crate::{AttemptRef, Store, StoreError};

/// Rows per statement: none has more than 8 values, and SQLite accepts 32766 in a statement.
const ROWS: usize = 4000;

impl Store {
    /// Applies a batch in one transaction, and then seals the points of the attempts that ended in it.
    ///
    /// # Errors
    /// If the database refuses it, or it refers to a run, task or attempt that does not exist; nothing of the batch is
    /// then applied.
    pub async fn append_records(&self, run: RunId, batch: Vec<Record>) -> Result<(), StoreError> {
        let ended: Vec<AttemptRef> = batch.iter().filter_map(|record| ended_in(run, record)).collect();
        let tx = self.database.begin_write().await?;
        // Journal entries do not depend on other rows, so they are inserted in one statement.
        let (mut entries, mut others) = (Vec::new(), Vec::new());
        for record in batch {
            match record {
                Record::Journal { seq, entry } => entries.push((seq, entry)),
                other => others.push(other),
            }
        }
        let batch = Batch { tx: &tx, run: run.0 };
        batch.insert_journal(entries).await?;
        let mut others = others.into_iter().peekable();
        while let Some(record) = others.next() {
            // Thousands of tasks may be cancelled at once: tasks with the same new state and time share a statement.
            if let Record::State { task, state, detail, at } = record {
                let alike = |next: &Record| matches!(next, Record::State { state: s, detail: d, at: a, .. } if *s == state && *d == detail && *a == at);
                let mut tasks = vec![task];
                while let Some(Record::State { task, .. }) = others.next_if(alike) {
                    tasks.push(task);
                }
                batch.set_states(&tasks, state, detail, at).await?;
            } else {
                batch.apply_record(record).await?;
            }
        }
        self.trap.check_point(FailurePoint::BatchNotCommitted)?;
        tx.commit().await.map_err(StoreError::database("write events"))?;
        for attempt in ended {
            // The batch is committed, so an error here must not be reported for the batch. Points that are not sealed
            // are read from the database, and `recover` seals them later.
            let _ = self.seal_after_batch(attempt).await;
        }
        Ok(())
    }

    async fn seal_after_batch(&self, attempt: AttemptRef) -> Result<(), StoreError> {
        self.trap.check_point(FailurePoint::BatchCommitted)?;
        self.seal_attempt(attempt).await
    }
}

fn ended_in(run: RunId, record: &Record) -> Option<AttemptRef> {
    match *record {
        Record::AttemptEnded { task, epoch, .. } => Some(AttemptRef { run, ix: task, epoch }),
        _ => None,
    }
}

fn write_error(error: DbErr) -> StoreError {
    StoreError::database("write events")(error)
}

/// A transaction and its run.
struct Batch<'a> {
    tx: &'a DatabaseTransaction,
    run: i64,
}

impl Batch<'_> {
    async fn apply_record(&self, record: Record) -> Result<(), StoreError> {
        match record {
            Record::Journal { seq, entry } => self.insert_journal(vec![(seq, entry)]).await,
            Record::TasksAdded { first, tasks } => insert_tasks(self.tx, self.run, first.0 as usize, tasks).await,
            Record::Resolved { task, config, key } => self.set_resolution(task, config, key).await,
            Record::State { task, state, detail, at } => self.set_states(&[task], state, detail, at).await,
            Record::AttemptBegan { task, epoch, worker, backend, at } => {
                self.attempt_began(task, epoch, worker, backend, at).await
            }
            Record::AttemptAdmitted { task, epoch, at } => self.attempt_admitted(task, epoch, at).await,
            Record::AttemptGreeted { task, epoch, executor } => self.set_executor(task, epoch, executor).await,
            Record::AttemptEnded { task, epoch, failure, at } => self.attempt_ended(task, epoch, failure, at).await,
            Record::Reported { task, epoch, seq } => self.set_reported(task, epoch, seq).await,
            Record::Metrics { task, epoch, points } => self.insert_points(task, epoch, points).await,
            Record::Logs { task, epoch, lines } => self.insert_lines(task, epoch, lines).await,
            Record::Succeeded { task, epoch, outputs, metrics, at } => {
                self.set_success(task, epoch, &outputs, &metrics, at).await
            }
            Record::Cached { task, result, at } => self.set_cached(task, &result, at).await,
            Record::Ended { state, at } => self.end_run(state, at).await,
        }
    }

    async fn insert_journal(&self, entries: Vec<(u64, String)>) -> Result<(), StoreError> {
        let row =
            |(seq, entry)| journal::ActiveModel { run: Set(self.run), seq: Set(to_signed(seq)), entry: Set(entry) };
        let mut rows = entries.into_iter().map(row).peekable();
        while rows.peek().is_some() {
            let chunk = rows.by_ref().take(ROWS);
            journal::Entity::insert_many(chunk).exec_without_returning(self.tx).await.map_err(write_error)?;
        }
        Ok(())
    }

    async fn set_resolution(&self, ix: TaskIx, config: Value, key: String) -> Result<(), StoreError> {
        let row = task::ActiveModel { config: Set(Some(config)), cache_key: Set(Some(key)), ..Default::default() };
        self.update_task(ix, task::Entity::update_many().set(row)).await
    }

    async fn set_states(
        &self,
        tasks: &[TaskIx],
        state: TaskStateName,
        detail: String,
        at: u64,
    ) -> Result<(), StoreError> {
        let row = task::ActiveModel {
            state: Set(state.name().to_owned()),
            detail: Set(detail),
            ended_at: if state.is_final() { Set(Some(to_signed(at))) } else { NotSet },
            ..Default::default()
        };
        for chunk in tasks.chunks(ROWS) {
            let places = chunk.iter().map(|ix| i64::from(ix.0));
            let update = task::Entity::update_many().set(row.clone()).filter(task::Column::Run.eq(self.run));
            let changed = update.filter(task::Column::Ix.is_in(places)).exec(self.tx).await.map_err(write_error)?;
            let missing = changed.rows_affected < chunk.len() as u64;
            require_row(u64::from(!missing), || format!("task {} of run {}", chunk[0], self.run))?;
        }
        if state.is_final() { self.release_claims(tasks).await } else { Ok(()) }
    }

    /// Removes the claims of tasks that no longer do their work, or have done it.
    async fn release_claims(&self, tasks: &[TaskIx]) -> Result<(), StoreError> {
        for chunk in tasks.chunks(ROWS) {
            let own = claim::Entity::delete_many().filter(claim::Column::Run.eq(self.run));
            let places = chunk.iter().map(|ix| i64::from(ix.0));
            own.filter(claim::Column::Ix.is_in(places)).exec(self.tx).await.map_err(write_error)?;
        }
        Ok(())
    }

    async fn attempt_began(
        &self,
        ix: TaskIx,
        epoch: Epoch,
        worker: String,
        backend: String,
        at: u64,
    ) -> Result<(), StoreError> {
        let row = attempt_row((self.run, i64::from(ix.0), i64::from(epoch.0)), worker, backend, to_signed(at));
        attempt::Entity::insert(row).exec_without_returning(self.tx).await.map_err(write_error)?;
        let began: SimpleExpr = Func::coalesce([Expr::col(task::Column::StartedAt), Expr::val(to_signed(at))]).into();
        let update = task::Entity::update_many()
            .col_expr(task::Column::StartedAt, began)
            .col_expr(task::Column::Attempts, Expr::col(task::Column::Attempts).add(1));
        self.update_task(ix, update).await
    }

    async fn attempt_admitted(&self, ix: TaskIx, epoch: Epoch, at: u64) -> Result<(), StoreError> {
        let row = attempt::ActiveModel { began_at: Set(to_signed(at)), ..Default::default() };
        self.update_attempt(ix, epoch, row).await?;
        if epoch > Epoch(1) {
            return Ok(());
        }
        let row = task::ActiveModel { started_at: Set(Some(to_signed(at))), ..Default::default() };
        self.update_task(ix, task::Entity::update_many().set(row)).await
    }

    async fn set_executor(&self, ix: TaskIx, epoch: Epoch, executor: Value) -> Result<(), StoreError> {
        self.update_attempt(ix, epoch, attempt::ActiveModel { executor: Set(Some(executor)), ..Default::default() })
            .await
    }

    async fn attempt_ended(
        &self,
        ix: TaskIx,
        epoch: Epoch,
        failure: Option<Failure>,
        at: u64,
    ) -> Result<(), StoreError> {
        let (class, message, hint) = match failure {
            None => (None, None, None),
            Some(Failure { class, message, hint }) => (Some(class.name().to_owned()), Some(message), hint),
        };
        let row = attempt::ActiveModel {
            failure_class: Set(class),
            failure_message: Set(message),
            failure_hint: Set(hint),
            ended_at: Set(Some(to_signed(at))),
            ..Default::default()
        };
        self.update_attempt(ix, epoch, row).await
    }

    async fn set_reported(&self, ix: TaskIx, epoch: Epoch, seq: u64) -> Result<(), StoreError> {
        let row = report::ActiveModel {
            run: Set(self.run),
            ix: Set(i64::from(ix.0)),
            epoch: Set(i64::from(epoch.0)),
            seq: Set(to_signed(seq)),
        };
        let key = [report::Column::Run, report::Column::Ix, report::Column::Epoch];
        let newest = OnConflict::columns(key).update_column(report::Column::Seq).to_owned();
        let insert = report::Entity::insert(row).on_conflict(newest);
        insert.exec_without_returning(self.tx).await.map_err(write_error)?;
        Ok(())
    }

    async fn insert_points(&self, ix: TaskIx, epoch: Epoch, points: Vec<MetricPoint>) -> Result<(), StoreError> {
        let now = to_signed(now_millis());
        let points: Vec<_> =
            points.into_iter().map(|point| (point.name, point.step.cast_signed(), point.value, now)).collect();
        insert_points(self.tx, (self.run, i64::from(ix.0), i64::from(epoch.0)), &points).await.map_err(write_error)
    }

    async fn insert_lines(&self, ix: TaskIx, epoch: Epoch, lines: Vec<LogLine>) -> Result<(), StoreError> {
        let task = i64::from(ix.0);
        let last: Option<Option<i64>> = log::Entity::find()
            .select_only()
            .column_as(log::Column::Seq.max(), "last")
            .filter(log::Column::Run.eq(self.run))
            .filter(log::Column::Ix.eq(task))
            .into_tuple()
            .one(self.tx)
            .await
            .map_err(write_error)?;
        let before = last.flatten().unwrap_or(0);
        for (part, chunk) in lines.chunks(ROWS).enumerate() {
            let row = |(nth, line): (usize, &LogLine)| log::ActiveModel {
                run: Set(self.run),
                ix: Set(task),
                seq: Set(before + 1 + to_signed((part * ROWS + nth) as u64)),
                epoch: Set(i64::from(epoch.0)),
                at: Set(to_signed(line.at)),
                level: Set(level_name(line.level).to_owned()),
                text: Set(line.text.clone()),
            };
            let rows = chunk.iter().enumerate().map(row);
            log::Entity::insert_many(rows).exec_without_returning(self.tx).await.map_err(write_error)?;
        }
        Ok(())
    }

    async fn set_success(
        &self,
        ix: TaskIx,
        epoch: Epoch,
        outputs: &Outputs,
        metrics: &BTreeMap<String, f64>,
        at: u64,
    ) -> Result<(), StoreError> {
        let row = task::ActiveModel {
            state: Set(TaskStateName::Succeeded.name().to_owned()),
            detail: Set(String::new()),
            outputs: Set(Some(to_json("outputs", outputs)?)),
            metrics: Set(Some(floats_to_json(metrics))),
            ended_at: Set(Some(to_signed(at))),
            ..Default::default()
        };
        self.update_task(ix, task::Entity::update_many().set(row)).await?;
        self.remember_key(ix, epoch).await.map_err(write_error)
    }

    /// From now on, the cache returns this attempt for the key.
    async fn remember_key(&self, ix: TaskIx, epoch: Epoch) -> Result<(), DbErr> {
        let ix = i64::from(ix.0);
        let row = task::Entity::find_by_id((self.run, ix)).one(self.tx).await?;
        let Some(key) = row.and_then(|row| row.cache_key) else { return Ok(()) };
        let row = cache::ActiveModel { key: Set(key), run: Set(self.run), ix: Set(ix), epoch: Set(i64::from(epoch.0)) };
        let newest = OnConflict::column(cache::Column::Key)
            .update_columns([cache::Column::Run, cache::Column::Ix, cache::Column::Epoch])
            .to_owned();
        cache::Entity::insert(row).on_conflict(newest).exec_without_returning(self.tx).await?;
        Ok(())
    }

    async fn set_cached(&self, ix: TaskIx, result: &CachedResult, at: u64) -> Result<(), StoreError> {
        let CachedResult { run, task, epoch, outputs, metrics } = result;
        let row = task::ActiveModel {
            state: Set(TaskStateName::Cached.name().to_owned()),
            detail: Set(String::new()),
            outputs: Set(Some(to_json("outputs", outputs)?)),
            metrics: Set(Some(floats_to_json(metrics))),
            source_run: Set(Some(run.0)),
            source_ix: Set(Some(i64::from(task.0))),
            source_epoch: Set(Some(i64::from(epoch.0))),
            ended_at: Set(Some(to_signed(at))),
            ..Default::default()
        };
        self.update_task(ix, task::Entity::update_many().set(row)).await
    }

    async fn end_run(&self, state: RunStateName, at: u64) -> Result<(), StoreError> {
        let row = run::ActiveModel {
            state: Set(state.name().to_owned()),
            ended_at: Set(Some(to_signed(at))),
            ..Default::default()
        };
        let update = run::Entity::update_many().set(row).filter(run::Column::Id.eq(self.run));
        let changed = update.exec(self.tx).await.map_err(write_error)?;
        require_row(changed.rows_affected, || format!("run {}", self.run))
    }

    async fn update_task(&self, ix: TaskIx, update: UpdateMany<task::Entity>) -> Result<(), StoreError> {
        let this = update.filter(task::Column::Run.eq(self.run)).filter(task::Column::Ix.eq(i64::from(ix.0)));
        let changed = this.exec(self.tx).await.map_err(write_error)?;
        require_row(changed.rows_affected, || format!("task {ix} of run {}", self.run))
    }

    async fn update_attempt(&self, ix: TaskIx, epoch: Epoch, row: attempt::ActiveModel) -> Result<(), StoreError> {
        let this = attempt::Entity::update_many()
            .set(row)
            .filter(attempt::Column::Run.eq(self.run))
            .filter(attempt::Column::Ix.eq(i64::from(ix.0)))
            .filter(attempt::Column::Epoch.eq(i64::from(epoch.0)));
        let changed = this.exec(self.tx).await.map_err(write_error)?;
        require_row(changed.rows_affected, || format!("attempt {epoch} of task {ix} of run {}", self.run))
    }
}

/// The row of an attempt in progress.
pub(crate) fn attempt_row(attempt: (i64, i64, i64), worker: String, backend: String, at: i64) -> attempt::ActiveModel {
    let (run, ix, epoch) = attempt;
    attempt::ActiveModel {
        run: Set(run),
        ix: Set(ix),
        epoch: Set(epoch),
        worker: Set(worker),
        backend: Set(backend),
        executor: Set(None),
        failure_class: Set(None),
        failure_message: Set(None),
        failure_hint: Set(None),
        began_at: Set(at),
        ended_at: Set(None),
    }
}

/// Inserts points of an attempt: name, step, value and time.
pub(crate) async fn insert_points(
    tx: &DatabaseTransaction,
    attempt: (i64, i64, i64),
    points: &[(String, i64, f64, i64)],
) -> Result<(), DbErr> {
    let (run, ix, epoch) = attempt;
    let before = points_so_far(tx, attempt).await?;
    for (part, chunk) in points.chunks(ROWS).enumerate() {
        let row = |(nth, (name, step, value, at)): (usize, &(String, i64, f64, i64))| metric_point::ActiveModel {
            run: Set(run),
            ix: Set(ix),
            epoch: Set(epoch),
            seq: Set(before + 1 + to_signed((part * ROWS + nth) as u64)),
            name: Set(name.clone()),
            step: Set(*step),
            bits: Set(value.to_bits().cast_signed()),
            at: Set(Some(*at)),
        };
        let rows = chunk.iter().enumerate().map(row);
        metric_point::Entity::insert_many(rows).exec_without_returning(tx).await?;
    }
    Ok(())
}

/// The last number of a point of an attempt, in the database or, if that was sealed, in its segment.
async fn points_so_far(tx: &DatabaseTransaction, attempt: (i64, i64, i64)) -> Result<i64, DbErr> {
    let (run, ix, epoch) = attempt;
    let tail: Option<Option<i64>> = metric_point::Entity::find()
        .select_only()
        .column_as(metric_point::Column::Seq.max(), "last")
        .filter(metric_point::Column::Run.eq(run))
        .filter(metric_point::Column::Ix.eq(ix))
        .filter(metric_point::Column::Epoch.eq(epoch))
        .into_tuple()
        .one(tx)
        .await?;
    if let Some(last) = tail.flatten() {
        return Ok(last);
    }
    let sealed = segment::Entity::find_by_id(attempt).one(tx).await?;
    Ok(sealed.map_or(0, |segment| segment.points))
}

fn require_row(rows: u64, what: impl Fn() -> String) -> Result<(), StoreError> {
    if rows > 0 {
        return Ok(());
    }
    Err(StoreError::new(StoreErrorKind::Unknown, format!("there is no {} in the store", what()), ""))
}

fn level_name(level: assay_protocol::LogLevel) -> &'static str {
    use assay_protocol::LogLevel as L;
    match level {
        L::Info => "info",
        L::Warn => "warn",
        L::Error => "error",
        L::Stderr => "stderr",
    }
}
