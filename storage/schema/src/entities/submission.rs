//! Table `submissions`: the submissions of the runs of a server.

use sea_orm::entity::prelude::*;

/// A row of `submissions`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "submissions")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The submission, as JSON.
    #[sea_orm(column_type = "Text")]
    pub content: String,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
