//! Table `tracked_runs`: the data of runs of MLflow clients that are not in `runs`.

use sea_orm::entity::prelude::*;

/// A row of `tracked_runs`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "tracked_runs")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The identifier that clients use: 32 hexadecimal digits.
    #[sea_orm(unique)]
    pub key: String,
    /// The experiment.
    #[sea_orm(indexed)]
    pub experiment: i64,
    /// The user who logs it.
    pub user: String,
    /// The status in MLflow's notation, such as `FINISHED`.
    pub status: String,
    /// When it started according to the client, in milliseconds since 1970.
    pub start_time: i64,
    /// When it ended.
    pub end_time: Option<i64>,
    /// Whether a client deleted it. Its data are kept.
    pub deleted: bool,
    /// The tags: an object of texts.
    pub tags: Json,
    /// The datasets that it used: an array of objects.
    pub inputs: Json,
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
