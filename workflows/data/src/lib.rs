//! Readers of datasets as published by their authors, and generators of datasets that are published as programs. Nothing is
//! downloaded; every reader receives a path.
//!
//! [`Files`] finds and decompresses the files of a folder or an archive. On top of it is a module for each kind of data. Readers do not
//! depend on models or steps: they return the content of the files, or a [`DataError`] that names the file and the record.
//!
//! Invariants: no content of a file makes a reader panic, and content that is not understood is an error, never silently skipped.

mod error;
mod files;
mod walk;

pub mod babi;
pub mod images;
pub mod lra;
pub mod pathfinder;
pub mod table;
pub mod text;

pub use error::DataError;
pub use files::{Digest, Files, Section, WHOLE, base};
pub use walk::{FoundFile, Walk, is_hidden};
