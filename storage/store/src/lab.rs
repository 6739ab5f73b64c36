//! The state that a server with worker nodes resumes from after a restart.

use std::collections::BTreeMap;

use assay_core::{Epoch, RunId, TaskIx, WorkerId};
use assay_protocol::{Failure, FailureClass};
use assay_schema::{node, report, run, submission, task};
use assay_server::{History, LabLedger, LedgerError, PastAttempt, PastTask, RunStateName};
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, Set};

use crate::query::AttemptView;
use crate::session::is_alive;
use crate::{NewAction, Store, StoreError, rows};

#[async_trait::async_trait]
impl LabLedger for Store {
    async fn save_submission(&self, run: RunId, content: String) -> Result<(), LedgerError> {
        let tx = self.database.begin_write().await?;
        let row = submission::ActiveModel { run: Set(run.0), content: Set(content) };
        let newest =
            OnConflict::column(submission::Column::Run).update_columns([submission::Column::Content]).to_owned();
        let insert = submission::Entity::insert(row).on_conflict(newest);
        insert.exec_without_returning(&tx).await.map_err(failed("write a submission"))?;
        tx.commit().await.map_err(failed("write a submission"))?;
        Ok(())
    }

    async fn adopt_submissions(&self) -> Result<Vec<(RunId, String)>, LedgerError> {
        let session = self.session()?.name().to_owned();
        let tx = self.database.begin_write().await?;
        let running = run::Entity::find().filter(run::Column::State.eq(RunStateName::Running.name()));
        let running = running.order_by_asc(run::Column::Id).all(&tx).await.map_err(failed("look for runs"))?;
        let mut adopted = Vec::new();
        for found in running {
            let submitted = submission::Entity::find_by_id(found.id).one(&tx).await.map_err(failed("look for runs"))?;
            let Some(submitted) = submitted else { continue };
            if is_alive(&self.layout, &found.session)? {
                continue;
            }
            let row = run::ActiveModel { session: Set(session.clone()), ..Default::default() };
            let update = run::Entity::update_many().set(row).filter(run::Column::Id.eq(found.id));
            update.exec(&tx).await.map_err(failed("adopt a run"))?;
            adopted.push((RunId(found.id), submitted.content));
        }
        tx.commit().await.map_err(failed("adopt runs"))?;
        Ok(adopted)
    }

    async fn submission(&self, run: RunId) -> Result<Option<String>, LedgerError> {
        let found = submission::Entity::find_by_id(run.0).one(self.database.reader()).await;
        Ok(found.map_err(failed("read a submission"))?.map(|row| row.content))
    }

    async fn load_history(&self, run: RunId) -> Result<History, LedgerError> {
        let entries = self.journal(run).await?.into_iter().map(|entry| entry.entry).collect();
        let mut attempts = self.run_attempts(run).await?;
        let mut last = self.last_metrics(run).await?;
        let query = task::Entity::find().filter(task::Column::Run.eq(run.0)).order_by_asc(task::Column::Ix);
        let found = query.all(self.database.reader()).await.map_err(failed("read the tasks of a run"))?;
        let mut tasks = Vec::with_capacity(found.len());
        for row in found {
            let ix = rows::task_ix(row.ix)?;
            let metrics = last.remove(&ix).map_or_else(|| rows::floats_of_json(row.metrics.as_ref()), Ok)?;
            tasks.push(PastTask {
                kind: row.kind,
                state: rows::task_state(&row.state)?,
                config: row.config,
                key: row.cache_key,
                outputs: rows::parse_outputs(row.outputs.as_ref())?,
                metrics,
                attempts: attempts.remove(&ix).unwrap_or_default().into_iter().map(to_past_attempt).collect(),
            });
        }
        let query = report::Entity::find().filter(report::Column::Run.eq(run.0));
        let mut reported = BTreeMap::new();
        for row in query.all(self.database.reader()).await.map_err(failed("read the reports of a run"))? {
            let attempt: (TaskIx, Epoch) = (rows::task_ix(row.ix)?, rows::to_epoch(row.epoch)?);
            reported.insert(attempt, rows::to_unsigned(row.seq));
        }
        Ok(History { entries, tasks, reported })
    }

    async fn record_action(&self, action: String) -> Result<(), LedgerError> {
        let (origin, result) = ("server".to_owned(), "done".to_owned());
        Ok(Store::record_action(self, NewAction { token: None, origin, action, result }).await?)
    }

    async fn save_node(&self, worker: WorkerId, content: String) -> Result<(), LedgerError> {
        let tx = self.database.begin_write().await?;
        let row = node::ActiveModel { id: Set(i64::from(worker.0)), content: Set(content), gone: Set(false) };
        let newest = OnConflict::column(node::Column::Id).update_columns([node::Column::Content]).to_owned();
        let insert = node::Entity::insert(row).on_conflict(newest);
        insert.exec_without_returning(&tx).await.map_err(failed("write a worker"))?;
        tx.commit().await.map_err(failed("write a worker"))?;
        Ok(())
    }

    async fn retire_node(&self, worker: WorkerId) -> Result<(), LedgerError> {
        let tx = self.database.begin_write().await?;
        let row = node::ActiveModel { gone: Set(true), ..Default::default() };
        let update = node::Entity::update_many().set(row).filter(node::Column::Id.eq(i64::from(worker.0)));
        update.exec(&tx).await.map_err(failed("write a worker"))?;
        tx.commit().await.map_err(failed("write a worker"))?;
        Ok(())
    }

    async fn load_nodes(&self) -> Result<Vec<(WorkerId, String, bool)>, LedgerError> {
        let found = node::Entity::find().order_by_asc(node::Column::Id).all(self.database.reader()).await;
        let found = found.map_err(failed("read the workers"))?;
        let id = |id: i64| u32::try_from(id).map_err(|_| LedgerError::new(format!("the store has a worker {id}")));
        found.into_iter().map(|row| Ok((WorkerId(id(row.id)?), row.content, row.gone))).collect()
    }
}

fn failed(what: &'static str) -> impl Fn(sea_orm::DbErr) -> LedgerError {
    move |error| LedgerError::from(StoreError::database(what)(error))
}

fn to_past_attempt(view: AttemptView) -> PastAttempt {
    let failure = view.failure.map(|failure| Failure {
        class: failure.class.parse().unwrap_or(FailureClass::Crashed),
        message: failure.message,
        hint: failure.hint,
    });
    PastAttempt { epoch: view.epoch, began_at: view.began_at, ended_at: view.ended_at, failure }
}
