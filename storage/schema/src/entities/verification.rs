//! Table `verifications`: the artifacts whose hash was recomputed, with the properties of their file.

use sea_orm::entity::prelude::*;

/// A row of `verifications`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "verifications")]
pub struct Model {
    /// BLAKE3 of the content, in hexadecimal.
    #[sea_orm(primary_key, auto_increment = false)]
    pub hash: String,
    /// The size of the file, in bytes.
    pub bytes: i64,
    /// The inode of the file, as bits.
    pub inode: i64,
    /// When its content was last modified, in nanoseconds since 1970.
    pub modified_at: i64,
    /// When its inode was last changed, in nanoseconds since 1970.
    pub changed_at: i64,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
