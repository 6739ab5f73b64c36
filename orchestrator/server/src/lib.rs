//! Drives the core: links to workers, timers, the journal.
//!
//! - Records are written before effects are performed: what a turn of the loop changed is written in one transaction, and
//!   only then are messages sent to workers.
//! - Nothing that a superseded attempt says reaches the store.
//! - The server knows no SQL and no file of the store: it speaks to a [`Ledger`].

mod clock;
mod driver;
mod execute;
mod expand;
mod files;
mod lab;
mod plan;
mod ports;
mod resolve;
mod results;
mod task;
mod unresolved;
mod watch;
mod worker_messages;

pub use execute::{Submission, WorkerLink, execute_run};
pub use files::{Descriptions, expand_files, pin_files};
pub use lab::{
    Connection, History, Hub, HubError, HubSettings, LabLedger, LabSubmission, PastAttempt, PastTask, Pilots,
    PoolSettings, PoolView, Pools, SubmittedFile, TokenSource, WorkerView, path_under,
};
pub use plan::run_plan;
pub use ports::{
    CachedResult, Content, GitState, Ledger, LedgerError, LogLine, Lookup, Marks, NewRun, NewTask, Record,
    RunStateName, TaskStateName,
};
pub use results::{
    AxisEffect, AxisLevel, Best, Candidate, CellValue, Cheapest, Column, Covers, EFFECTS_NOTE, Effects, Excluded,
    Exclusion, Interaction, Measured, Missing, OTHERS_LOAD, ObservationCollector, Observations, ObservedTasks, Power,
    Ranking, ReplicateSeconds, Results, Row, Selection, SweepDesign, TaskResult, VariedAxis, direction_text,
    metric_kind, number_to_json, rank_cells, summarize_values, tabulate_results,
};
pub use watch::{AddedTask, RunEvent, RunReport, TaskReport};
