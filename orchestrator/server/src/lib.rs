//! Drives the core: links to workers, timers, the journal.

mod ports;

pub use ports::{CachedResult, Ledger, LedgerError, LogLine, NewRun, NewTask, Record, RunStateName, TaskStateName};
