//! Stores which run does which work, so that another run waits for it.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0004_claims"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut table = Table::create();
        table.table("claims").col(ColumnDef::new("key").string().not_null().primary_key());
        for column in ["run", "ix"] {
            table.col(ColumnDef::new(column).big_integer().not_null());
        }
        manager.create_table(table).await?;
        let by_task =
            Index::create().name("idx-claims-claims-task").table("claims").col("run").col("ix").unique().to_owned();
        manager.create_index(by_task).await
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}
