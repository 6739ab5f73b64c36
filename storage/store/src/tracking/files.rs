//! The files of a run that a client logs: outputs of its task, named by their paths.

use std::collections::BTreeMap;

use assay_schema::task;
use assay_spec::{ArtifactRef, Output};
use sea_orm::{EntityTrait, Set};

use super::TrackingError;
use super::error::{absent_run, database};
use super::runs::{find_run, require_active, update_task};
use crate::Store;
use crate::rows::{parse_outputs, to_json};

impl Store {
    /// Adds a file of the store to a run. It replaces a file with the same path.
    ///
    /// # Errors
    /// If the run does not exist or is deleted, or the store cannot be written.
    pub async fn add_tracked_file(&self, key: &str, path: &str, file: ArtifactRef) -> Result<(), TrackingError> {
        let tx = self.database.begin_write().await?;
        let row = find_run(&tx, key).await?;
        require_active(&row)?;
        let task = task::Entity::find_by_id((row.run, 0)).one(&tx).await.map_err(database)?;
        let mut outputs = parse_outputs(task.and_then(|task| task.outputs).as_ref())?;
        outputs.insert(path.to_owned(), Output::Artifact(file));
        let outputs = to_json("outputs", &outputs)?;
        update_task(&tx, row.run, task::ActiveModel { outputs: Set(Some(outputs)), ..Default::default() }).await?;
        tx.commit().await.map_err(database)?;
        Ok(())
    }

    /// Removes a file of a run, or all files of a folder, or all files of the run if the path is empty. Returns how many were removed.
    ///
    /// # Errors
    /// If the run does not exist, or the store cannot be written.
    pub async fn remove_tracked_files(&self, key: &str, path: &str) -> Result<usize, TrackingError> {
        let tx = self.database.begin_write().await?;
        let row = find_run(&tx, key).await?;
        let task = task::Entity::find_by_id((row.run, 0)).one(&tx).await.map_err(database)?;
        let mut outputs = parse_outputs(task.and_then(|task| task.outputs).as_ref())?;
        let before = outputs.len();
        let folder = format!("{path}/");
        outputs.retain(|name, _| !path.is_empty() && name != path && !name.starts_with(&folder));
        let removed = before - outputs.len();
        let outputs = to_json("outputs", &outputs)?;
        update_task(&tx, row.run, task::ActiveModel { outputs: Set(Some(outputs)), ..Default::default() }).await?;
        tx.commit().await.map_err(database)?;
        Ok(removed)
    }

    /// The files of a run, by path.
    ///
    /// # Errors
    /// If the run does not exist, or the store cannot be read.
    pub async fn tracked_files(&self, key: &str) -> Result<BTreeMap<String, ArtifactRef>, TrackingError> {
        let run = self.tracked_run(key).await?.ok_or_else(|| absent_run(key))?.run;
        let task = task::Entity::find_by_id((run.0, 0)).one(self.database.reader()).await.map_err(database)?;
        let outputs = parse_outputs(task.and_then(|task| task.outputs).as_ref())?;
        let file = |(path, output)| match output {
            Output::Artifact(file) => Some((path, file)),
            Output::Value(_) => None,
        };
        Ok(outputs.into_iter().filter_map(file).collect())
    }
}
