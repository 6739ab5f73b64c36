//! The tables of a store, as sea-orm entities, and the migrations that make them.
//!
//! Invariants:
//! - A migration that has been released is never edited. What changes is a new file in `migrations/`, and a line in
//!   [`Migrator::migrations`].
//! - Migrations only go forward.
//! - A store that was migrated from nothing and one that is built from the entities have the same columns, keys and
//!   indices; a test compares the two.
//! - States and classes are stored by their names, numbers that SQLite would round or refuse by their bits.
//!
//! Nothing here knows what the tables are for: that is `assay-store`'s.

mod entities;
mod migrations;

pub use entities::{
    artifact, attempt, cache, claim, create_statements, experiment, journal, log, metric_point, node, report, run,
    segment, submission, task, token, tracked_metric, tracked_run, verification,
};
pub use migrations::{Migrator, known};
