//! Reserves standard input and output of the process for the protocol.

use std::fs::File;
use std::io;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// The pipes of the protocol.
pub(crate) struct Pipes {
    pub(crate) input: File,
    pub(crate) output: File,
}

/// Takes both pipes. From here on, printed text goes to standard error, standard input is empty, and child processes of
/// the step inherit neither pipe.
///
/// # Errors
/// The error of the operating system, for example if standard output is closed.
pub(crate) fn take_pipes() -> io::Result<Pipes> {
    /// Smaller descriptors belong to the standard streams.
    const FIRST_FREE: i32 = 3;
    let input = File::from(fcntl_dupfd_cloexec(stdin(), FIRST_FREE)?);
    let output = File::from(fcntl_dupfd_cloexec(stdout(), FIRST_FREE)?);
    dup2_stdout(stderr())?;
    // The writing end is closed, so every read ends immediately. `/dev/null` would also work, but a container may lack it
    // or have a regular file with content in its place.
    let (ended, _) = io::pipe()?;
    dup2_stdin(ended)?;
    Ok(Pipes { input, output })
}
