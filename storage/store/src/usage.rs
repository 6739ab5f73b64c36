//! What workers did over a span of time, and the executors that they started.

use std::collections::BTreeMap;

use assay_core::{Epoch, RunId, TaskIx};
use assay_server::RunStateName;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, FromQueryResult, Statement};
use serde::Serialize;
use serde_json::Value;

use crate::{Store, StoreError, rows};

/// The attempts of runs that ended after a time, or have not ended. Runs are selected first: only their key is an index of attempts.
const ATTEMPTS: &str = "select a.run as run, a.ix as ix, a.epoch as epoch, a.worker as worker, a.backend as backend, \
     a.began_at as began_at, a.ended_at as ended_at, t.job as job, t.address as address, r.state as run_state \
     from runs r join attempts a on a.run = r.id join tasks t on t.run = a.run and t.ix = a.ix \
     where (r.ended_at is null or r.ended_at >= ?) and (a.ended_at is null or a.ended_at >= ?) \
     order by a.began_at desc limit ?";

/// The latest greeting of each backend on each worker, among the latest runs.
const EXECUTORS: &str = "select worker, backend, executor, max(began_at) as began_at from attempts \
     where executor is not null and run > (select coalesce(max(id), 0) from runs) - ? \
     group by worker, backend order by worker, backend";

/// The latest runs with a task that made a file.
const ARTIFACT_RUNS: &str = "select id from runs r where id < ? and exists (select 1 from tasks t where t.run = r.id \
     and t.state = 'succeeded' and instr(t.outputs, '\"$artifact\"') > 0) order by id desc limit ?";

/// An attempt, as far as the use of its worker goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkerAttempt {
    /// The run.
    pub run: RunId,
    /// The task.
    pub ix: TaskIx,
    /// The attempt.
    pub epoch: Epoch,
    /// The task's job.
    pub job: String,
    /// The task's address.
    pub address: String,
    /// The worker's name.
    pub worker: String,
    /// The backend.
    pub backend: String,
    /// When it was sent to the worker, in milliseconds since 1970.
    pub began_at: u64,
    /// When it ended; `None` while it is in progress.
    pub ended_at: Option<u64>,
}

/// An executor that a worker started.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerExecutor {
    /// The worker's name.
    pub worker: String,
    /// The backend.
    pub backend: String,
    /// Its latest greeting: its version and device.
    pub greeting: Value,
    /// When the attempt of that greeting was sent to the worker, in milliseconds since 1970.
    pub used_at: u64,
}

#[derive(Debug, FromQueryResult)]
struct AttemptRow {
    run: i64,
    ix: i64,
    epoch: i64,
    worker: String,
    backend: String,
    began_at: i64,
    ended_at: Option<i64>,
    job: String,
    address: String,
    run_state: String,
}

#[derive(Debug, FromQueryResult)]
struct ExecutorRow {
    worker: String,
    backend: String,
    executor: Value,
    began_at: i64,
}

impl Store {
    /// At most `limit` attempts that were in progress at `since` or began later, the latest first. Attempts whose end nobody recorded,
    /// because the process of their run died, are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn attempts_since(&self, since: u64, limit: u64) -> Result<Vec<WorkerAttempt>, StoreError> {
        let (since, limit) = (rows::to_signed(since), rows::to_signed(limit));
        let values = [since.into(), since.into(), limit.into()];
        let statement = Statement::from_sql_and_values(DbBackend::Sqlite, ATTEMPTS, values);
        let found = AttemptRow::find_by_statement(statement).all(self.database.reader()).await.map_err(read_error)?;
        let mut alive: BTreeMap<i64, bool> = BTreeMap::new();
        let mut attempts = Vec::with_capacity(found.len());
        for row in found {
            if row.ended_at.is_none() {
                let is_alive = match alive.get(&row.run) {
                    Some(known) => *known,
                    None => {
                        let running = row.run_state == RunStateName::Running.name();
                        running && self.process_of(RunId(row.run)).await?.is_some()
                    }
                };
                alive.insert(row.run, is_alive);
                if !is_alive {
                    continue;
                }
            }
            attempts.push(WorkerAttempt {
                run: RunId(row.run),
                ix: rows::task_ix(row.ix)?,
                epoch: rows::to_epoch(row.epoch)?,
                job: row.job,
                address: row.address,
                worker: row.worker,
                backend: row.backend,
                began_at: rows::to_unsigned(row.began_at),
                ended_at: row.ended_at.map(rows::to_unsigned),
            });
        }
        Ok(attempts)
    }

    /// The latest greeting of each backend on each worker, among the latest `runs` runs.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn executors(&self, runs: u64) -> Result<Vec<WorkerExecutor>, StoreError> {
        let values = [rows::to_signed(runs).into()];
        let statement = Statement::from_sql_and_values(DbBackend::Sqlite, EXECUTORS, values);
        let found = ExecutorRow::find_by_statement(statement).all(self.database.reader()).await.map_err(read_error)?;
        let executor = |row: ExecutorRow| WorkerExecutor {
            worker: row.worker,
            backend: row.backend,
            greeting: row.executor,
            used_at: rows::to_unsigned(row.began_at),
        };
        Ok(found.into_iter().map(executor).collect())
    }
}

impl Store {
    /// At most `limit` runs before a number whose tasks made files, the latest first. Tasks from the cache made none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn runs_with_artifacts(&self, before: RunId, limit: u64) -> Result<Vec<RunId>, StoreError> {
        let values = [before.0.into(), rows::to_signed(limit).into()];
        let statement = Statement::from_sql_and_values(DbBackend::Sqlite, ARTIFACT_RUNS, values);
        let found = self.database.reader().query_all_raw(statement).await.map_err(read_error)?;
        found.iter().map(|row| row.try_get_by_index(0).map(RunId)).collect::<Result<_, _>>().map_err(read_error)
    }
}

fn read_error(error: DbErr) -> StoreError {
    StoreError::database("read the attempts")(error)
}
