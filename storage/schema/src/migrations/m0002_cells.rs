//! Tasks store the name of their cell, so that no code parses addresses.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0002_cells"
    }
}

/// The addresses of earlier stores end with `#` and the replicate if the task has one, which the row stores as a
/// number. So exactly this suffix is removed, whatever else the address contains.
const NAME_CELLS: &str = "update tasks set cell = iif(replicate is null, address, \
     substr(address, 1, length(address) - length('#' || replicate)))";

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let cell = ColumnDef::new("cell").string().not_null().default("").to_owned();
        manager.alter_table(Table::alter().table("tasks").add_column(cell).to_owned()).await?;
        manager.get_connection().execute_unprepared(NAME_CELLS).await?;
        Ok(())
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}
