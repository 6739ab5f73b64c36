//! The migrated schema equals that of the entities, and migrating twice is safe.

use std::collections::BTreeMap;

use assay_schema::{Migrator, create_statements, known};
use sea_orm::{ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement};
use sea_orm_migration::MigratorTrait;

async fn memory() -> DatabaseConnection {
    let mut options = ConnectOptions::new("sqlite::memory:");
    options.max_connections(1);
    Database::connect(options).await.unwrap()
}

async fn migrated() -> DatabaseConnection {
    let db = memory().await;
    Migrator::up(&db, None).await.unwrap();
    db
}

async fn fresh() -> DatabaseConnection {
    let db = memory().await;
    for (table, indices) in create_statements(DbBackend::Sqlite) {
        db.execute(&table).await.unwrap();
        for index in indices {
            db.execute(&index).await.unwrap();
        }
    }
    db
}

/// The rows of a query with one text column.
async fn ask(db: &DatabaseConnection, sql: &str) -> Vec<String> {
    let rows = db.query_all_raw(Statement::from_string(DbBackend::Sqlite, sql)).await.unwrap();
    rows.iter().map(|row| row.try_get_by_index(0).unwrap()).collect()
}

/// All properties of a schema that affect the data that can be stored, by table.
async fn describe(db: &DatabaseConnection) -> BTreeMap<String, Vec<String>> {
    let tables = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' \
                  and name <> 'seaql_migrations' order by name";
    let mut found = BTreeMap::new();
    for table in ask(db, tables).await {
        let columns = format!(
            "select name || ' ' || type || iif(\"notnull\", '', ' null') || iif(pk, ' key ' || pk, '') \
             from pragma_table_info('{table}') order by cid"
        );
        let parents = format!(
            "select 'foreign key ' || \"from\" || ' -> ' || \"table\" || '.' || \"to\" \
             from pragma_foreign_key_list('{table}')"
        );
        let indices = format!(
            "select iif(l.\"unique\", 'unique ', '') || 'index ' || l.name || ' ' || i.seqno || ' ' || i.name \
             from pragma_index_list('{table}') l, pragma_index_info(l.name) i order by l.name, i.seqno"
        );
        let mut lines = ask(db, &columns).await;
        lines.extend(ask(db, &parents).await);
        lines.extend(ask(db, &indices).await);
        found.insert(table, lines);
    }
    found
}

#[tokio::test]
async fn the_migrations_arrive_at_the_entities() {
    let (migrated, fresh) = (describe(&migrated().await).await, describe(&fresh().await).await);
    assert_eq!(migrated.len(), 19, "{:?}", migrated.keys());
    assert_eq!(migrated, fresh);
}

#[tokio::test]
async fn the_schema_is_the_reviewed_one() {
    let lines: Vec<String> = describe(&migrated().await)
        .await
        .into_iter()
        .map(|(table, lines)| format!("{table}\n  {}", lines.join("\n  ")))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let db = migrated().await;
    let before = describe(&db).await;
    Migrator::up(&db, None).await.unwrap();
    assert_eq!(describe(&db).await, before);
    assert_eq!(ask(&db, "select version from seaql_migrations order by version").await, known());
}

#[tokio::test]
async fn migrations_only_go_forward() {
    let db = migrated().await;
    assert!(Migrator::down(&db, None).await.is_err());
    assert_eq!(describe(&db).await.len(), 18);
}

#[tokio::test]
async fn the_cells_of_an_earlier_store_are_named() {
    let db = memory().await;
    Migrator::up(&db, Some(1)).await.unwrap();
    let insert = |ix: u32, address: &str, replicate: &str| {
        format!(
            "insert into tasks (run, ix, address, job, kind, matrix, replicate, needs, state, detail, attempts) \
             values (1, {ix}, '{address}', 'train', 'train', '{{}}', {replicate}, '[]', 'waiting', '', 0)"
        )
    };
    db.execute_unprepared(
        "insert into runs (id, name, file, source, params, machine, version, session, state, created_at) \
         values (1, 'a', 'a', 'a', '{}', '{}', 'a', 'a', 'running', 0)",
    )
    .await
    .unwrap();
    for (ix, address, replicate) in
        [(0, "data", "null"), (1, "train[tag=\"a#1\"]", "null"), (2, "train[tag=\"a#1\"]#12", "12")]
    {
        db.execute_unprepared(&insert(ix, address, replicate)).await.unwrap();
    }
    Migrator::up(&db, None).await.unwrap();
    let cells = ask(&db, "select cell from tasks order by ix").await;
    assert_eq!(cells, ["data", "train[tag=\"a#1\"]", "train[tag=\"a#1\"]"]);
}
