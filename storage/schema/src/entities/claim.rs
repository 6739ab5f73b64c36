//! Table `claims`: the work that a run in progress does, or will do.

use sea_orm::entity::prelude::*;

/// A row of `claims`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "claims")]
pub struct Model {
    /// The cache key of the work, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    /// The run. The claim ends with the run, or with its process.
    #[sea_orm(unique_key = "claims-task")]
    pub run: i64,
    /// The task. The claim ends when the task reaches a final state.
    #[sea_orm(unique_key = "claims-task")]
    pub ix: i64,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
