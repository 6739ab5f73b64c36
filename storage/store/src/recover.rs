//! Closes runs whose process exited unexpectedly, and cleans up after them.

use std::collections::BTreeSet;
use std::time::SystemTime;

use assay_core::RunId;
use assay_protocol::FailureClass;
use assay_schema::{attempt, claim, log, metric_point, run, submission, task};
use assay_server::{RunStateName, TaskStateName};
use sea_orm::{ColumnTrait, DatabaseTransaction, DbErr, EntityTrait, QueryFilter, QuerySelect, Set};

use crate::failure_point::FailurePoint;
use crate::session::{Gate, forget_old_resumes, is_alive, remove_leftovers};
use crate::store::run_blocking;
use crate::tracking::is_tracked;
use crate::{Recovered, Store, StoreError, rows};

/// The states that are not final.
pub(crate) const UNFINISHED: [TaskStateName; 4] =
    [TaskStateName::Waiting, TaskStateName::Ready, TaskStateName::Running, TaskStateName::BackingOff];

impl Store {
    /// Closes runs that are recorded as in progress although their process is gone: they become `interrupted`, their
    /// unfinished tasks `cancelled`, and their end is the last recorded time. Finished tasks are kept, also in the cache.
    /// Work folders of dead processes are removed, points of dead attempts are sealed. State that attempts left for later
    /// ones is kept for two weeks after its last use.
    ///
    /// Called at the start of `assay run`. Runs of live processes are not changed.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub async fn recover_runs(&self) -> Result<Vec<Recovered>, StoreError> {
        let layout = self.layout.clone();
        // Held until the end, so that no other process repairs at the same time.
        let _gate = run_blocking(move || {
            let gate = Gate::enter_gate(&layout)?;
            remove_leftovers(&layout, &gate)?;
            forget_old_resumes(&layout, SystemTime::now());
            Ok(gate)
        })
        .await?;
        let failed = || StoreError::database("close interrupted runs");
        let running = run::Entity::find().filter(run::Column::State.eq(RunStateName::Running.name()));
        let tx = self.database.begin_write().await?;
        let mut recovered = Vec::new();
        for row in running.all(&tx).await.map_err(failed())? {
            // A run that was submitted to a server continues when the server is started again.
            let submitted = submission::Entity::find_by_id(row.id).one(&tx).await.map_err(failed())?.is_some();
            if !submitted && !is_tracked(&row) && !is_alive(&self.layout, &row.session)? {
                let unfinished = interrupt_run(&tx, &row).await.map_err(failed())?;
                recovered.push(Recovered { run: RunId(row.id), name: row.name, unfinished });
            }
        }
        self.trap.check_point(FailurePoint::RecoveryNotCommitted)?;
        tx.commit().await.map_err(failed())?;
        self.trap.check_point(FailurePoint::RecoveryCommitted)?;
        self.seal_left_over().await?;
        Ok(recovered)
    }

    /// Seals the points of every attempt of dead sessions.
    async fn seal_left_over(&self) -> Result<(), StoreError> {
        let failed = || StoreError::database("look for metrics to seal");
        let reader = self.database.reader();
        let tails: Vec<(i64, i64, i64)> = metric_point::Entity::find()
            .select_only()
            .column(metric_point::Column::Run)
            .column(metric_point::Column::Ix)
            .column(metric_point::Column::Epoch)
            .distinct()
            .into_tuple()
            .all(reader)
            .await
            .map_err(failed())?;
        let runs: BTreeSet<i64> = tails.iter().map(|tail| tail.0).collect();
        let mut dead = BTreeSet::new();
        for row in run::Entity::find().filter(run::Column::Id.is_in(runs)).all(reader).await.map_err(failed())? {
            // The points of a client's run are sealed when the client ends the run.
            let open = is_tracked(&row) && row.state == RunStateName::Running.name();
            if !open && !is_alive(&self.layout, &row.session)? {
                dead.insert(row.id);
            }
        }
        for (run, ix, epoch) in tails {
            if dead.contains(&run) {
                self.seal_attempt(rows::attempt_ref(run, ix, epoch)?).await?;
            }
        }
        Ok(())
    }
}

/// The failure message of an attempt whose process is gone.
pub(crate) const GONE: &str = "the process that ran it exited unexpectedly";

/// The detail of a task that was in this state when its run's process exited.
pub(crate) fn unfinished_detail(state: TaskStateName) -> &'static str {
    match state {
        TaskStateName::Running => "interrupted: the process that ran it exited unexpectedly",
        _ => "not run: its run was interrupted",
    }
}

/// Closes one run; returns the number of its unfinished tasks.
async fn interrupt_run(tx: &DatabaseTransaction, run: &run::Model) -> Result<u64, DbErr> {
    let end = Some(last_sign_of_life(tx, run).await?);
    let row = run::ActiveModel {
        state: Set(RunStateName::Interrupted.name().to_owned()),
        ended_at: Set(end),
        ..Default::default()
    };
    run::Entity::update_many().set(row).filter(run::Column::Id.eq(run.id)).exec(tx).await?;

    let row = attempt::ActiveModel {
        failure_class: Set(Some(FailureClass::Preempted.name().to_owned())),
        failure_message: Set(Some(GONE.to_owned())),
        ended_at: Set(end),
        ..Default::default()
    };
    let open = attempt::Entity::update_many().set(row).filter(attempt::Column::Run.eq(run.id));
    open.filter(attempt::Column::EndedAt.is_null()).exec(tx).await?;

    claim::Entity::delete_many().filter(claim::Column::Run.eq(run.id)).exec(tx).await?;

    let mut unfinished = 0;
    for state in UNFINISHED {
        let row = task::ActiveModel {
            state: Set(TaskStateName::Cancelled.name().to_owned()),
            detail: Set(unfinished_detail(state).to_owned()),
            ended_at: Set(end),
            ..Default::default()
        };
        let in_state = task::Entity::update_many().set(row).filter(task::Column::Run.eq(run.id));
        unfinished += in_state.filter(task::Column::State.eq(state.name())).exec(tx).await?.rows_affected;
    }
    Ok(unfinished)
}

/// The latest time that the store has recorded of a run. Its true end is at most the interval between two batches
/// later, while its recovery may be days later.
async fn last_sign_of_life(tx: &DatabaseTransaction, run: &run::Model) -> Result<i64, DbErr> {
    let (began, ended): (Option<i64>, Option<i64>) = attempt::Entity::find()
        .select_only()
        .column_as(attempt::Column::BeganAt.max(), "began")
        .column_as(attempt::Column::EndedAt.max(), "ended")
        .filter(attempt::Column::Run.eq(run.id))
        .into_tuple()
        .one(tx)
        .await?
        .unwrap_or_default();
    let finished: Option<Option<i64>> = task::Entity::find()
        .select_only()
        .column_as(task::Column::EndedAt.max(), "ended")
        .filter(task::Column::Run.eq(run.id))
        .into_tuple()
        .one(tx)
        .await?;
    let logged: Option<Option<i64>> = log::Entity::find()
        .select_only()
        .column_as(log::Column::At.max(), "at")
        .filter(log::Column::Run.eq(run.id))
        .into_tuple()
        .one(tx)
        .await?;
    let signs = [began, ended, finished.flatten(), logged.flatten()];
    Ok(signs.into_iter().flatten().fold(run.created_at, i64::max))
}
