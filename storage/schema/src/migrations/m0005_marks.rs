//! Tags and note of a run, and the commit of its workflow file.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0005_marks"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let columns = [
            ColumnDef::new("tags").json().not_null().default("[]").to_owned(),
            ColumnDef::new("note").text().not_null().default("").to_owned(),
            ColumnDef::new("git_commit").string().null().to_owned(),
            ColumnDef::new("git_dirty").boolean().null().to_owned(),
        ];
        for column in columns {
            manager.alter_table(Table::alter().table("runs").add_column(column).to_owned()).await?;
        }
        Ok(())
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}
