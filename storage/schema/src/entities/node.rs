//! Table `nodes`: the worker nodes of a server. Each lifetime of a worker has a separate number.

use sea_orm::entity::prelude::*;

/// A row of `nodes`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "nodes")]
pub struct Model {
    /// The number.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i64,
    /// Its registration, as JSON.
    #[sea_orm(column_type = "Text")]
    pub content: String,
    /// Whether it left or was declared lost.
    pub gone: bool,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
