//! The list of migrations.

use sea_orm_migration::{MigrationTrait, MigratorTrait};

use super::{
    m0001_begin, m0002_cells, m0003_verifications, m0004_claims, m0005_marks, m0006_lab, m0007_tracking,
    m0008_audit_log,
};

/// Migrates a database to the current schema.
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m0001_begin::Migration),
            Box::new(m0002_cells::Migration),
            Box::new(m0003_verifications::Migration),
            Box::new(m0004_claims::Migration),
            Box::new(m0005_marks::Migration),
            Box::new(m0006_lab::Migration),
            Box::new(m0007_tracking::Migration),
            Box::new(m0008_audit_log::Migration),
        ]
    }
}

/// The names of the migrations that this version of Assay knows, in order.
#[must_use]
pub fn known() -> Vec<String> {
    Migrator::migrations().iter().map(|migration| migration.name().to_owned()).collect()
}
