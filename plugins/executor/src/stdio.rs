//! Taking standard input and output away from everybody else in the process.

use std::fs::File;
use std::io;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// The process's own pipes.
pub(crate) struct Pipes {
    pub(crate) input: File,
    pub(crate) output: File,
}

/// Takes both pipes. From here on, what is printed goes to standard error, what is read is empty, and processes that the
/// step starts inherit neither pipe.
///
/// # Errors
/// What the operating system says, for example if standard output is closed.
pub(crate) fn take_pipes() -> io::Result<Pipes> {
    /// Descriptors below belong to the standard streams.
    const FIRST_FREE: i32 = 3;
    let input = File::from(fcntl_dupfd_cloexec(stdin(), FIRST_FREE)?);
    let output = File::from(fcntl_dupfd_cloexec(stdout(), FIRST_FREE)?);
    dup2_stdout(stderr())?;
    // The writing end is closed, so every read ends at once. `/dev/null` would do the same, but a container may lack it or
    // have a regular file with content in its place.
    let (ended, _) = io::pipe()?;
    dup2_stdin(ended)?;
    Ok(Pipes { input, output })
}
