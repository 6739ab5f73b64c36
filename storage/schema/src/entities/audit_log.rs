//! Table `audit_log`: who changed what on a server.

use sea_orm::entity::prelude::*;

/// A row of `audit_log`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "audit_log")]
pub struct Model {
    /// The number, counting from 1.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// Milliseconds since 1970.
    pub at: i64,
    /// The number of the token, if one was used.
    pub token: Option<i64>,
    /// The address of the request, or the command.
    pub origin: String,
    /// The action, such as `cancel run 3`.
    pub action: String,
    /// The outcome, such as `done`.
    pub result: String,
}

/// The relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
