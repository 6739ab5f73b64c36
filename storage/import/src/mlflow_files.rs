//! The file store of MLflow: a folder for each experiment, and in it a folder for each run.
//!
//! A run has `meta.yaml` (a flat mapping), `metrics/NAME` with lines `TIME VALUE STEP`, `params/NAME`, `tags/NAME` and `artifacts/`. Names with
//! slashes are in folders. Source of the format: MLflow, `mlflow/store/tracking/file_store.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use assay_store::{TrackedMetric, TrackedStatus};

use crate::{ForeignRun, ImportError};

/// The runs of a file store, the oldest first; empty if the folder is not a file store. Deleted experiments and runs are left out.
pub(crate) fn list_runs(root: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let mut runs = Vec::new();
    let is_active =
        |meta: &BTreeMap<String, String>| meta.get("lifecycle_stage").is_none_or(|stage| stage != "deleted");
    for experiment in folders(root)? {
        if !experiment.join("meta.yaml").is_file() || !is_active(&read_meta(&experiment)?) {
            continue;
        }
        for run in folders(&experiment)? {
            if !run.join("meta.yaml").is_file() {
                continue;
            }
            let meta = read_meta(&run)?;
            if is_active(&meta) {
                runs.push((meta.get("start_time").and_then(|text| text.parse::<i64>().ok()), run));
            }
        }
    }
    runs.sort();
    Ok(runs.into_iter().map(|(_, run)| run).collect())
}

/// Reads a run from its folder.
pub(crate) fn read_run(folder: &Path) -> Result<ForeignRun, ImportError> {
    let meta = read_meta(folder)?;
    let experiment = match folder.parent() {
        Some(parent) => read_meta(parent)?.remove("name").unwrap_or_default(),
        None => String::new(),
    };
    let whole = |key: &str| meta.get(key).and_then(|text| text.parse::<i64>().ok());
    let file = folder.join("meta.yaml");
    let missing = |key: &str| ImportError::read(&file, format!("it has no `{key}`"));
    let key = meta.get("run_id").or_else(|| meta.get("run_uuid")).ok_or_else(|| missing("run_id"))?.clone();
    let mut metrics = Vec::new();
    for (name, path) in files(&folder.join("metrics"))? {
        read_points(&name, &path, &mut metrics)?;
    }
    let (params, tags) = (read_texts(&folder.join("params"))?, read_texts(&folder.join("tags"))?);
    let named = tags.iter().find(|(name, _)| name == "mlflow.runName").map(|(_, value)| value.clone());
    let name = meta.get("run_name").filter(|name| !name.is_empty()).cloned().or(named).unwrap_or_else(|| key.clone());
    Ok(ForeignRun {
        status: match whole("status") {
            Some(3) => TrackedStatus::Finished,
            Some(5) => TrackedStatus::Killed,
            _ => TrackedStatus::Failed,
        },
        start_time: whole("start_time").ok_or_else(|| missing("start_time"))?,
        end_time: whole("end_time"),
        user: meta.get("user_id").cloned().unwrap_or_default(),
        files: files(&folder.join("artifacts"))?,
        omissions: Vec::new(),
        key,
        experiment,
        name,
        params,
        tags,
        metrics,
    })
}

fn read_text(path: &Path) -> Result<String, ImportError> {
    fs::read_to_string(path).map_err(|error| ImportError::read(path, error))
}

/// The folders in a folder, sorted; none if it does not exist.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| ImportError::read(folder, error))?.path();
        if path.is_dir() && !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// All files below a folder with their paths relative to it, sorted.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, ImportError> {
    let found = crate::source::find_files(folder, &|_| true)?;
    let relative = |path: PathBuf| {
        let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        (name, path)
    };
    Ok(found.into_iter().map(relative).collect())
}

fn read_texts(folder: &Path) -> Result<Vec<(String, String)>, ImportError> {
    files(folder)?
        .into_iter()
        .map(|(name, path)| Ok((name, read_text(&path)?.trim_end_matches('\n').to_owned())))
        .collect()
}

