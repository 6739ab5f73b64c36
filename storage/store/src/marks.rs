//! Tags and notes of runs.

use assay_core::RunId;
use assay_schema::run;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, Set};

use crate::error::StoreErrorKind;
use crate::{RunSummary, Store, StoreError, rows};

impl Store {
    /// Adds and removes tags of a run, and replaces its note if there is a new one. Returns the updated run.
    ///
    /// # Errors
    /// If there is no such run, or the store cannot be written.
    pub async fn mark_run(
        &self,
        id: RunId,
        add: &[String],
        remove: &[String],
        note: Option<String>,
    ) -> Result<RunSummary, StoreError> {
        let failed = || StoreError::database(format!("tag run {id}"));
        let unknown = || {
            let message = format!("there is no run {id} in the store");
            StoreError::new(StoreErrorKind::Unknown, message, "`assay runs` lists them")
        };
        let tx = self.database.begin_write().await?;
        let row = run::Entity::find_by_id(id.0).one(&tx).await.map_err(failed())?.ok_or_else(unknown)?;
        let mut tags: Vec<String> = rows::from_json("tags", &row.tags)?;
        tags.retain(|tag| !remove.contains(tag));
        tags.extend(add.iter().cloned());
        let row = run::ActiveModel {
            tags: Set(rows::to_json("tags", &sort_tags(tags))?),
            note: note.map_or(sea_orm::NotSet, Set),
            ..Default::default()
        };
        let update = run::Entity::update_many().set(row).filter(run::Column::Id.eq(id.0));
        update.exec(&tx).await.map_err(failed())?;
        tx.commit().await.map_err(failed())?;
        Ok(self.run(id).await?.ok_or_else(unknown)?.summary)
    }
}

/// Sorts tags alphabetically and removes duplicates.
pub(crate) fn sort_tags(mut tags: Vec<String>) -> Vec<String> {
    tags.sort();
    tags.dedup();
    tags
}
