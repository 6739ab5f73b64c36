//! A server with worker nodes: several runs at the same time, over workers that come and go.
//!
//! Each run has a driver and a core of its own, with its own journal, as in `assay run`. What they share are the workers, which [`Hub`]
//! holds: it knows nothing of a run's tasks, and hands messages between runs and workers. Where several runs give tasks to one worker, the
//! locks of its machine decide who goes first, as between two `assay run` on one machine.
//!
//! - Nothing that a worker reports is acknowledged before it is in the store ([`memory`]).
//! - A worker that is away keeps its attempts for the lease. The hub's clock decides when the lease is over; runs are only told that the
//!   worker left.
//! - After a restart each run is replayed from its journal ([`restore`]) before the server accepts workers.

mod convert;
mod hub;
mod memory;
mod nodes;
mod ports;
mod restore;
mod submission;
mod why;

pub use hub::{Hub, HubError, HubSettings};
pub use nodes::{Connection, WorkerView};
pub use ports::{History, LabLedger, PastAttempt, PastTask};
pub use submission::{LabSubmission, SubmittedFile, path_under};

pub(crate) use memory::{LabInput, LabMemory};
