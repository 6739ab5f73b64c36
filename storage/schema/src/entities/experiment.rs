//! Table `experiments`: the experiments that runs of MLflow clients belong to.

use sea_orm::entity::prelude::*;

/// A row of `experiments`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "experiments")]
pub struct Model {
    /// The number; 0 is the experiment `Default`.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// The name, which no other experiment has, not even a deleted one.
    #[sea_orm(unique)]
    pub name: String,
    /// Where a client wants to store artifacts; empty if the server decides.
    pub location: String,
    /// Whether it is deleted. Its runs stay.
    pub deleted: bool,
    /// The tags: an object of texts.
    pub tags: Json,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub updated_at: i64,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
