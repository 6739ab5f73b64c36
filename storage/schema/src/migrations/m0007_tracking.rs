//! Runs of MLflow clients: experiments, the clients' data of their runs, and the time of each metric point.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

/// Clients expect this experiment: it is the default of runs.
const DEFAULT_EXPERIMENT: &str = "insert into experiments (id, name, location, deleted, tags, created_at, updated_at) \
     select 0, 'Default', '', false, '{}', now, now from (select cast(strftime('%s', 'now') as integer) * 1000 as now)";

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0007_tracking"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let origin = ColumnDef::new("origin").string().not_null().default("workflow").to_owned();
        manager.alter_table(Table::alter().table("runs").add_column(origin).to_owned()).await?;
        let at = ColumnDef::new("at").big_integer().null().to_owned();
        manager.alter_table(Table::alter().table("metric_points").add_column(at).to_owned()).await?;
        for table in [experiments(), tracked_runs(), tracked_metrics()] {
            manager.create_table(table).await?;
        }
        let by_experiment =
            Index::create().name("idx-tracked_runs-experiment").table("tracked_runs").col("experiment").to_owned();
        manager.create_index(by_experiment).await?;
        manager.get_connection().execute_unprepared(DEFAULT_EXPERIMENT).await?;
        Ok(())
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}

fn integer(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).big_integer().not_null().to_owned()
}

fn string(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).string().not_null().to_owned()
}

fn experiments() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("experiments");
    table.col(ColumnDef::new("id").big_integer().not_null().auto_increment().primary_key());
    table.col(ColumnDef::new("name").string().not_null().unique_key());
    table.col(string("location"));
    table.col(ColumnDef::new("deleted").boolean().not_null());
    table.col(ColumnDef::new("tags").json().not_null());
    table.col(integer("created_at")).col(integer("updated_at"));
    table
}

fn tracked_runs() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("tracked_runs").col(integer("run").primary_key());
    table.col(ColumnDef::new("key").string().not_null().unique_key());
    table.col(integer("experiment")).col(string("user")).col(string("status"));
    table.col(integer("start_time")).col(ColumnDef::new("end_time").big_integer().null());
    table.col(ColumnDef::new("deleted").boolean().not_null());
    table.col(ColumnDef::new("tags").json().not_null()).col(ColumnDef::new("inputs").json().not_null());
    table.foreign_key(ForeignKey::create().name("fk-tracked_runs-run").from("tracked_runs", "run").to("runs", "id"));
    table
}

fn tracked_metrics() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("tracked_metrics");
    table.col(integer("run")).col(string("name")).col(integer("step")).col(integer("at")).col(integer("bits"));
    table.primary_key(Index::create().col("run").col("name"));
    table.foreign_key(
        ForeignKey::create().name("fk-tracked_metrics-run").from("tracked_metrics", "run").to("runs", "id"),
    );
    table
}
