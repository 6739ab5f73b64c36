//! Table `tokens`: the tokens with which other machines use a server.

use sea_orm::entity::prelude::*;

/// A row of `tokens`.
#[derive(Clone, Debug, PartialEq, DeriveEntityModel, Eq)]
#[sea_orm(table_name = "tokens")]
pub struct Model {
    /// The number, counting from 1.
    #[sea_orm(primary_key)]
    pub id: i64,
    /// BLAKE3 of the token, in hexadecimal.
    pub hash: String,
    /// The name of its scope.
    pub scope: String,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Milliseconds since 1970.
    pub expires_at: Option<i64>,
    /// Milliseconds since 1970.
    pub revoked_at: Option<i64>,
}

/// Relations to other tables.
#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
