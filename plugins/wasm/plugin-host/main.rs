//! `assay plugin-host` as a separate program, for the tests of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    let memory = std::env::args().skip_while(|argument| argument != "--memory").nth(1);
    let memory = memory.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    let served = assay_wasm::limit_own_memory(memory).and_then(|()| {
        assay_wasm::serve_plugin(&mut std::io::stdin().lock(), std::io::stdout()).map_err(|e| e.to_string())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
