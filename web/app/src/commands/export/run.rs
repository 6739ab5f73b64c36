//! A run as it is exported: its tasks, each with the points of the attempt that made its result.

use assay_core::RunId;
use assay_store::{AttemptRef, PointView, RunView, Store, TaskView};
use serde_json::Value;

use crate::cli::CommandError;

/// A run with everything that is exported of it.
pub struct ExportedRun {
    pub run: RunView,
    pub tasks: Vec<ExportedTask>,
}

/// A task of it.
pub struct ExportedTask {
    pub task: TaskView,
    /// In the order in which they were reported: by the latest attempt or, for a task from the cache, by the one that did the work.
    pub points: Vec<PointView>,
}

impl ExportedRun {
    /// Reads a run.
    pub async fn load(store: &Store, id: RunId) -> Result<ExportedRun, CommandError> {
        let run = store.run(id).await?.ok_or_else(|| format!("there is no run {id} in this store"))?;
        let mut tasks = Vec::new();
        for task in store.tasks(id).await? {
            let attempt = match task.source {
                Some(source) => Some(source),
                None => {
                    let latest = store.attempts(id, task.ix).await?.pop();
                    latest.map(|latest| AttemptRef { run: id, ix: task.ix, epoch: latest.epoch })
                }
            };
            let points = match attempt {
                Some(attempt) => store.points(attempt.run, attempt.ix, attempt.epoch).await?,
                None => Vec::new(),
            };
            tasks.push(ExportedTask { task, points });
        }
        Ok(ExportedRun { run, tasks })
    }

    /// The parameters of a task, by name: `params.`, `matrix.` and `config.`, each with the path of a leaf. A run that a client logged
    /// has the names that the client gave.
    pub fn params(&self, task: &TaskView) -> Vec<(String, String)> {
        let mut params = Vec::new();
        if task.kind == "mlflow" {
            flatten("", &self.run.params, &mut params);
            return params;
        }
        flatten("params", &self.run.params, &mut params);
        for (axis, value) in &task.matrix {
            flatten(&format!("matrix.{axis}"), value, &mut params);
        }
        if let Some(replicate) = task.replicate {
            params.push(("replicate".to_owned(), replicate.to_string()));
        }
        if let Some(config) = &task.config {
            flatten("config", config, &mut params);
        }
        params
    }
}

/// Adds the leaves of a value. Lists are leaves: their items have no names.
fn flatten(path: &str, value: &Value, params: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, params);
            }
        }
        Value::Null => {}
        Value::String(text) => params.push((path.to_owned(), text.clone())),
        other => params.push((path.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_named_by_their_paths() {
        let mut params = Vec::new();
        flatten(
            "config",
            &serde_json::json!({"lr": 0.1, "model": {"dim": 8, "name": "ten"}, "l": [1, 2], "n": null}),
            &mut params,
        );
        let expected =
            [("config.lr", "0.1"), ("config.model.dim", "8"), ("config.model.name", "ten"), ("config.l", "[1,2]")];
        assert_eq!(params, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
