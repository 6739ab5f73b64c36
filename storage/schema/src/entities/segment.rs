//! Table `segments`: the Parquet files with the points of finished attempts.

use sea_orm::entity::prelude::*;

/// A row of `segments`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "segments")]
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
    /// The file, relative to the store's `metrics/`, with `/` between its parts.
    pub path: String,
    /// BLAKE3 of the file.
    pub hash: String,
    /// The number of points.
    pub points: i64,
    /// For each series its number of points and its last value: an object of objects.
    pub series: Json,
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
