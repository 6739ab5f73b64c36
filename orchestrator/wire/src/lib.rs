//! The messages between a server and its worker nodes, and nothing else.
//!
//! A worker opens one WebSocket to its server, and each text message on it is one JSON object: a [`ToServer`] or a [`ToWorker`]. The
//! worker speaks first, with [`Register`]. Files are not sent here but over HTTP, by their BLAKE3 hashes.
//!
//! # What makes a lost connection harmless
//!
//! - Every [`AttemptReport`] names its attempt, with its epoch, and has a number that counts from 1 within the attempt. A worker keeps
//!   a report until the server acknowledges its number; the server does so only after the report is in its database. A report that
//!   comes twice is recognized by its number.
//! - A worker identifies itself by its *life*: random text that is new whenever its process starts, and after the server gave it up. When
//!   the same life registers again, its attempts are still running.
//! - [`Register`] lists the attempts that the worker holds. What the server wanted from them meanwhile is sent after
//!   [`ToWorker::Welcome`].

mod limits;
mod messages;
mod names;

pub use limits::{MAX_BATCH, MAX_MESSAGE, WireError, decode, encode};
pub use messages::{
    Assignment, AttemptReport, Ended, FileRef, Held, Register, ReportBody, ToServer, ToWorker, UploadedFile, WIRE,
};
pub use names::{is_file_name, is_hash, is_relative_path};
