//! `assay verify`: every hash in the store, computed again.

use std::path::Path;
use std::process::ExitCode;

use assay_statistics::format;

use crate::cli::CommandError;

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
            super::print_out(&format!("{}{maker}: {} ({})", fault.what, fault.why, fault.path.display()))?;
        }
        let (artifacts, segments) = (audit.artifacts, audit.segments);
        let size = format::quantity(audit.bytes as f64, "B");
        eprintln!("{artifacts} artifacts and {segments} metric segments read ({size}); {} damaged", audit.faults.len());
        if !audit.faults.is_empty() {
            eprintln!("  help: run the workflows again: a task whose stored output is damaged or missing is run again");
        }
    }
    Ok(if audit.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
