//! `assay verify`: every hash in the store, computed again.

use std::path::Path;
use std::process::ExitCode;

use assay_spec::printable;
use assay_statistics::format;

use crate::cli::CommandError;
use crate::terminal::print_line;

pub async fn run(home: &Path, as_json: bool) -> Result<ExitCode, CommandError> {
    // The files are read in any case; only where the store can be written is it remembered.
    let store = super::existing_store(home).await?;
    let audit = store.audit_files().await?;
    if as_json {
        super::print_json(&serde_json::to_value(&audit)?)?;
    } else {
        for fault in &audit.faults {
            let maker = fault.made_by.as_ref().map(|(run, task)| format!(", made by `{task}` of run {run}"));
            let maker = maker.unwrap_or_default();
            let text = format!("{}{maker}: {} ({})", fault.what, fault.why, fault.path.display());
            super::print_out(&printable(&text))?;
        }
        let (artifacts, segments) = (audit.artifacts, audit.segments);
        let size = format::quantity(audit.bytes as f64, "B");
        let damaged = audit.faults.len();
        print_line(format_args!(
            "{artifacts} artifacts and {segments} metric segments read ({size}); {damaged} damaged"
        ));
        if !audit.faults.is_empty() {
            let advice = "run the workflows again: a task whose stored output is damaged or missing is run again";
            print_line(format_args!("  help: {advice}"));
        }
    }
    Ok(if audit.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
