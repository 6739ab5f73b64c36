//! A run as a file store of MLflow: an experiment, with one run for each task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use assay_server::TaskStateName;
use assay_store::{Content, LONGEST_PARAM, OutputView, Store};

use super::run::{ExportedRun, ExportedTask};
use super::write_file;
use crate::cli::CommandError;

/// Writes the store. `folder` is what clients know as `mlruns`.
pub async fn write_store(store: &Store, run: &ExportedRun, folder: &Path) -> Result<(), CommandError> {
    let summary = &run.run.summary;
    let experiment = summary.id.to_string();
    let place = folder.join(&experiment);
    let meta = [
        ("artifact_location", text(&location(&place)?)),
        ("creation_time", summary.created_at.to_string()),
        ("experiment_id", text(&experiment)),
        ("last_update_time", summary.ended_at.unwrap_or(summary.created_at).to_string()),
        ("lifecycle_stage", "active".to_owned()),
        ("name", text(&format!("{} (run {})", summary.name, summary.id))),
    ];
    write_file(&place.join("meta.yaml"), mapping(&meta).as_bytes())?;
    for task in &run.tasks {
        write_task(store, run, task, &place).await?;
    }
    Ok(())
}

async fn write_task(
    store: &Store,
    run: &ExportedRun,
    exported: &ExportedTask,
    place: &Path,
) -> Result<(), CommandError> {
    let (task, summary) = (&exported.task, &run.run.summary);
    let identity = format!("assay run {} task {} {}", summary.id, task.ix, task.address);
    let id = &blake3::hash(identity.as_bytes()).to_hex()[..32];
    let folder = place.join(id);
    let began = task.started_at.unwrap_or(summary.created_at);
    let meta = [
        ("artifact_uri", text(&format!("{}/{id}/artifacts", location(place)?))),
        ("end_time", task.ended_at.map_or_else(|| "null".to_owned(), |time| time.to_string())),
        ("entry_point_name", text("")),
        ("experiment_id", text(&summary.id.to_string())),
        ("lifecycle_stage", "active".to_owned()),
        ("run_id", text(id)),
        ("run_name", text(&task.address)),
        ("run_uuid", text(id)),
        ("source_name", text("")),
        ("source_type", "4".to_owned()),
        ("source_version", text("")),
        ("start_time", began.to_string()),
        ("status", status(task.state).to_string()),
        ("tags", "[]".to_owned()),
        ("user_id", text("assay")),
    ];
    write_file(&folder.join("meta.yaml"), mapping(&meta).as_bytes())?;
    for kind in ["artifacts", "metrics", "params", "tags"] {
        std::fs::create_dir_all(folder.join(kind))?;
    }
    let mut taken = BTreeSet::new();
    for (name, value) in run.params(task) {
        let value: String = value.chars().take(LONGEST_PARAM).collect();
        write_file(&folder.join("params").join(unused_key(&name, &mut taken)), value.as_bytes())?;
    }
    let tags = [
        ("mlflow.runName", task.address.clone()),
        ("mlflow.note.content", summary.note.clone()),
        ("assay.run", summary.id.to_string()),
        ("assay.job", task.job.clone()),
        ("assay.kind", task.kind.clone()),
        ("assay.cell", task.cell.clone()),
        ("assay.state", task.state.name().to_owned()),
        ("assay.version", summary.version.clone()),
    ];
    for (name, value) in tags.iter().filter(|(_, value)| !value.is_empty()) {
        write_file(&folder.join("tags").join(name), value.as_bytes())?;
    }
    let mut curves: BTreeMap<&str, String> = BTreeMap::new();
    for point in &exported.points {
        let time = point.time.unwrap_or(began.cast_signed());
        let line = format!("{time} {} {}\n", number(point.value), point.step.cast_signed());
        curves.entry(&point.name).or_default().push_str(&line);
    }
    let mut taken = BTreeSet::new();
    for (name, lines) in curves {
        write_file(&folder.join("metrics").join(unused_key(name, &mut taken)), lines.as_bytes())?;
    }
    copy_files(store, exported, &folder.join("artifacts")).await
}

