//! Table `reports`: the progress of the reports of each attempt on a worker node.

use sea_orm::entity::prelude::*;

/// A row of `reports`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "reports")]
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
    /// The number of the latest stored report.
    pub seq: i64,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
