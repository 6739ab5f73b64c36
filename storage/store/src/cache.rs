//! Looks up cache keys.

use assay_core::RunId;
use assay_schema::{cache, task};
use assay_server::{CachedResult, Content, Lookup};
use assay_spec::Output;
use sea_orm::EntityTrait;

use crate::{Store, StoreError, rows};

impl Store {
    /// The result of the latest task that succeeded under this cache key, if all its artifacts are intact.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn look_up_result(&self, key: &str) -> Result<Lookup, StoreError> {
        let failed = || StoreError::database("look into the cache");
        let reader = self.database.reader();
        let Some(hit) = cache::Entity::find_by_id(key).one(reader).await.map_err(failed())? else {
            return Ok(Lookup::Unknown);
        };
        let row = task::Entity::find_by_id((hit.run, hit.ix)).one(reader).await.map_err(failed())?;
        let Some(row) = row else { return Ok(Lookup::Unknown) };
        let outputs = rows::parse_outputs(row.outputs.as_ref())?;
        for (name, output) in &outputs {
            let Output::Artifact(artifact) = output else { continue };
            if let Content::Lost { why } = self.verify_artifact(&artifact.hash).await? {
                return Ok(Lookup::Lost { output: name.clone(), why });
            }
        }
        Ok(Lookup::Known(CachedResult {
            run: RunId(hit.run),
            task: rows::task_ix(hit.ix)?,
            epoch: rows::to_epoch(hit.epoch)?,
            outputs,
            metrics: rows::floats_of_json(row.metrics.as_ref())?,
        }))
    }
}
