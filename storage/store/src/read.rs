//! Runs, tasks, attempts, logs and journals, as views.

use std::collections::BTreeMap;

use assay_core::{RunId, TaskIx};
use assay_protocol::FailureClass;
use assay_schema::{attempt, journal, log, run, task};
use assay_server::{GitState, RunStateName, TaskStateName};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, EntityTrait, ExprTrait, QueryFilter,
    QueryOrder, QuerySelect, Statement,
};

use crate::filter::Present;
use crate::recover::{GONE, UNFINISHED, unfinished_detail};
use crate::session::{is_alive, process_of};
use crate::tracking::is_tracked;
use crate::{
    AttemptView, FailureView, JournalView, LogView, RunFilter, RunSummary, RunView, Store, StoreError, TaskKey,
    TaskView, rows,
};

impl Store {
    /// The runs, newest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn runs(&self, limit: u64, offset: u64) -> Result<Vec<RunSummary>, StoreError> {
        self.find_runs(&RunFilter::default(), limit, offset).await
    }

    /// The runs that match a filter, newest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn find_runs(&self, filter: &RunFilter, limit: u64, offset: u64) -> Result<Vec<RunSummary>, StoreError> {
        let tx = self.database.snapshot().await?;
        let page = run::Entity::find().order_by_desc(run::Column::Id);
        let page = match filter.is_empty() {
            true => page.limit(limit).offset(offset),
            false => page.filter(run::Column::Id.is_in(self.matching_runs(&tx, filter, limit, offset).await?)),
        };
        let found = page.all(&tx).await.map_err(query_error)?;
        let mut counts = state_counts(&tx, found.iter().map(|run| run.id).collect()).await?;
        let mut runs = Vec::with_capacity(found.len());
        for run in found {
            let dead = self.is_dead_row(&run).await?;
            runs.push(run_summary(&run, counts.remove(&run.id).unwrap_or_default(), dead)?);
        }
        Ok(runs)
    }

    /// The numbers of the runs that match a filter with conditions.
    async fn matching_runs(
        &self,
        tx: &DatabaseTransaction,
        filter: &RunFilter,
        limit: u64,
        offset: u64,
    ) -> Result<Vec<i64>, StoreError> {
        let mut dead = Vec::new();
        if filter.asks_for_states() {
            let running = run::Entity::find().filter(run::Column::State.eq(RunStateName::Running.name()));
            for row in running.all(tx).await.map_err(query_error)? {
                if self.is_dead_row(&row).await? {
                    dead.push(row.id);
                }
            }
        }
        let sql = filter.select(&Present { dead: &dead, now: rows::to_signed(rows::now_millis()) }, limit, offset);
        let statement = Statement::from_sql_and_values(DbBackend::Sqlite, sql.text, sql.values);
        let found = tx.query_all_raw(statement).await.map_err(query_error)?;
        found.iter().map(|row| row.try_get_by_index(0)).collect::<Result<_, _>>().map_err(query_error)
    }

    /// The parameters of these runs, after overrides.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn run_params(&self, runs: &[RunId]) -> Result<BTreeMap<i64, serde_json::Value>, StoreError> {
        let found: Vec<(i64, serde_json::Value)> = run::Entity::find()
            .select_only()
            .column(run::Column::Id)
            .column(run::Column::Params)
            .filter(run::Column::Id.is_in(runs.iter().map(|run| run.0)))
            .into_tuple()
            .all(self.database.reader())
            .await
            .map_err(query_error)?;
        Ok(found.into_iter().collect())
    }

    /// A run.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn run(&self, run: RunId) -> Result<Option<RunView>, StoreError> {
        let tx = self.database.snapshot().await?;
        let Some(row) = run::Entity::find_by_id(run.0).one(&tx).await.map_err(query_error)? else { return Ok(None) };
        let counts = state_counts(&tx, vec![run.0]).await?.remove(&run.0).unwrap_or_default();
        let summary = run_summary(&row, counts, self.is_dead_row(&row).await?)?;
        Ok(Some(RunView { summary, source: row.source, params: row.params, machine: row.machine }))
    }

    /// The tasks of a run, in order. Tasks that a process left unfinished when it exited are returned as cancelled,
    /// even if the store has not been repaired since.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn tasks(&self, run: RunId) -> Result<Vec<TaskView>, StoreError> {
        let tx = self.database.snapshot().await?;
        let query = task::Entity::find().filter(task::Column::Run.eq(run.0)).order_by_asc(task::Column::Ix);
        let found = query.all(&tx).await.map_err(query_error)?;
        let dead = self.is_dead(&tx, run).await?;
        found.into_iter().map(|row| Ok(as_it_stands(rows::task_view(row)?, dead))).collect()
    }

    /// A task of a run, by its index or its address.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn task(&self, run: RunId, task: impl Into<TaskKey>) -> Result<Option<TaskView>, StoreError> {
        let query = task::Entity::find().filter(task::Column::Run.eq(run.0));
        let query = match task.into() {
            TaskKey::Ix(ix) => query.filter(task::Column::Ix.eq(i64::from(ix.0))),
            TaskKey::Address(address) => query.filter(task::Column::Address.eq(address)),
        };
        let tx = self.database.snapshot().await?;
        let Some(row) = query.one(&tx).await.map_err(query_error)? else { return Ok(None) };
        let dead = self.is_dead(&tx, run).await?;
        Ok(Some(as_it_stands(rows::task_view(row)?, dead)))
    }

    /// Whether a run is recorded as in progress although its process is gone: [`Store::recover_runs`] has not closed it yet.
    async fn is_dead(&self, db: &impl ConnectionTrait, run: RunId) -> Result<bool, StoreError> {
        match run::Entity::find_by_id(run.0).one(db).await.map_err(query_error)? {
            Some(row) => self.is_dead_row(&row).await,
            None => Ok(false),
        }
    }

    async fn is_dead_row(&self, row: &run::Model) -> Result<bool, StoreError> {
        let running = RunStateName::Running.name();
        if row.state != running || is_tracked(row) || is_alive(&self.layout, &row.session)? {
            return Ok(false);
        }
        // The process may have ended the run and exited since this row was read.
        let now = run::Entity::find_by_id(row.id).one(self.database.reader()).await.map_err(query_error)?;
        Ok(now.is_some_and(|now| now.state == running))
    }

    /// The attempts of all tasks of a run, by task, in order.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn run_attempts(&self, run: RunId) -> Result<BTreeMap<TaskIx, Vec<AttemptView>>, StoreError> {
        let query = attempt::Entity::find()
            .filter(attempt::Column::Run.eq(run.0))
            .order_by_asc(attempt::Column::Ix)
            .order_by_asc(attempt::Column::Epoch);
        let found = query.all(self.database.reader()).await.map_err(query_error)?;
        let dead = self.is_dead(self.database.reader(), run).await?;
        let mut attempts: BTreeMap<TaskIx, Vec<AttemptView>> = BTreeMap::new();
        for row in found {
            let ix = rows::task_ix(row.ix)?;
            attempts.entry(ix).or_default().push(attempt_as_it_stands(rows::attempt_view(row)?, dead));
        }
        Ok(attempts)
    }

    /// The mean duration in seconds of successful tasks of each job, over the latest hundred runs of workflows of this name.
    /// Tasks from the cache do not count.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn job_seconds(&self, workflow: &str) -> Result<BTreeMap<String, f64>, StoreError> {
        let tx = self.database.snapshot().await?;
        let latest: Vec<i64> = run::Entity::find()
            .select_only()
            .column(run::Column::Id)
            .filter(run::Column::Name.eq(workflow))
            .order_by_desc(run::Column::Id)
            .limit(100)
            .into_tuple()
            .all(&tx)
            .await
            .map_err(query_error)?;
        let took = Expr::col(task::Column::EndedAt).sub(Expr::col(task::Column::StartedAt));
        let found: Vec<(String, Option<f64>)> = task::Entity::find()
            .select_only()
            .column(task::Column::Job)
            .column_as(took.avg(), "took")
            .filter(task::Column::Run.is_in(latest))
            .filter(task::Column::State.eq(TaskStateName::Succeeded.name()))
            .group_by(task::Column::Job)
            .into_tuple()
            .all(&tx)
            .await
            .map_err(query_error)?;
        let seconds = found.into_iter().filter_map(|(job, millis)| Some((job, millis?.max(0.0) / 1000.0)));
        Ok(seconds.collect())
    }

    /// The process that executes a run, if it is alive.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn process_of(&self, run: RunId) -> Result<Option<u32>, StoreError> {
        let row = run::Entity::find_by_id(run.0).one(self.database.reader()).await.map_err(query_error)?;
        // No process executes runs of clients: the session belongs to the server that provides the API.
        let executed = row.filter(|row| row.state == RunStateName::Running.name() && !is_tracked(row));
        let Some(row) = executed else { return Ok(None) };
        match is_alive(&self.layout, &row.session)? {
            true => Ok(process_of(&row.session)),
            false => Ok(None),
        }
    }

    /// The attempts of a task, in order. A cached task has none: see [`TaskView::source`].
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn attempts(&self, run: RunId, task: TaskIx) -> Result<Vec<AttemptView>, StoreError> {
        let query = attempt::Entity::find()
            .filter(attempt::Column::Run.eq(run.0))
            .filter(attempt::Column::Ix.eq(i64::from(task.0)))
            .order_by_asc(attempt::Column::Epoch);
        let found = query.all(self.database.reader()).await.map_err(query_error)?;
        let dead = self.is_dead(self.database.reader(), run).await?;
        found.into_iter().map(|row| Ok(attempt_as_it_stands(rows::attempt_view(row)?, dead))).collect()
    }

    /// At most `limit` lines of a task's log, starting with the first line whose number is greater than `after`. For a
    /// cached task these are the lines of the attempt that did the work.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn logs(&self, run: RunId, task: TaskIx, after: u64, limit: u64) -> Result<Vec<LogView>, StoreError> {
        let tx = self.database.snapshot().await?;
        let own = task::Entity::find_by_id((run.0, i64::from(task.0))).one(&tx).await.map_err(query_error)?;
        let source = own.as_ref().map(rows::source_attempt).transpose()?.flatten();
        let (run, ix) = source.map_or((run, task), |source| (source.run, source.ix));
        let mut query = log::Entity::find()
            .filter(log::Column::Run.eq(run.0))
            .filter(log::Column::Ix.eq(i64::from(ix.0)))
            .filter(log::Column::Seq.gt(rows::to_signed(after)));
        if let Some(source) = source {
            query = query.filter(log::Column::Epoch.eq(i64::from(source.epoch.0)));
        }
        let found = query.order_by_asc(log::Column::Seq).limit(limit).all(&tx).await.map_err(query_error)?;
        found.into_iter().map(rows::log_view).collect()
    }

    /// The journal of a run, from its start.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn journal(&self, run: RunId) -> Result<Vec<JournalView>, StoreError> {
        let query = journal::Entity::find().filter(journal::Column::Run.eq(run.0)).order_by_asc(journal::Column::Seq);
        let found = query.all(self.database.reader()).await.map_err(query_error)?;
        Ok(found.into_iter().map(|row| JournalView { seq: rows::to_unsigned(row.seq), entry: row.entry }).collect())
    }
}

