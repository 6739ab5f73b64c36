//! Table `metric_points`: the points of attempts in progress. Those of finished attempts are in segments.

use sea_orm::entity::prelude::*;

/// A row of `metric_points`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "metric_points")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The task.
    #[sea_orm(primary_key, auto_increment = false)]
    pub ix: i64,
    /// The attempt.
    #[sea_orm(primary_key, auto_increment = false)]
    pub epoch: i64,
    /// Counts from 1 within the attempt.
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    /// The metric's name.
    pub name: String,
    /// The x axis: the bits of an unsigned 64-bit integer.
    pub step: i64,
    /// The value: the bits of an IEEE 754 double. SQLite would convert NaN to NULL and -0 to +0.
    pub bits: i64,
    /// When it was reported, in milliseconds since 1970. Stores of earlier versions lack it.
    pub at: Option<i64>,
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
