//! Table `claims`: the work that a run under way is about to do, or does.

use sea_orm::entity::prelude::*;

/// A row of `claims`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "claims")]
pub struct Model {
    /// The cache key of the work, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    /// The run. The claim ends with it, or with its process.
    #[sea_orm(unique_key = "claims-task")]
    pub run: i64,
    /// The task. The claim ends with its final state.
    #[sea_orm(unique_key = "claims-task")]
    pub ix: i64,
}

/// What other tables are to this one.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
