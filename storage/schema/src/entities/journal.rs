//! Table `journal`: the entries that the orchestrator replays.

use sea_orm::entity::prelude::*;

/// A row of `journal`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "journal")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// Counts from 1 without gaps.
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    /// The entry, as JSON that this crate does not interpret.
    #[sea_orm(column_type = "Text")]
    pub entry: String,
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
