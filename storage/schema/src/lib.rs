//! The tables of a store, as sea-orm entities, and the migrations that create them.
//!
//! Invariants:
//! - A released migration is never edited. A change is a new file in `migrations/`, and a line in
//!   [`Migrator::migrations`].
//! - There are no down migrations.
//! - A migrated empty store and a store that is created from the entities have the same columns, keys and indices; a
//!   test compares the two.
//! - States and classes are stored by name; numbers that SQLite would round or refuse are stored as bits.
//!
//! This crate does not know the purpose of the tables; `assay-store` does.

mod entities;
mod migrations;

pub use entities::{
    artifact, attempt, audit_log, cache, claim, create_statements, experiment, journal, log, metric_point, node,
    report, run, segment, submission, task, token, tracked_metric, tracked_run, verification,
};
pub use migrations::{Migrator, known};
