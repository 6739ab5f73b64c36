//! Adds the audit log of a server: who changed what.

use sea_orm_migration::prelude::*;

/// See the module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0008_audit_log"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut table = Table::create();
        table.table("audit_log").col(ColumnDef::new("id").big_integer().not_null().auto_increment().primary_key());
        table.col(ColumnDef::new("at").big_integer().not_null());
        table.col(ColumnDef::new("token").big_integer().null());
        for column in ["origin", "action", "result"] {
            table.col(ColumnDef::new(column).string().not_null());
        }
        manager.create_table(table).await
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}
