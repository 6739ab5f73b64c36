//! Drives the core: links to workers, timers, the journal.
//!
//! - Nothing acts before it is remembered: what a turn of the loop changed is written in one transaction, and only
//!   then are workers spoken to.
//! - Nothing that a superseded attempt says reaches the store.
//! - The server knows no SQL and no file of the store: it speaks to a [`Ledger`].

mod clock;
mod driver;
mod execute;
mod files;
mod hear;
mod plan;
mod ports;
mod resolve;
mod results;
mod task;
mod unresolved;
mod watch;

pub use files::expand_files;
pub use execute::{Submission, WorkerLink, execute};
pub use plan::run_plan;
pub use ports::{
    CachedResult, Content, GitState, Ledger, LedgerError, LogLine, Lookup, Marks, NewRun, NewTask, Record,
    RunStateName, TaskStateName,
};
pub use results::{
    Best, CellValue, Column, Covers, Measured, Ranking, Results, Row, Selection, TaskResult, direction, measured,
    metric_kind, number, rank, results,
};
pub use watch::{RunEvent, RunReport, TaskReport};
