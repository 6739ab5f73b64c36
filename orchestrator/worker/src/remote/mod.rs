//! A worker on another machine than its server: the same node as in `assay run`, with a connection in the place of a pair of channels.
//!
//! - The worker only connects outwards, to one port: a WebSocket for messages, and HTTP for files.
//! - A connection that breaks stops nothing. Reports wait in a file for each attempt ([`spool`]) until the server has acknowledged them,
//!   and the worker tries to come back with growing pauses.
//! - Every file that comes or goes is named by its BLAKE3 hash, which both ends compute.

mod cache;
mod connection;
mod files;
mod folders;
mod relay;
mod session;
mod spool;

pub use files::{ServerAddress, TransferError, Transport};
pub use session::{RemoteError, RemoteSettings, run_remote};
