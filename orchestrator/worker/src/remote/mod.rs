//! A worker on a different machine from its server: the node of `assay run`, with a network connection instead of a pair of channels.
//!
//! - The worker only makes outgoing connections, to one port: a WebSocket for messages, and HTTP for files.
//! - A broken connection does not stop tasks. Reports wait in one file per attempt ([`spool`]) until the server has acknowledged
//!   them, and the worker reconnects with growing delays.
//! - With an `https://` address, both use TLS ([`tls`]).
//! - Every transferred file is named by its BLAKE3 hash, which both ends compute.

mod address;
mod cache;
mod connection;
mod files;
mod folders;
mod relay;
mod session;
mod spool;
mod tls;

pub use address::ServerAddress;
pub use files::{TransferError, Transport, hash_file};
pub use session::{RemoteError, RemoteSettings, run_remote};
