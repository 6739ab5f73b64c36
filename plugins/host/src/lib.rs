//! Spawns, greets, supervises, times out and kills executors, and the processes that run plugins ([`PluginProcess`]).
//!
//! One attempt of one step is one child process, an *executor*, that sends and receives the frames of `assay-protocol` on
//! its standard input and output. [`run_attempt`] starts it, sends the request, forwards its reports and returns an
//! [`AttemptOutcome`](assay_protocol::AttemptOutcome). It returns no separate error: every problem is the attempt's
//! [`Failure`](assay_protocol::Failure), with a class and a message for people.
//!
//! Invariants:
//!
//! - A step never runs in this address space. Any fault costs one attempt.
//! - When [`run_attempt`] returns, the executor's whole process group is gone; when its future is dropped, the group is
//!   killed. When this process dies, the kernel kills the executor (Linux); on other systems it ends at the end of its
//!   input.
//! - No report reaches the caller before the greeting, after the last report, or with the epoch of another attempt.
//! - The memory used for reports is bounded: a slow consumer makes the executor wait, and neither of the two can delay
//!   the time limit, the memory limit or a stop.
//! - Only the process group's leader is our child, and a signal is sent only while that leader is not reaped, so that
//!   no signal can reach another process with a reused number.

mod artifact;
mod attempt;
mod command;
mod conversation;
mod explain;
mod frames;
mod limits;
mod memory;
mod plugin;
mod plugin_laws;
mod process;
mod stderr;
mod stop;

pub use attempt::{greet_executor, run_attempt};
pub use command::{ExecutorCommand, NotFound};
pub use limits::Limits;
pub use memory::machine_memory;
pub use plugin::{
    PluginCommand, PluginProcess, PluginSequences, ProposedTrials, StepEnd, StepFiles, StepListener, StepReport,
};
pub use plugin_laws::{
    MadeStep, Violation, check_curriculum, check_dataset, check_metric, check_searcher, check_step,
    demonstrate_curriculum, demonstrate_metric, demonstrate_searcher, demonstrate_step,
};
pub use stop::{Stop, StopHandle, StopSignal, stop_channel};
