//! A server with worker nodes: several runs at the same time, over workers that come and go.
//!
//! Each run has its own driver, core and journal, as in `assay run`. Runs share only the workers, which [`Hub`] holds: it passes
//! messages between runs and workers, and divides the workers between the runs ([`share`]).
//!
//! - Nothing that a worker reports is acknowledged before it is in the store ([`memory`]).
//! - A worker that is away keeps its attempts for the lease. The hub's clock decides when the lease has expired; runs are only told
//!   that the worker left.
//! - After a restart each run is replayed from its journal ([`restore`]) before the server accepts workers.

mod convert;
mod hub;
mod memory;
mod nodes;
mod pools;
mod ports;
mod restore;
mod roster;
mod share;
#[cfg(test)]
mod share_tests;
mod submission;
mod why;

pub use hub::{Hub, HubError, HubSettings};
pub use nodes::{Connection, WorkerView};
pub use pools::{Pilots, PoolSettings, PoolView, Pools, TokenSource};
pub use ports::{History, LabLedger, PastAttempt, PastTask};
pub use submission::{LabSubmission, SubmittedFile, path_under};

pub(crate) use memory::{LabInput, LabMemory};
