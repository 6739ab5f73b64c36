//! Table `attempts`: one attempt of one task.

use sea_orm::entity::prelude::*;

/// A row of `attempts`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "attempts")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The task.
    #[sea_orm(primary_key, auto_increment = false)]
    pub ix: i64,
    /// The attempt, from 1.
    #[sea_orm(primary_key, auto_increment = false)]
    pub epoch: i64,
    /// The worker's name.
    pub worker: String,
    /// The backend.
    pub backend: String,
    /// The executor's greeting.
    pub executor: Option<Json>,
    /// The failure class's name.
    pub failure_class: Option<String>,
    /// The failure message.
    #[sea_orm(column_type = "Text", nullable)]
    pub failure_message: Option<String>,
    /// How to fix it.
    #[sea_orm(column_type = "Text", nullable)]
    pub failure_hint: Option<String>,
    /// Milliseconds since 1970.
    pub began_at: i64,
    /// Milliseconds since 1970.
    pub ended_at: Option<i64>,
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
