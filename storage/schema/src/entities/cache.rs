//! Table `cache`: the last successful attempt of each cache key.

use sea_orm::entity::prelude::*;

/// A row of `cache`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "cache")]
pub struct Model {
    /// The cache key, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    /// The run.
    pub run: i64,
    /// The task.
    pub ix: i64,
    /// The attempt.
    pub epoch: i64,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {
    /// The run that it belongs to.
    #[sea_orm(belongs_to = "super::run::Entity", from = "Column::Run", to = "super::run::Column::Id")]
    Run,
}

impl Related<super::run::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Run.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
