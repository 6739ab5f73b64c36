//! The migrations, one file each, in the order in which they apply.

mod m0001_begin;
mod m0002_cells;
mod m0003_verifications;
mod m0004_claims;
mod m0005_marks;
mod m0006_lab;
mod m0007_tracking;
mod m0008_audit_log;
mod migrator;

pub use migrator::{Migrator, known};
