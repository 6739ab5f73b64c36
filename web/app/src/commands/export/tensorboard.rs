//! A run as event files of TensorBoard: a folder for each task.

use std::collections::BTreeSet;
use std::path::Path;

use assay_steps::event_file::{Scalar, encode_header, encode_scalar, encode_text};

use super::run::ExportedRun;
use super::write_file;
use crate::cli::CommandError;

/// Writes the event files of a run. Tasks without a point are left out.
pub fn write_events(run: &ExportedRun, folder: &Path) -> Result<(), CommandError> {
    let mut names = BTreeSet::new();
    for task in run.tasks.iter().filter(|task| !task.points.is_empty()) {
        let began = task.task.started_at.unwrap_or(run.run.summary.created_at) as f64 / 1000.0;
        let mut content = encode_header(began);
        let rows = run
            .params(&task.task)
            .into_iter()
            .map(|(name, value)| format!("| {} | {} |\n", escape(&name), escape(&value)));
        let text: String = std::iter::once("| parameter | value |\n|---|---|\n".to_owned()).chain(rows).collect();
        content.extend(encode_text(began, "parameters", &text));
        for point in &task.points {
            content.extend(encode_scalar(&Scalar {
                wall_time: point.time.map_or(began, |time| time as f64 / 1000.0),
                step: point.step.cast_signed(),
                tag: point.name.clone(),
                value: point.value,
            }));
        }
        let mut name = folder_name(&task.task.address);
        if !names.insert(name.clone()) {
            name = format!("{name}-{}", task.task.ix);
            names.insert(name.clone());
        }
        let file = format!("events.out.tfevents.{:010}.assay", began as u64);
        write_file(&folder.join(name).join(file), &content)?;
    }
    Ok(())
}

/// A table of Markdown has no line breaks in its cells.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// An address as the name of a folder.
fn folder_name(address: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "_-.=,[]#".contains(c) { c } else { '_' };
    let name: String = address.chars().map(plain).take(150).collect();
    if name.starts_with('.') { format!("_{name}") } else { name }
}
