//! Reads the whole store and recomputes every hash.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assay_schema::{artifact, segment, task};
use assay_server::Content;
use assay_spec::Output;
use sea_orm::{ConnectionTrait, DbBackend, EntityTrait, QueryOrder, QuerySelect, Statement};

use crate::artifacts::hash_of;
use crate::query::{Audit, Fault};
use crate::store::run_blocking;
use crate::{RunId, Store, StoreError, rows};

impl Store {
    /// Reads every artifact and every metric segment, and lets the database check itself. Changes nothing except the
    /// stored verifications.
    ///
    /// # Errors
    /// If the database cannot be read. A problem of a file is a [`Fault`].
    pub async fn audit_files(&self) -> Result<Audit, StoreError> {
        let mut audit = Audit::default();
        self.audit_artifacts(&mut audit).await?;
        self.audit_segments(&mut audit).await?;
        self.audit_database(&mut audit).await?;
        Ok(audit)
    }

    async fn audit_artifacts(&self, audit: &mut Audit) -> Result<(), StoreError> {
        let makers = self.artifact_makers().await?;
        let query = artifact::Entity::find().order_by_asc(artifact::Column::Hash);
        let rows = query.all(self.database.reader()).await.map_err(StoreError::database("read the artifacts"))?;
        for row in rows {
            let path = self.layout.artifact(&row.hash);
            audit.artifacts += 1;
            audit.bytes += rows::to_unsigned(row.bytes);
            if let Content::Lost { why } = self.verify_by_reading(&row.hash, path.clone()).await? {
                let made_by = makers.get(&row.hash).cloned();
                audit.faults.push(Fault { what: format!("artifact `{}`", row.name), path, why, made_by });
            }
        }
        Ok(())
    }

    async fn audit_segments(&self, audit: &mut Audit) -> Result<(), StoreError> {
        let query = segment::Entity::find().order_by_asc(segment::Column::Run).order_by_asc(segment::Column::Ix);
        let rows = query.all(self.database.reader()).await.map_err(StoreError::database("read the segments"))?;
        for row in rows {
            let path = self.layout.segment(&row.path);
            audit.segments += 1;
            let (hash, bytes) = match run_blocking({
                let path = path.clone();
                move || hash_of(&path, |_| Ok(()))
            })
            .await
            {
                Ok(found) => found,
                Err(error) => (error.message().to_owned(), 0),
            };
            audit.bytes += bytes;
            if hash != row.hash {
                let why = match path.exists() {
                    true => format!("its content is damaged: it hashes to {hash}"),
                    false => "its file is missing".to_owned(),
                };
                let what = format!("metrics of task {} of run {}", row.ix, row.run);
                audit.faults.push(Fault { what, path, why, made_by: None });
            }
        }
        Ok(())
    }

    async fn audit_database(&self, audit: &mut Audit) -> Result<(), StoreError> {
        let failed = || StoreError::database("check the database");
        let check = Statement::from_string(DbBackend::Sqlite, "pragma integrity_check");
        for row in self.database.reader().query_all_raw(check).await.map_err(failed())? {
            let why: String = row.try_get_by_index(0).map_err(failed())?;
            if why != "ok" {
                let path = self.layout.database();
                audit.faults.push(Fault { what: "the database".into(), path, why, made_by: None });
            }
        }
        Ok(())
    }

    /// The first task that produced each artifact: its run and its address.
    async fn artifact_makers(&self) -> Result<BTreeMap<String, (RunId, String)>, StoreError> {
        let found: Vec<(i64, String, Option<sea_orm::JsonValue>)> = task::Entity::find()
            .select_only()
            .column(task::Column::Run)
            .column(task::Column::Address)
            .column(task::Column::Outputs)
            .order_by_desc(task::Column::Run)
            .order_by_desc(task::Column::Ix)
            .into_tuple()
            .all(self.database.reader())
            .await
            .map_err(StoreError::database("read the outputs of all tasks"))?;
        let mut makers = BTreeMap::new();
        for (run, address, outputs) in found {
            for output in rows::parse_outputs(outputs.as_ref())?.into_values() {
                if let Output::Artifact(artifact) = output {
                    makers.insert(artifact.hash, (RunId(run), address.clone()));
                }
            }
        }
        Ok(makers)
    }
}

/// Every regular file below a folder. A folder that cannot be listed counts as empty.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}
