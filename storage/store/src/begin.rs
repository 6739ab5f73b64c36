//! Creates runs.

use assay_core::RunId;
use assay_schema::{run, task};
use assay_server::{NewRun, NewTask, RunStateName, TaskStateName};
use sea_orm::{ActiveModelTrait, DatabaseTransaction, EntityTrait, NotSet, Set};

use crate::failure_point::FailurePoint;
use crate::marks::sort_tags;
use crate::rows::{now_millis, to_json, to_signed};
use crate::{Store, StoreError};

/// Rows per statement: a row of `tasks` has 22 values, and SQLite accepts 32766 in a statement.
const ROWS: usize = 1000;

/// The origin of a run of a workflow file.
const WORKFLOW: &str = "workflow";

impl Store {
    /// Creates a run with all of its tasks, each `waiting`. It belongs to this session.
    ///
    /// # Errors
    /// If the database refuses it; the run then does not exist.
    pub async fn begin_run(&self, new: NewRun) -> Result<RunId, StoreError> {
        let failed = || StoreError::database("write a new run");
        let session = self.session()?.name().to_owned();
        let tx = self.database.begin_write().await?;
        let NewRun { name, file, source, params, machine, version, marks, tasks } = new;
        let row = run::ActiveModel {
            id: NotSet,
            name: Set(name),
            file: Set(file),
            source: Set(source),
            params: Set(params),
            machine: Set(machine),
            version: Set(version),
            session: Set(session),
            state: Set(RunStateName::Running.name().to_owned()),
            created_at: Set(to_signed(now_millis())),
            ended_at: Set(None),
            tags: Set(to_json("tags", &sort_tags(marks.tags))?),
            note: Set(marks.note),
            git_commit: Set(marks.git.as_ref().map(|git| git.commit.clone())),
            git_dirty: Set(marks.git.map(|git| git.dirty)),
            origin: Set(WORKFLOW.to_owned()),
        };
        let id = row.insert(&tx).await.map_err(failed())?.id;
        insert_tasks(&tx, id, 0, tasks).await?;
        self.trap.check_point(FailurePoint::BeginNotCommitted)?;
        tx.commit().await.map_err(failed())?;
        Ok(RunId(id))
    }
}

/// Inserts tasks of a run, numbered from `first`.
pub(crate) async fn insert_tasks(
    tx: &DatabaseTransaction,
    run: i64,
    first: usize,
    tasks: Vec<NewTask>,
) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(tasks.len());
    for (ix, task) in (first..).zip(tasks) {
        rows.push(task_row(run, ix, task)?);
    }
    while !rows.is_empty() {
        let chunk: Vec<_> = rows.drain(..rows.len().min(ROWS)).collect();
        let insert = task::Entity::insert_many(chunk).exec_without_returning(tx).await;
        insert.map_err(StoreError::database("write the tasks of a run"))?;
    }
    Ok(())
}

/// The row of a waiting task.
pub(crate) fn task_row(run: i64, ix: usize, new: NewTask) -> Result<task::ActiveModel, StoreError> {
    let NewTask { address, cell, job, kind, matrix, replicate, needs, each } = new;
    Ok(task::ActiveModel {
        run: Set(run),
        ix: Set(to_signed(ix as u64)),
        address: Set(address),
        job: Set(job),
        kind: Set(kind),
        matrix: Set(to_json("a matrix", &matrix)?),
        replicate: Set(replicate.map(i64::from)),
        needs: Set(to_json("needs", &needs.iter().map(|need| need.0).collect::<Vec<_>>())?),
        each_of: Set(each.map(|each| i64::from(each.0))),
        state: Set(TaskStateName::Waiting.name().to_owned()),
        detail: Set(String::new()),
        config: Set(None),
        cache_key: Set(None),
        outputs: Set(None),
        metrics: Set(None),
        source_run: Set(None),
        source_ix: Set(None),
        source_epoch: Set(None),
        attempts: Set(0),
        started_at: Set(None),
        ended_at: Set(None),
        cell: Set(cell),
    })
}
