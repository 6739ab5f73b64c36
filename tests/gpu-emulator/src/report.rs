//! Reports problems, to people on standard error and to tests in a file.

use std::io::Write;

use crate::settings::settings;

/// Reports a problem, in one line.
pub(crate) fn report(text: &str) {
    eprintln!("gpu-emulator: {text}");
    let Some(file) = &settings().report else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
    // One write, so that the lines of several processes do not mix.
    let written = file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
    if let Err(error) = written {
        eprintln!("gpu-emulator: the report cannot be written: {error}");
    }
}
