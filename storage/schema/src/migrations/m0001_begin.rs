//! The first schema.

use sea_orm_migration::prelude::*;

/// The migration of this module.
pub struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0001_begin"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in [runs(), tasks(), attempts(), journal(), logs(), metric_points(), segments(), artifacts(), cache()]
        {
            manager.create_table(table).await?;
        }
        let by_state = Index::create().name("idx-runs-state").table("runs").col("state").to_owned();
        manager.create_index(by_state).await?;
        let by_address = Index::create()
            .name("idx-tasks-tasks-address")
            .table("tasks")
            .col("run")
            .col("address")
            .unique()
            .to_owned();
        manager.create_index(by_address).await
    }

    fn use_transaction(&self) -> Option<bool> {
        Some(true)
    }
}

fn integer(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).big_integer().not_null().to_owned()
}

fn maybe_integer(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).big_integer().null().to_owned()
}

fn string(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).string().not_null().to_owned()
}

fn maybe_string(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).string().null().to_owned()
}

fn text(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).text().not_null().to_owned()
}

fn maybe_text(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).text().null().to_owned()
}

fn json(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).json().not_null().to_owned()
}

fn maybe_json(name: &'static str) -> ColumnDef {
    ColumnDef::new(name).json().null().to_owned()
}

fn table(name: &'static str, columns: impl IntoIterator<Item = ColumnDef>) -> TableCreateStatement {
    let mut table = Table::create();
    table.table(name);
    for column in columns {
        table.col(column);
    }
    table
}

/// A table whose rows belong to a run.
fn child(
    name: &'static str,
    key: &[&'static str],
    columns: impl IntoIterator<Item = ColumnDef>,
) -> TableCreateStatement {
    let mut table = table(name, columns);
    let mut primary = Index::create();
    for column in key {
        primary.col(*column);
    }
    table.primary_key(&mut primary);
    table.foreign_key(ForeignKey::create().name(format!("fk-{name}-run")).from(name, "run").to("runs", "id"));
    table
}

fn runs() -> TableCreateStatement {
    table(
        "runs",
        [
            ColumnDef::new("id").big_integer().not_null().auto_increment().primary_key().to_owned(),
            string("name"),
            string("file"),
            text("source"),
            json("params"),
            json("machine"),
            string("version"),
            string("session"),
            string("state"),
            integer("created_at"),
            maybe_integer("ended_at"),
        ],
    )
}

fn tasks() -> TableCreateStatement {
    let columns = [
        integer("run"),
        integer("ix"),
        string("address"),
        string("job"),
        string("kind"),
        json("matrix"),
        maybe_integer("replicate"),
        json("needs"),
        maybe_integer("each_of"),
        string("state"),
        text("detail"),
        maybe_json("config"),
        maybe_string("cache_key"),
        maybe_json("outputs"),
        maybe_json("metrics"),
        maybe_integer("source_run"),
        maybe_integer("source_ix"),
        maybe_integer("source_epoch"),
        integer("attempts"),
        maybe_integer("started_at"),
        maybe_integer("ended_at"),
    ];
    child("tasks", &["run", "ix"], columns)
}

fn attempts() -> TableCreateStatement {
    let columns = [
        integer("run"),
        integer("ix"),
        integer("epoch"),
        string("worker"),
        string("backend"),
        maybe_json("executor"),
        maybe_string("failure_class"),
        maybe_text("failure_message"),
        maybe_text("failure_hint"),
        integer("began_at"),
        maybe_integer("ended_at"),
    ];
    child("attempts", &["run", "ix", "epoch"], columns)
}

fn journal() -> TableCreateStatement {
    child("journal", &["run", "seq"], [integer("run"), integer("seq"), text("entry")])
}

fn logs() -> TableCreateStatement {
    let columns =
        [integer("run"), integer("ix"), integer("seq"), integer("epoch"), integer("at"), string("level"), text("text")];
    child("logs", &["run", "ix", "seq"], columns)
}

fn metric_points() -> TableCreateStatement {
    let columns = [
        integer("run"),
        integer("ix"),
        integer("epoch"),
        integer("seq"),
        string("name"),
        integer("step"),
        integer("bits"),
    ];
    child("metric_points", &["run", "ix", "epoch", "seq"], columns)
}

fn segments() -> TableCreateStatement {
    let columns = [
        integer("run"),
        integer("ix"),
        integer("epoch"),
        string("path"),
        string("hash"),
        integer("points"),
        json("series"),
    ];
    child("segments", &["run", "ix", "epoch"], columns)
}

fn artifacts() -> TableCreateStatement {
    let columns = [
        ColumnDef::new("hash").string().not_null().primary_key().to_owned(),
        string("name"),
        integer("bytes"),
        integer("created_at"),
    ];
    table("artifacts", columns)
}

fn cache() -> TableCreateStatement {
    let columns = [
        ColumnDef::new("key").string().not_null().primary_key().to_owned(),
        integer("run"),
        integer("ix"),
        integer("epoch"),
    ];
    let mut table = table("cache", columns);
    table.foreign_key(ForeignKey::create().name("fk-cache-run").from("cache", "run").to("runs", "id"));
    table
}
