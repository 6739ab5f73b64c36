//! Stores which artifacts were verified, so that an unchanged large file is not hashed again.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0003_verifications"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut table = Table::create();
        table.table("verifications").col(ColumnDef::new("hash").string().not_null().primary_key());
        for column in ["bytes", "inode", "modified_at", "changed_at"] {
            table.col(ColumnDef::new(column).big_integer().not_null());
        }
        manager.create_table(table).await
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}
