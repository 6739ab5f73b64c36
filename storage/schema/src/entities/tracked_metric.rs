//! Table `tracked_metrics`: the latest point of each metric of a run that an MLflow client logs.

use sea_orm::entity::prelude::*;

/// A row of `tracked_metrics`. The latest point has the largest step; among those, the largest time, and then the largest value.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "tracked_metrics")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The metric's name.
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    /// The x axis, which may be negative.
    pub step: i64,
    /// Milliseconds since 1970.
    pub at: i64,
    /// The value: the bits of an IEEE 754 double.
    pub bits: i64,
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
