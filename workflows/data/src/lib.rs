//! Readers of datasets as their authors publish them, and generators of those that are published as programs. Nothing is downloaded;
//! every reader is given a path.
//!
//! [`Files`] finds and decompresses the files of a folder or an archive. Above it is a module for each kind of data. A reader
//! knows no model and no step: it returns what the files hold, or a [`DataError`] that names the file and the record.
//!
//! Invariants: no content of a file makes a reader panic, and what is not understood is refused and never left out silently.

mod error;
mod files;
mod walk;

pub mod babi;
pub mod images;
pub mod lra;
pub mod pathfinder;
pub mod table;

pub use error::DataError;
pub use files::{Digest, Files, Section, WHOLE, base};
pub use walk::{FoundFile, Walk, is_hidden};
