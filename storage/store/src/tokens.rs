//! The tokens with which other machines use a server. The store has the hash of each token, never the token itself.

use assay_schema::token;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, NotSet, QueryFilter, QueryOrder, Set};
use serde::Serialize;

use crate::error::StoreErrorKind;
use crate::rows::{now_millis, to_signed, to_unsigned};
use crate::{Store, StoreError};

/// A token for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenView {
    /// Its number.
    pub id: i64,
    /// The name of its scope.
    pub scope: String,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<u64>,
    /// When it was revoked, in milliseconds since 1970.
    pub revoked_at: Option<u64>,
}

fn token_error() -> impl Fn(sea_orm::DbErr) -> StoreError {
    |error| StoreError::database("read or write the tokens")(error)
}

impl Store {
    /// Stores a token's hash; returns the token's number.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn create_token(&self, hash: &str, scope: &str, expires_at: Option<u64>) -> Result<i64, StoreError> {
        let tx = self.database.begin_write().await?;
        let row = token::ActiveModel {
            id: NotSet,
            hash: Set(hash.to_owned()),
            scope: Set(scope.to_owned()),
            created_at: Set(to_signed(now_millis())),
            expires_at: Set(expires_at.map(to_signed)),
            revoked_at: Set(None),
        };
        let id = row.insert(&tx).await.map_err(token_error())?.id;
        tx.commit().await.map_err(token_error())?;
        Ok(id)
    }

    /// The number and the scope of the token with this hash, unless it is unknown, expired or revoked.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn find_token(&self, hash: &str) -> Result<Option<(i64, String)>, StoreError> {
        let query = token::Entity::find().filter(token::Column::Hash.eq(hash));
        let found = query.all(self.database.reader()).await.map_err(token_error())?;
        let now = to_signed(now_millis());
        let valid = |row: &token::Model| row.revoked_at.is_none() && row.expires_at.is_none_or(|end| now < end);
        Ok(found.into_iter().find(valid).map(|row| (row.id, row.scope)))
    }

    /// All tokens, in order.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, StoreError> {
        let found = token::Entity::find().order_by_asc(token::Column::Id).all(self.database.reader()).await;
        let view = |row: token::Model| TokenView {
            id: row.id,
            scope: row.scope,
            created_at: to_unsigned(row.created_at),
            expires_at: row.expires_at.map(to_unsigned),
            revoked_at: row.revoked_at.map(to_unsigned),
        };
        Ok(found.map_err(token_error())?.into_iter().map(view).collect())
    }

    /// Makes a token invalid from now on.
    ///
    /// # Errors
    /// If the token does not exist or is already revoked, or the store cannot be written.
    pub async fn revoke_token(&self, id: i64) -> Result<(), StoreError> {
        let tx = self.database.begin_write().await?;
        let row = token::ActiveModel { revoked_at: Set(Some(to_signed(now_millis()))), ..Default::default() };
        let update = token::Entity::update_many().set(row).filter(token::Column::Id.eq(id));
        let changed = update.filter(token::Column::RevokedAt.is_null()).exec(&tx).await.map_err(token_error())?;
        tx.commit().await.map_err(token_error())?;
        if changed.rows_affected == 0 {
            let message = format!("token {id} does not exist or is revoked already");
            return Err(StoreError::new(StoreErrorKind::Unknown, message, "`assay token list` lists them"));
        }
        Ok(())
    }
}