/// Reads the lines `TIME VALUE STEP` of a metric; older versions wrote no step.
fn read_points(name: &str, path: &Path, points: &mut Vec<TrackedMetric>) -> Result<(), ImportError> {
    for (index, line) in read_text(path)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let at = words.next().and_then(|word| word.parse().ok());
        let value = words.next().and_then(|word| word.parse().ok());
        let step = words.next().map_or(Some(0), |word| word.parse().ok());
        let (Some(at), Some(value), Some(step)) = (at, value, step) else {
            return Err(ImportError::read(path, format!("line {} is not `TIME VALUE STEP`: `{line}`", index + 1)));
        };
        points.push(TrackedMetric { name: name.to_owned(), value, at, step });
    }
    Ok(())
}

/// Reads the flat mapping of a `meta.yaml`. Texts may be quoted, and continue on indented lines.
fn read_meta(folder: &Path) -> Result<BTreeMap<String, String>, ImportError> {
    let path = folder.join("meta.yaml");
    let text = read_text(&path)?;
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut().filter(|_| line.starts_with(' ')) {
            Some(last) => *last = format!("{last} {}", line.trim()),
            None => lines.push(line.to_owned()),
        }
    }
    let mut meta = BTreeMap::new();
    for line in lines {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let value = match value.as_bytes() {
            [b'\'', .., b'\''] if value.len() > 1 => value[1..value.len() - 1].replace("''", "'"),
            [b'"', ..] => serde_json::from_str(value)
                .map_err(|_| ImportError::read(&path, format!("the value of `{key}` is not a text: {value}")))?,
            _ if value == "null" => continue,
            _ => value.to_owned(),
        };
        meta.insert(key.trim().to_owned(), value);
    }
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn store() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "7/meta.yaml", "experiment_id: '7'\nlifecycle_stage: active\nname: 'it''s a long\n  name'\n");
        let meta = "run_id: abc\nrun_name: \"x \\u00e9\"\nstatus: 3\nstart_time: 1000\nend_time: 2000\nlifecycle_stage: active\nuser_id: me\n";
        write(root, "7/abc/meta.yaml", meta);
        write(root, "7/abc/metrics/train/loss", "1001 0.5 1\n1002 nan 2\n1003 -inf 3\n");
        write(root, "7/abc/metrics/old", "1001 2\n");
        write(root, "7/abc/params/lr", "0.1");
        write(root, "7/abc/tags/mlflow.note.content", "two\nlines\n");
        write(root, "7/abc/artifacts/model/weights.bin", "w");
        write(root, "7/gone/meta.yaml", &meta.replace("active", "deleted"));
        write(root, "0/meta.yaml", "experiment_id: '0'\nlifecycle_stage: active\nname: Default\n");
        folder
    }

    #[test]
    fn a_run_is_read_with_nested_names() {
        let folder = store();
        let runs = list_runs(folder.path()).unwrap();
        assert_eq!(runs, [folder.path().join("7/abc")]);
        let run = read_run(&runs[0]).unwrap();
        assert_eq!((run.key.as_str(), run.name.as_str(), run.experiment.as_str()), ("abc", "x é", "it's a long name"));
        assert_eq!((run.status, run.start_time, run.end_time), (TrackedStatus::Finished, 1000, Some(2000)));
        let points: Vec<_> = run.metrics.iter().map(|point| (point.name.as_str(), point.step, point.value)).collect();
        assert_eq!(points[..2], [("old", 0, 2.0), ("train/loss", 1, 0.5)]);
        assert!(points[2].2.is_nan() && points[3].2 == f64::NEG_INFINITY);
        assert_eq!(run.params, [("lr".to_owned(), "0.1".to_owned())]);
        assert_eq!(run.tags, [("mlflow.note.content".to_owned(), "two\nlines".to_owned())]);
        assert_eq!(run.files[0].0, "model/weights.bin");
    }

    #[test]
    fn damaged_files_are_named() {
        let folder = store();
        let run = folder.path().join("7/abc");
        write(&run, "metrics/train/loss", "1001 0.5 1\n1002 much 2\n");
        let error = read_run(&run).unwrap_err().to_string();
        assert!(error.contains("train/loss") && error.contains("line 2"), "{error}");
        write(&run, "metrics/train/loss", "");
        write(&run, "meta.yaml", "run_id: abc\n");
        let error = read_run(&run).unwrap_err().to_string();
        assert!(error.contains("meta.yaml") && error.contains("start_time"), "{error}");
    }
}
