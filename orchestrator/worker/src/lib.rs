//! The node agent: runs attempts in executors and forwards their reports.
//!
//! A worker never runs a step in its own address space: a CUDA fault, an OOM kill or a panic costs one attempt, never
//! the node. It never schedules tasks, and it never opens the store.

pub mod link;
mod machine;
mod node;
mod remote;

pub use machine::{Blocker, Claim, MACHINE, Machine, Need, Queued};
pub use node::{FindExecutor, run_node};
pub use remote::{RemoteError, RemoteSettings, ServerAddress, TransferError, Transport, hash_file, run_remote};
