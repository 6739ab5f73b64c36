//! How the program ends: an exit code for each kind of end that a script may want to distinguish.

use assay_server::{LedgerError, RunReport, RunStateName};
use assay_store::{StoreError, StoreErrorKind};

use crate::cli::CommandError;

/// The command or its file is wrong, or what it needs is not there.
const WRONG: u8 = 2;
/// A comparison found a regression.
pub const REGRESSION: u8 = 1;
/// The disk is full: ENOSPC on Linux.
const DISK_FULL: u8 = 28;
/// A person stopped the run, as shells have it for SIGINT.
pub const INTERRUPTED: u8 = 130;

/// What the operating system says of a full disk, wherever a message quotes it.
const NO_SPACE: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// The exit code of a command that could not be carried out.
pub fn code_of_error(error: &CommandError) -> u8 {
    let store = error.downcast_ref::<StoreError>().is_some_and(|error| error.kind() == StoreErrorKind::NoSpace);
    let ledger = error.downcast_ref::<LedgerError>().is_some_and(LedgerError::is_disk_full);
    if store || ledger || is_disk_full(&error.to_string()) { DISK_FULL } else { WRONG }
}

/// The exit code of a run that is over.
pub fn code_of_run(report: &RunReport) -> u8 {
    let full = |task: &assay_server::TaskReport| task.error.as_ref().is_some_and(|error| is_disk_full(&error.message));
    match report.state {
        RunStateName::Succeeded => 0,
        RunStateName::Cancelled => INTERRUPTED,
        _ if report.tasks.iter().any(full) => DISK_FULL,
        _ => 1,
    }
}

/// Whether a message reports a full disk. A step quotes the operating system's message in its own error.
fn is_disk_full(message: &str) -> bool {
    NO_SPACE.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_code_of_its_own() {
        let full: CommandError =
            LedgerError::disk_full("cannot write the events: database or disk is full".into()).into();
        assert_eq!(code_of_error(&full), 28);
        let full: CommandError = std::io::Error::from_raw_os_error(28).into();
        assert_eq!(code_of_error(&full), 28);
        let other: CommandError = LedgerError::new("the store is locked".into()).into();
        assert_eq!(code_of_error(&other), 2);
    }
}
