//! Table `logs`: the log of a task, over all of its attempts.

use sea_orm::entity::prelude::*;

/// A row of `logs`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "logs")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The task.
    #[sea_orm(primary_key, auto_increment = false)]
    pub ix: i64,
    /// Counts from 1 over all attempts of the task.
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    /// The attempt that wrote it.
    pub epoch: i64,
    /// Milliseconds since 1970.
    pub at: i64,
    /// The level's name.
    pub level: String,
    /// The text.
    #[sea_orm(column_type = "Text")]
    pub text: String,
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
