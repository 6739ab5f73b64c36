//! The audit log of a server: who changed what, with the outcome.

use assay_schema::audit_log;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, NotSet, QueryFilter, QueryOrder, QuerySelect, Set};
use serde::Serialize;

use crate::rows::{now_millis, to_signed, to_unsigned};
use crate::{Store, StoreError};

/// The maximum number of stored actions; the oldest are removed.
const MOST_ACTIONS: i64 = 100_000;
/// The number of actions after which the oldest are removed.
const REMOVAL: i64 = 1000;

/// An action to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAction {
    /// The number of the token that was used; `None` without a token.
    pub token: Option<i64>,
    /// The address of the client, or the command line with its user.
    pub origin: String,
    /// The action, such as `cancel run 3`.
    pub action: String,
    /// The outcome, such as `done`.
    pub result: String,
}

/// An action that was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActionView {
    /// Its number.
    pub id: i64,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// The number of the token that was used; `None` without a token.
    pub token: Option<i64>,
    /// The address of the client, or the command line with its user.
    pub origin: String,
    /// The action.
    pub action: String,
    /// The outcome.
    pub result: String,
}

fn log_error() -> impl Fn(sea_orm::DbErr) -> StoreError {
    |error| StoreError::database("read or write the audit log")(error)
}

impl Store {
    /// Records an action.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn record_action(&self, action: NewAction) -> Result<(), StoreError> {
        let NewAction { token, origin, action, result } = action;
        let tx = self.database.begin_write().await?;
        let row = audit_log::ActiveModel {
            id: NotSet,
            at: Set(to_signed(now_millis())),
            token: Set(token),
            origin: Set(origin),
            action: Set(action),
            result: Set(result),
        };
        let id = row.insert(&tx).await.map_err(log_error())?.id;
        if id % REMOVAL == 0 {
            let old = audit_log::Column::Id.lte(id - MOST_ACTIONS);
            audit_log::Entity::delete_many().filter(old).exec(&tx).await.map_err(log_error())?;
        }
        tx.commit().await.map_err(log_error())
    }

    /// The latest actions, the last one first; with `before`, those with a smaller number.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn actions(&self, limit: u64, before: Option<i64>) -> Result<Vec<ActionView>, StoreError> {
        let query = audit_log::Entity::find().order_by_desc(audit_log::Column::Id).limit(limit);
        let query = match before {
            Some(before) => query.filter(audit_log::Column::Id.lt(before)),
            None => query,
        };
        let rows = query.all(self.database.reader()).await.map_err(log_error())?;
        let view = |row: audit_log::Model| {
            let audit_log::Model { id, at, token, origin, action, result } = row;
            ActionView { id, at: to_unsigned(at), token, origin, action, result }
        };
        Ok(rows.into_iter().map(view).collect())
    }
}