/// Copies the files that a task made. One that is damaged or gone is an error: the export would be incomplete.
async fn copy_files(store: &Store, exported: &ExportedTask, folder: &Path) -> Result<(), CommandError> {
    for (output, value) in &exported.task.outputs {
        let OutputView::Artifact { hash, name, .. } = value else { continue };
        let from = match store.verify_artifact(hash).await? {
            Content::Whole(path) => path,
            Content::Lost { why } => {
                return Err(format!("the output `{output}` ({name}) cannot be exported: {why}").into());
            }
        };
        let to = folder.join(if exported.task.kind == "mlflow" {
            inner_path(output)
        } else {
            format!("{}/{}", inner_path(output), inner_path(name))
        });
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut file =
            std::fs::File::create(&to).map_err(|error| format!("cannot write `{}`: {error}", to.display()))?;
        std::io::copy(&mut std::fs::File::open(from)?, &mut file)?;
    }
    Ok(())
}

/// The number of a status, as file stores write it.
fn status(state: TaskStateName) -> u8 {
    match state {
        TaskStateName::Running | TaskStateName::BackingOff => 1,
        TaskStateName::Waiting | TaskStateName::Ready => 2,
        TaskStateName::Succeeded | TaskStateName::Cached => 3,
        TaskStateName::Failed => 4,
        TaskStateName::Skipped | TaskStateName::Cancelled => 5,
    }
}

/// The URI of a folder.
fn location(folder: &Path) -> Result<String, CommandError> {
    let path = std::path::absolute(folder)?;
    let escaped =
        path.display().to_string().replace('%', "%25").replace(' ', "%20").replace('#', "%23").replace('?', "%3F");
    Ok(format!("file://{escaped}"))
}

/// A text as YAML: JSON's texts are YAML.
fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

fn mapping(fields: &[(&str, String)]) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// A number as Python reads it.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "nan".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        value => format!("{value:?}"),
    }
}

/// A name as clients accept it, which is a path as well: other characters become `_`.
fn key(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "_-./ ".contains(c) { c } else { '_' };
    inner_path(&name.chars().map(plain).take(250).collect::<String>())
}

/// The key of a name, with a number if another name has the same key: no file replaces another one.
fn unused_key(name: &str, taken: &mut BTreeSet<String>) -> String {
    let first = key(name);
    let mut unused = first.clone();
    let mut number = 2;
    while !taken.insert(unused.clone()) {
        unused = format!("{first}_{number}");
        number += 1;
    }
    unused
}

/// A path that stays inside its folder.
fn inner_path(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.map(|part| if matches!(part, "." | "..") { "_" } else { part }).collect();
    if parts.is_empty() { "_".to_owned() } else { parts.join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_of_their_folder() {
        let check = |name: &str, expected: &str| assert_eq!(key(name), expected, "{name}");
        check("train/loss", "train/loss");
        check("../../etc/passwd", "_/_/etc/passwd");
        check("/a//b", "a/b");
        check("acc@1 (%)", "acc_1 ___");
        check("", "_");
        assert_eq!(inner_path("../epoch=3 (best).ckpt"), "_/epoch=3 (best).ckpt");
    }

    #[test]
    fn names_with_the_same_key_keep_their_files() {
        let mut taken = BTreeSet::new();
        let keys = ["a@1", "a#1", "a_1", "b"].map(|name| unused_key(name, &mut taken));
        assert_eq!(keys, ["a_1", "a_1_2", "a_1_3", "b"]);
    }

    #[test]
    fn numbers_are_those_of_python() {
        assert_eq!([1.0, 0.1, 1e300, f64::NAN, f64::NEG_INFINITY].map(number), ["1.0", "0.1", "1e300", "nan", "-inf"]);
    }
}
