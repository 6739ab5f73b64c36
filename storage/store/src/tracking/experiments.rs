//! Creates, finds and changes experiments.

use std::collections::BTreeMap;

use assay_schema::{experiment, tracked_run};
use sea_orm::{ActiveModelTrait, ColumnTrait, DatabaseTransaction, EntityTrait, NotSet, QueryFilter, QueryOrder, Set};

use super::error::{absent_experiment, database};
use super::{Experiment, ExperimentChange, TrackingError};
use crate::rows::{from_json, now_millis, to_json, to_signed};
use crate::{Store, StoreError};

impl Store {
    /// All experiments, including deleted ones, in the order of their numbers.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn experiments(&self) -> Result<Vec<Experiment>, StoreError> {
        let found = experiment::Entity::find().order_by_asc(experiment::Column::Id).all(self.database.reader()).await;
        found.map_err(database)?.into_iter().map(experiment_view).collect()
    }

    /// Creates an experiment and returns its number.
    ///
    /// # Errors
    /// If the name is used, even by a deleted experiment, or the store cannot be written.
    pub async fn create_experiment(
        &self,
        name: &str,
        location: &str,
        tags: &BTreeMap<String, String>,
    ) -> Result<i64, TrackingError> {
        let tx = self.database.begin_write().await?;
        check_name(&tx, name).await?;
        let now = to_signed(now_millis());
        let row = experiment::ActiveModel {
            id: NotSet,
            name: Set(name.to_owned()),
            location: Set(location.to_owned()),
            deleted: Set(false),
            tags: Set(to_json("tags", tags)?),
            created_at: Set(now),
            updated_at: Set(now),
        };
        let id = row.insert(&tx).await.map_err(database)?.id;
        tx.commit().await.map_err(database)?;
        Ok(id)
    }

    /// Changes an experiment.
    ///
    /// # Errors
    /// If it does not exist, it is deleted and the change needs an active one, the name is used, or the store cannot be written.
    pub async fn change_experiment(&self, id: i64, change: ExperimentChange) -> Result<(), TrackingError> {
        let tx = self.database.begin_write().await?;
        let row = find_experiment(&tx, id).await?;
        let now = to_signed(now_millis());
        let mut changed = experiment::ActiveModel { updated_at: Set(now), ..Default::default() };
        let mut tags: BTreeMap<String, String> = from_json("tags", &row.tags)?;
        match change {
            ExperimentChange::Delete | ExperimentChange::Restore => {
                let delete = change == ExperimentChange::Delete;
                if row.deleted == delete {
                    return Err(absent_experiment(id));
                }
                changed.deleted = Set(delete);
                let runs = tracked_run::ActiveModel { deleted: Set(delete), ..Default::default() };
                let runs = tracked_run::Entity::update_many().set(runs).filter(tracked_run::Column::Experiment.eq(id));
                runs.exec(&tx).await.map_err(database)?;
            }
            _ if row.deleted => {
                let message = format!("The experiment {id} must be in the 'active' state. Current state is deleted.");
                return Err(TrackingError::Invalid(message));
            }
            ExperimentChange::Rename(name) => {
                if name != row.name {
                    check_name(&tx, &name).await?;
                }
                changed.name = Set(name);
            }
            ExperimentChange::SetTag(key, value) => {
                tags.insert(key, value);
                changed.tags = Set(to_json("tags", &tags)?);
            }
            ExperimentChange::RemoveTag(key) => {
                if tags.remove(&key).is_none() {
                    let message = format!("No tag with name: {key} in experiment with id {id}");
                    return Err(TrackingError::Absent(message));
                }
                changed.tags = Set(to_json("tags", &tags)?);
            }
        }
        let update = experiment::Entity::update_many().set(changed).filter(experiment::Column::Id.eq(id));
        update.exec(&tx).await.map_err(database)?;
        tx.commit().await.map_err(database)?;
        Ok(())
    }
}

async fn check_name(tx: &DatabaseTransaction, name: &str) -> Result<(), TrackingError> {
    let found = experiment::Entity::find().filter(experiment::Column::Name.eq(name)).one(tx).await;
    match found.map_err(database)? {
        None => Ok(()),
        Some(row) if row.deleted => {
            let message = format!(
                "Experiment '{name}' already exists in deleted state. Restore it, or choose \
                 another name."
            );
            Err(TrackingError::Exists(message))
        }
        Some(_) => Err(TrackingError::Exists(format!("Experiment '{name}' already exists."))),
    }
}

pub(super) async fn find_experiment(tx: &DatabaseTransaction, id: i64) -> Result<experiment::Model, TrackingError> {
    experiment::Entity::find_by_id(id).one(tx).await.map_err(database)?.ok_or_else(|| absent_experiment(id))
}

fn experiment_view(row: experiment::Model) -> Result<Experiment, StoreError> {
    Ok(Experiment {
        id: row.id,
        name: row.name,
        location: row.location,
        deleted: row.deleted,
        tags: from_json("tags", &row.tags)?,
        created_at: row.created_at,
        updated_at: row.updated_at,
    })
}
