//! Adds the data that a server needs to resume after a restart: submissions, worker nodes, the latest report of each attempt, and tokens.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0006_lab"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [submissions(), nodes(), reports(), tokens()] {
            manager.create_table(table).await?;
        }
        Ok(())
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}

fn integer(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).big_integer().not_null().to_owned()
}

fn submissions() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("submissions").col(integer("run").primary_key().to_owned());
    table.col(ColumnDef::new("content").text().not_null());
    table
}

fn nodes() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("nodes").col(integer("id").primary_key().to_owned());
    table.col(ColumnDef::new("content").text().not_null());
    table.col(ColumnDef::new("gone").boolean().not_null());
    table
}

fn reports() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("reports");
    for column in ["run", "ix", "epoch", "seq"] {
        table.col(integer(column));
    }
    table.primary_key(Index::create().col("run").col("ix").col("epoch"));
    table
}

fn tokens() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("tokens").col(ColumnDef::new("id").big_integer().not_null().auto_increment().primary_key());
    table.col(ColumnDef::new("hash").string().not_null());
    table.col(ColumnDef::new("scope").string().not_null());
    table.col(integer("created_at"));
    for column in ["expires_at", "revoked_at"] {
        table.col(ColumnDef::new(column).big_integer().null());
    }
    table
}
