//! The migrations, one file each, in the order in which they apply.

mod m0001_begin;
mod m0002_verifications;
mod m0003_claims;
mod m0004_marks;
mod migrator;

pub use migrator::{Migrator, known};
