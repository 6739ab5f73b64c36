//! Table `tracked_runs`: what MLflow clients know of the runs that they logged, beyond the row of `runs`.

use sea_orm::entity::prelude::*;

/// A row of `tracked_runs`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "tracked_runs")]
pub struct Model {
    /// The run.
    #[sea_orm(primary_key, auto_increment = false)]
    pub run: i64,
    /// The name by which clients address it: 32 hexadecimal digits.
    #[sea_orm(unique)]
    pub key: String,
    /// The experiment.
    #[sea_orm(indexed)]
    pub experiment: i64,
    /// Who logs it.
    pub user: String,
    /// The status as clients name it, such as `FINISHED`.
    pub status: String,
    /// When it began, in milliseconds since 1970, as the client said.
    pub start_time: i64,
    /// When it ended.
    pub end_time: Option<i64>,
    /// Whether a client deleted it. Its data stay.
    pub deleted: bool,
    /// The tags: an object of texts.
    pub tags: Json,
    /// The datasets that it used: an array of objects.
    pub inputs: Json,
}

/// What other tables are to this one.
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
