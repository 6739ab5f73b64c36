//! Table `artifacts`: the files that came into the store, by content.

use sea_orm::entity::prelude::*;

/// A row of `artifacts`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "artifacts")]
pub struct Model {
    /// BLAKE3 of the content, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub hash: String,
    /// The file's name when it first came in.
    pub name: String,
    /// The size.
    pub bytes: i64,
    /// Milliseconds since 1970.
    pub created_at: i64,
}

/// What other tables are to this one.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
