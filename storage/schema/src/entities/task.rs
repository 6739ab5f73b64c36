//! Table `tasks`: one cell of one job of a run.

use sea_orm::entity::prelude::*;

/// A row of `tasks`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "tasks")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false, unique_key = "tasks-address")]
    pub run: i64,
    /// The index in the run, from 0.
    #[sea_orm(primary_key, auto_increment = false)]
    pub ix: i64,
    /// Such as `train[chunk=64,states=16]#2`.
    #[sea_orm(unique_key = "tasks-address")]
    pub address: String,
    /// The job's name.
    pub job: String,
    /// The step kind.
    pub kind: String,
    /// The matrix values by axis: an object.
    pub matrix: Json,
    /// The number of the replicate, from 1.
    pub replicate: Option<i64>,
    /// The tasks that it needs: an array of indices.
    pub needs: Json,
    /// The task that it is derived from.
    pub each_of: Option<i64>,
    /// The state's name.
    pub state: String,
    /// Details of the state.
    #[sea_orm(column_type = "Text")]
    pub detail: String,
    /// The config with evaluated expressions.
    pub config: Option<Json>,
    /// The cache key.
    pub cache_key: Option<String>,
    /// The outputs by name.
    pub outputs: Option<Json>,
    /// The last value of each metric by name; values that JSON cannot represent are strings.
    pub metrics: Option<Json>,
    /// For a cached task, the run that did the work.
    pub source_run: Option<i64>,
    /// The task in that run.
    pub source_ix: Option<i64>,
    /// The attempt of that task.
    pub source_epoch: Option<i64>,
    /// The number of attempts that were started.
    pub attempts: i64,
    /// When the first attempt started, in milliseconds since 1970.
    pub started_at: Option<i64>,
    /// When it reached a final state.
    pub ended_at: Option<i64>,
    /// The name of its cell, such as `train[chunk=64,states=16]`, which its replicates share.
    pub cell: String,
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