fn query_error(error: DbErr) -> StoreError {
    StoreError::database("read the store")(error)
}

type Counts = BTreeMap<TaskStateName, u64>;

/// The number of tasks in each state for each of these runs.
async fn state_counts(db: &impl ConnectionTrait, runs: Vec<i64>) -> Result<BTreeMap<i64, Counts>, StoreError> {
    let found: Vec<(i64, String, i64)> = task::Entity::find()
        .select_only()
        .column(task::Column::Run)
        .column(task::Column::State)
        .column_as(task::Column::Ix.count(), "tasks")
        .filter(task::Column::Run.is_in(runs))
        .group_by(task::Column::Run)
        .group_by(task::Column::State)
        .into_tuple()
        .all(db)
        .await
        .map_err(query_error)?;
    let mut counts: BTreeMap<i64, Counts> = BTreeMap::new();
    for (run, state, tasks) in found {
        counts.entry(run).or_default().insert(rows::task_state(&state)?, rows::to_unsigned(tasks));
    }
    Ok(counts)
}

/// A run with its current state: if its process is gone, it is not in progress, even if its row says so.
fn run_summary(row: &run::Model, mut states: Counts, dead: bool) -> Result<RunSummary, StoreError> {
    if dead {
        let unfinished: u64 = UNFINISHED.iter().filter_map(|state| states.remove(state)).sum();
        if unfinished > 0 {
            *states.entry(TaskStateName::Cancelled).or_default() += unfinished;
        }
    }
    Ok(RunSummary {
        id: RunId(row.id),
        name: row.name.clone(),
        file: row.file.clone(),
        state: if dead { RunStateName::Interrupted } else { rows::run_state(&row.state)? },
        version: row.version.clone(),
        tags: rows::from_json("tags", &row.tags)?,
        note: row.note.clone(),
        git: row.git_commit.clone().map(|commit| GitState { commit, dirty: row.git_dirty.unwrap_or(false) }),
        created_at: rows::to_unsigned(row.created_at),
        ended_at: row.ended_at.map(rows::to_unsigned),
        tasks: states.values().sum(),
        states,
    })
}

/// An attempt with its current state: if its process is gone, it has failed, even if that is not recorded yet.
fn attempt_as_it_stands(mut attempt: AttemptView, dead: bool) -> AttemptView {
    if dead && attempt.ended_at.is_none() {
        let (class, message) = (FailureClass::Preempted.name().to_owned(), GONE.to_owned());
        attempt.failure = Some(FailureView { class, message, hint: None });
    }
    attempt
}

/// A task with its current state: if its run's process is gone, it has ended.
fn as_it_stands(mut task: TaskView, dead: bool) -> TaskView {
    if dead && UNFINISHED.contains(&task.state) {
        task.detail = unfinished_detail(task.state).to_owned();
        task.state = TaskStateName::Cancelled;
    }
    task
}
