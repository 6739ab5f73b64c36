//! Removes runs from the store.
//!
//! Tasks of other runs may have taken results of this run from the cache. Then its curves, its log and its cache entry
//! move to the first of those tasks, so that every number can still be traced.

use assay_core::{RunId, TaskIx};
use assay_schema::{
    attempt, cache, claim, journal, log, metric_point, report, run, segment, submission, task, tracked_metric,
    tracked_run,
};
use assay_server::RunStateName;
use sea_orm::{ColumnTrait, DatabaseTransaction, DbErr, EntityTrait, QueryFilter, QueryOrder, Set};

use crate::error::StoreErrorKind;
use crate::query::Removed;
use crate::session::is_alive;
use crate::store::run_blocking;
use crate::tracking::is_tracked;
use crate::{AttemptRef, Store, StoreError, rows};

impl Store {
    /// Removes a run with its tasks, attempts, logs, journal and metrics. Its artifacts are kept until
    /// [`Store::remove_garbage`].
    ///
    /// # Errors
    /// If the run does not exist, it is in progress, or the store cannot be written.
    pub async fn remove_run(&self, id: RunId) -> Result<Removed, StoreError> {
        let failed = || StoreError::database(format!("remove run {id}"));
        let tx = self.database.begin_write().await?;
        let found = run::Entity::find_by_id(id.0).one(&tx).await.map_err(failed())?;
        let Some(row) = found else {
            let message = format!("there is no run {id} in the store");
            return Err(StoreError::new(StoreErrorKind::Unknown, message, "`assay runs` lists them"));
        };
        if row.state == RunStateName::Running.name() && is_alive(&self.layout, &row.session)? {
            let message = format!("run {id} is in progress");
            let hint = match is_tracked(&row) {
                true => {
                    "its MLflow client has to end it; `MlflowClient().set_terminated(RUN_ID)` ends a run whose client is gone"
                }
                false => "stop it first, or wait until it is over",
            };
            return Err(StoreError::new(StoreErrorKind::Locked, message, hint));
        }
        let passed_on = pass_on(&tx, id.0).await?;
        let segments = segment::Entity::find().filter(segment::Column::Run.eq(id.0)).all(&tx).await.map_err(failed())?;
        delete_rows(&tx, id.0).await.map_err(failed())?;
        tx.commit().await.map_err(failed())?;
        let files: Vec<_> = segments.iter().map(|segment| self.layout.segment(&segment.path)).collect();
        run_blocking(move || {
            for path in files {
                // If this fails, the file is garbage without a row; `gc` finds it.
                let _ = std::fs::remove_file(&path);
                let _ = path.parent().map(std::fs::remove_dir);
            }
            Ok(())
        })
        .await?;
        Ok(Removed { run: id, name: row.name, passed_on })
    }
}

/// Moves attempts that other runs refer to into those runs; returns the new references.
async fn pass_on(tx: &DatabaseTransaction, id: i64) -> Result<Vec<AttemptRef>, StoreError> {
    let failed = || StoreError::database(format!("pass on the results of run {id}"));
    let citing = task::Entity::find()
        .filter(task::Column::SourceRun.eq(id))
        .filter(task::Column::Run.ne(id))
        .order_by_asc(task::Column::Run)
        .order_by_asc(task::Column::Ix);
    let mut passed_on: Vec<(AttemptRef, AttemptRef)> = Vec::new();
    for heir in citing.all(tx).await.map_err(failed())? {
        let Some(source) = rows::source_attempt(&heir)? else { continue };
        if passed_on.iter().any(|(from, _)| *from == source) {
            continue;
        }
        let to = AttemptRef { run: RunId(heir.run), ix: rows::task_ix(heir.ix)?, epoch: source.epoch };
        pass_attempt(tx, source, (to.run, to.ix)).await.map_err(failed())?;
        passed_on.push((source, to));
    }
    Ok(passed_on.into_iter().map(|(_, to)| to).collect())
}

/// Moves one attempt to another task, with everything that refers to it.
async fn pass_attempt(tx: &DatabaseTransaction, from: AttemptRef, to: (RunId, TaskIx)) -> Result<(), DbErr> {
    let (run, ix, epoch) = (from.run.0, i64::from(from.ix.0), i64::from(from.epoch.0));
    let (new_run, new_ix) = (to.0.0, i64::from(to.1.0));
    macro_rules! move_rows {
        ($($table:ident),+) => {$(
            let row = $table::ActiveModel { run: Set(new_run), ix: Set(new_ix), ..Default::default() };
            let moved = $table::Entity::update_many().set(row).filter($table::Column::Run.eq(run));
            let moved = moved.filter($table::Column::Ix.eq(ix)).filter($table::Column::Epoch.eq(epoch));
            moved.exec(tx).await?;
        )+};
    }
    move_rows!(attempt, log, metric_point, segment, cache);
    let row = task::ActiveModel { source_run: Set(Some(new_run)), source_ix: Set(Some(new_ix)), ..Default::default() };
    let citing = task::Entity::update_many().set(row).filter(task::Column::SourceRun.eq(run));
    let citing = citing.filter(task::Column::SourceIx.eq(ix)).filter(task::Column::SourceEpoch.eq(epoch));
    citing.exec(tx).await?;
    Ok(())
}

/// Deletes every row of a run, children before the run itself.
async fn delete_rows(tx: &DatabaseTransaction, id: i64) -> Result<(), DbErr> {
    macro_rules! delete_rows {
        ($($table:ident),+) => {$(
            $table::Entity::delete_many().filter($table::Column::Run.eq(id)).exec(tx).await?;
        )+};
    }
    delete_rows!(cache, claim, report, submission, tracked_metric, tracked_run);
    delete_rows!(segment, metric_point, log, journal, attempt, task);
    run::Entity::delete_by_id(id).exec(tx).await?;
    Ok(())
}
