//! Work is claimed before it starts, so that two runs do not do the same work at the same time.
//!
//! A claim is a row, and is valid while its run is in progress and the run's process is alive. The transaction that
//! records the task's final state removes it, so work without a claim has its result in the store.

use std::collections::{BTreeMap, BTreeSet};

use assay_core::{RunId, TaskId, TaskIx};
use assay_schema::{claim, run};
use assay_server::RunStateName;
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, QueryFilter, Set};

use crate::session::is_alive;
use crate::{Store, StoreError, rows};

/// Keys per statement.
const ROWS: usize = 1000;

fn query_error(error: sea_orm::DbErr) -> StoreError {
    StoreError::database("claim work")(error)
}

impl Store {
    /// Claims the work of these cache keys for tasks of a run. Returns for each key the task that has already claimed
    /// it, if that is another task whose run is in progress; `None` if this task now has the claim.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn claim_work(&self, id: RunId, work: &[(TaskIx, String)]) -> Result<Vec<Option<TaskId>>, StoreError> {
        let tx = self.database.begin_write().await?;
        let mut holders = Vec::with_capacity(work.len());
        let mut alive = BTreeMap::new();
        for chunk in work.chunks(ROWS) {
            let keys: BTreeSet<&str> = chunk.iter().map(|(_, key)| key.as_str()).collect();
            let known =
                claim::Entity::find().filter(claim::Column::Key.is_in(keys)).all(&tx).await.map_err(query_error)?;
            let mut known: BTreeMap<String, TaskId> = known
                .into_iter()
                .map(|row| Ok((row.key, TaskId { run: RunId(row.run), task: rows::task_ix(row.ix)? })))
                .collect::<Result<_, StoreError>>()?;
            let (mut void, mut fresh) = (Vec::new(), Vec::new());
            for (task, key) in chunk {
                let own = TaskId { run: id, task: *task };
                let holder = match known.get(key) {
                    Some(&holder) if holder == own => None,
                    Some(&holder) if self.is_under_way(&tx, holder.run, &mut alive).await? => Some(holder),
                    stale => {
                        void.extend(stale.map(|_| key.clone()));
                        fresh.push(claim::ActiveModel {
                            key: Set(key.clone()),
                            run: Set(id.0),
                            ix: Set(i64::from(task.0)),
                        });
                        // A second task with the same work in the same call.
                        known.insert(key.clone(), own);
                        None
                    }
                };
                holders.push(holder);
            }
            let stale = claim::Entity::delete_many().filter(claim::Column::Key.is_in(void));
            stale.exec(&tx).await.map_err(query_error)?;
            if !fresh.is_empty() {
                claim::Entity::insert_many(fresh).exec_without_returning(&tx).await.map_err(query_error)?;
            }
        }
        tx.commit().await.map_err(query_error)?;
        Ok(holders)
    }

    async fn is_under_way(
        &self,
        tx: &DatabaseTransaction,
        id: RunId,
        known: &mut BTreeMap<RunId, bool>,
    ) -> Result<bool, StoreError> {
        if let Some(&known) = known.get(&id) {
            return Ok(known);
        }
        let row = run::Entity::find_by_id(id.0).one(tx).await.map_err(query_error)?;
        let running = row.filter(|row| row.state == RunStateName::Running.name());
        let alive = running.map_or(Ok(false), |row| is_alive(&self.layout, &row.session))?;
        known.insert(id, alive);
        Ok(alive)
    }
}
