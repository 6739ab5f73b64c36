//! Table `artifacts`: the files in the store, by content.

use sea_orm::entity::prelude::*;

/// A row of `artifacts`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "artifacts")]
pub struct Model {
    /// BLAKE3 of the content, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub hash: String,
    /// The file's name when it was first stored.
    pub name: String,
    /// The size.
    pub bytes: i64,
    /// Milliseconds since 1970.
    pub created_at: i64,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
